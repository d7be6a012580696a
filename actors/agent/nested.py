"""Calls that a tool makes of other tools: tasks of their own, below the call's. Proved by tests/actors/agent/test_nested.py."""

import asyncio
from typing import Any

import msgspec

from ...storage.contract import TaskQuery
from ...storage.records import JsonObject, Terminal
from ..conversation.settings import Settings
from ..session.arguments import plain
from ..task.definition import Task
from ..task.ref import TaskRef
from ..task.run import Run
from .calls import KIND
from .tool import ToolResult

PAGE = 500


class NestedCalls:
    """The calls that one execution of a tool has made, by key; of an execution that runs ``again``, earlier ones, too."""

    def __init__(self, run: Run[Any], call_id: str, task: type[Task[Any, Any]], *, again: bool) -> None:
        self._run = run
        self._call_id = call_id
        self._task = task
        self._made: dict[str, int] | None = None if again else {}
        self._count = 0
        self._room = asyncio.Semaphore(run.service(Settings).max_nested_calls)
        self.open: set[int] = set()
        """Those whose results nobody has waited for."""

    async def call(self, tool: str, arguments: JsonObject, key: str | None) -> ToolResult:
        """Make a call, or find it, and wait for its result."""
        key = str(self._count) if key is None else key
        self._count += 1
        async with self._room:
            task = await self._begin(tool, arguments, f"{self._call_id}/{key}")
            self.open.add(task)
            ref: TaskRef[Any] = TaskRef(self._run.services, self._run.session, task)
            record = await ref.settled()
            self.open.discard(task)
        assert isinstance(record.state, Terminal)
        return _result(record.state.outcome, tool)

    async def _begin(self, tool: str, arguments: JsonObject, call_id: str) -> int:
        if self._made is None:
            self._made = await self._before()
        found = self._made.pop(call_id, None)
        if found is not None:
            return found
        given = {"assistant": None, "callId": call_id, "name": tool, "arguments": plain(arguments)}
        async with self._run.commit() as tx:
            made = await tx.create_task(self._task, given, owner=self._run.id)
        return made.id

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


def _result(outcome: Any, tool: str) -> ToolResult:
    """Give a task's end as a result; one that none of its code decided is an error."""
    given = getattr(outcome, "result", None)
    if isinstance(given, dict) and given.get("result") is not None:
        return msgspec.convert(given["result"], ToolResult)
    why = getattr(outcome, "reason", None) or getattr(getattr(outcome, "error", None), "message", "it was aborted")
    return ToolResult(content=f"Tool {tool} gave no result: {why}", is_error=True)
