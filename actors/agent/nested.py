"""Calls that a tool makes of other tools: tasks of their own, below the call's.

Calls that are begun together are created in one commit. Where nobody has to be asked before a tool that may run again,
the same commit stores the intent, so that such a call costs little more than its outcome's commit.
Proved by tests/actors/agent/test_nested.py.
"""

import asyncio
from collections import deque
from contextvars import copy_context
from typing import Any

import msgspec

from ...storage.contract import TaskQuery
from ...storage.records import JsonObject, TaskRecord, Terminal
from ..conversation.settings import Settings
from ..session.arguments import name, plain
from ..session.errors import InvalidValue
from ..task.definition import Definitions, Task
from ..task.run import Run
from ..task.tx import RunTx
from .asking import agent_of
from .calls import KIND, ToolInput
from .registry import Resolved
from .tool import ToolResult

PAGE = 500
MAX_CREATED_AT_ONCE = 256
"""Calls that one commit creates."""


class _Wanted:
    """A call that waits to be created."""

    __slots__ = ("arguments", "call_id", "receipt", "taken", "tool")

    def __init__(self, call_id: str, tool: str, arguments: JsonObject) -> None:
        self.call_id = call_id
        self.tool = tool
        self.arguments = arguments
        self.receipt: asyncio.Future[TaskRecord] = asyncio.get_running_loop().create_future()
        """Gets the record with which its task has ended."""
        self.taken = False
        """Whether it has left the queue."""


class NestedCalls:
    """The calls that one execution of a tool makes; an execution that runs ``again`` finds those made earlier, by key."""

    def __init__(self, run: Run[Any], call_id: str, *, again: bool) -> None:
        self._run = run
        self._call_id = call_id
        self._made: dict[str, int] | None = None if again else {}
        self._count = 0
        self._named: set[str] = set()
        """The calls that this execution has asked for, by id."""
        self._queue: deque[_Wanted] = deque()
        self._under_way = 0
        self._creating: asyncio.Task[None] | None = None
        self._context = copy_context()  # whoever calls first may hold a session's line

    async def call(self, tool: str, arguments: JsonObject, key: str | None) -> ToolResult:
        """Make a call, or find it, and wait for its result."""
        self._run.check()
        wanted = self._want(tool, arguments, key)
        try:
            record = await wanted.receipt
        finally:
            self._under_way -= wanted.taken
            self._create_soon()
        assert isinstance(record.state, Terminal)
        return _result(record.state.outcome, tool)

    def _want(self, tool: str, arguments: JsonObject, key: str | None) -> _Wanted:
        key = str(self._count) if key is None else name("a call's key", key)
        given = plain(arguments)
        if not isinstance(given, dict):
            raise InvalidValue(f"a call's arguments are an object, got: {arguments!r}")
        wanted = _Wanted(f"{self._call_id}/{key}", name("a tool's name", tool), given)
        self._count += 1
        self._take_name(wanted.call_id, key)
        self._queue.append(wanted)
        self._create_soon()
        return wanted

    def _take_name(self, call_id: str, key: str) -> None:
        """Keep two calls from one key: an execution that runs again would find one of them, and make the other again."""
        if call_id in self._named:
            raise InvalidValue(f"key {key!r} names another call of this execution")
        self._named.add(call_id)

    # --- creating

    def _create_soon(self) -> None:
        """Create what is wanted once everybody who runs now has had a chance to want something, too."""
        if self._queue and self._creating is None and self._room() > 0:
            self._creating = asyncio.get_running_loop().create_task(self._create(), context=self._context)

    def _room(self) -> int:
        return self._run.service(Settings).max_nested_calls - self._under_way

    async def _create(self) -> None:
        batch = self._take()
        while batch:
            try:
                await self._make(batch)
            except BaseException as error:
                for one in batch:
                    _fail(one.receipt, error)
                if not isinstance(error, Exception):
                    raise
            batch = self._take()

    def _take(self) -> list[_Wanted]:
        """Take as many as there is room for out of the queue; with none the creation is over."""
        batch: list[_Wanted] = []
        room = min(self._room(), MAX_CREATED_AT_ONCE)
        while self._queue and len(batch) < room:
            one = self._queue.popleft()
            if not one.receipt.done():
                one.taken = True
                batch.append(one)
        self._under_way += len(batch)
        if not batch:
            self._creating = None
        return batch

    async def _make(self, batch: list[_Wanted]) -> None:
        if self._made is None:
            self._made = await self._before()
        agent = await agent_of(self._run)
        async with self._run.commit(wait=False) as tx:
            tasks = [self._made.pop(one.call_id, 0) or await self._task_of(tx, one, agent) for one in batch]
        # Admitted, not durable: none of them has begun yet.
        for one, task in zip(batch, tasks, strict=True):
            await self._run.expect(task, one.receipt)

    async def _task_of(self, tx: RunTx, one: _Wanted, agent: Resolved) -> int:
        tool = agent.unasked(one.tool)
        replay = None if tool is None else tool.replay
        given = ToolInput(assistant=None, call_id=one.call_id, name=one.tool, arguments=one.arguments, replay=replay)
        return (await tx.create_task(self._kind(), given, owner=self._run.id)).id

    def _kind(self) -> type[Task[Any, Any]]:
        """Give the definition of tool calls, which is always there."""
        definition = self._run.service(Definitions).get(KIND)
        assert definition is not None
        return type(definition)

    async def _before(self) -> dict[str, int]:
        """Find what earlier executions have made: tasks of this one's, newer than it."""
        made: dict[str, int] = {}
        query = TaskQuery(conversation_id=self._run.conversation_id, kind=KIND, order="descending")
        async with self._run.commit() as tx:
            page = await tx.scan_tasks(query, PAGE)
            while page.items and page.items[0].id > self._run.id:
                made |= {one.input["callId"]: one.id for one in page.items if one.owner == self._run.id}
                if page.next is None:
                    break
                page = await tx.scan_tasks(query, PAGE, page.next)
        return made


def _fail(receipt: "asyncio.Future[Any]", error: BaseException) -> None:
    if receipt.done():
        return
    if isinstance(error, Exception):
        receipt.set_exception(error)
    else:
        receipt.cancel()


def _result(outcome: Any, tool: str) -> ToolResult:
    """Give a task's end as a result; one that none of its code decided is an error."""
    given = getattr(outcome, "result", None)
    if isinstance(given, dict) and given.get("result") is not None:
        return msgspec.convert(given["result"], ToolResult)
    why = getattr(outcome, "reason", None) or getattr(getattr(outcome, "error", None), "message", "it was aborted")
    return ToolResult(content=f"Tool {tool} gave no result: {why}", is_error=True)
