"""What a conversation lets people decide about its tool calls, without knowing what those are made of."""

from typing import Any, Protocol


class Calls(Protocol):
    """What takes decisions about calls: the agent room's. Every method runs inside a commit block."""

    async def approve(self, tx: Any, conversation_id: int, call_id: str, arguments_hash: str) -> None:
        """Let a call run with exactly the arguments of this hash."""

    async def deny(self, tx: Any, conversation_id: int, call_id: str, arguments_hash: str, reason: str | None) -> None:
        """Have a call answered with an error instead of run."""

    async def complete(self, tx: Any, conversation_id: int, call_id: str, value: Any, request_id: str | None) -> None:
        """Give the result of a call that is completed from outside."""
