"""Decisions about tool calls that another process leaves beside the store for its owner to carry out.

    agents.db-decisions/0001.json      what somebody has decided: written whole, by way of a temporary name
    agents.db-decisions/0001.answer    what has become of it: written by the owner, taken by who has decided

Only the store's owner writes to the store. It looks into the directory, if there is one, when it begins and from then on
every so often; a decision that no owner has seen yet waits. Carrying one out twice, as after a crash, is refused by the
call, so nothing happens twice. The directory is its owner's only. Proved by tests/actors/cli/test_approve.py.
"""

import asyncio
import contextlib
import os
import uuid
from pathlib import Path
from typing import Literal

import msgspec
import structlog

from ...chord.errors import PerdureError
from ..session.environment import Services
from .handles import Conversation

log = structlog.get_logger("perdure.conversation")

EVERY_S = 0.5
"""How often an owner looks, on its loop's own clock: people do not wait by the system's."""


class Decision(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What somebody has decided about a call of a session's conversation, and about which arguments (see ``approve``)."""

    session: str
    conversation_id: int
    call_id: str
    arguments_hash: str
    verdict: Literal["approve", "deny"]
    reason: str | None = None


class Answer(msgspec.Struct, frozen=True):
    """What has become of a decision; ``error`` is why it was refused."""

    error: str | None = None


class DecisionBox:
    """The directory beside a store's file."""

    def __init__(self, store: str) -> None:
        self.path = Path(f"{store}-decisions")

    def put(self, decision: Decision) -> str:
        """Leave a decision, durably; gives its name."""
        self.path.mkdir(mode=0o700, exist_ok=True)
        name = uuid.uuid4().hex
        self._write(f"{name}.json", msgspec.json.encode(decision))
        return name

    def answer(self, name: str) -> Answer | None:
        """Take what has become of a decision; None when the owner has not seen it yet."""
        path = self.path / f"{name}.answer"
        try:
            answer = msgspec.json.decode(path.read_bytes(), type=Answer)
        except FileNotFoundError:
            return None
        path.unlink()
        return answer

    def waiting(self) -> list[tuple[str, Decision | None]]:
        """List the decisions that were not carried out, oldest first; None for a file that is none."""
        if not self.path.is_dir():
            return []
        files = sorted(self.path.glob("*.json"), key=lambda one: (one.stat().st_mtime_ns, one.name))
        return [(file.stem, _read(file)) for file in files]

    def settle(self, name: str, answer: Answer) -> None:
        """Tell what has become of a decision, and forget it."""
        self._write(f"{name}.answer", msgspec.json.encode(answer))
        (self.path / f"{name}.json").unlink(missing_ok=True)

    def _write(self, name: str, data: bytes) -> None:
        temporary = self.path / f"{name}.{uuid.uuid4().hex}"
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path / name)
        directory = os.open(self.path, os.O_RDONLY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)


def _read(file: Path) -> Decision | None:
    try:
        return msgspec.json.decode(file.read_bytes(), type=Decision)
    except (OSError, msgspec.MsgspecError):
        return None


class DecisionDesk:
    """Carries out the decisions in a box, for the owner of the store."""

    def __init__(self, services: Services, box: DecisionBox) -> None:
        self._services = services
        self._box = box
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _run(self) -> None:
        while True:
            try:
                for name, decision in self._box.waiting():
                    self._box.settle(name, await self._carry_out(decision))
            except OSError as error:
                log.warning("decisions_unreadable", path=str(self._box.path), error=str(error))
            await asyncio.sleep(EVERY_S)

    async def _carry_out(self, decision: Decision | None) -> Answer:
        if decision is None:
            return Answer(error="this is no decision")
        conversation = Conversation(self._services, decision.session, decision.conversation_id)
        try:
            if decision.verdict == "approve":
                await conversation.approve(decision.call_id, decision.arguments_hash)
            else:
                await conversation.deny(decision.call_id, decision.arguments_hash, reason=decision.reason)
        except PerdureError as error:
            return Answer(error=str(error))
        log.info("decided", session=decision.session, call=decision.call_id, verdict=decision.verdict)
        return Answer()
