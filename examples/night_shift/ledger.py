"""The ledger of tickets: a plain file that no transaction covers.

It stands for everything that an agent does to the world. It takes what it is given: that no ticket is in it twice is for
perdure, and for agents that look before they file again, to see to.
"""

import os
from pathlib import Path

import msgspec


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A finding as it was filed. ``key`` names the one call that filed it, ``task`` is that call's task."""

    key: str
    task: int
    rule: str
    path: str
    line: int
    text: str

    @property
    def finding(self) -> tuple[str, str, int]:
        """What the ticket is about, whoever filed it."""
        return self.rule, self.path, self.line

    def __str__(self) -> str:
        return f"{self.rule:<7} {self.path}:{self.line}  {self.text}"


class Ledger:
    """Tickets in a file, one JSON object a line."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, ticket: Ticket) -> None:
        """Add a ticket; when this returns it is there for good."""
        file = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, msgspec.json.encode(ticket) + b"\n")
            os.fsync(file)
        finally:
            os.close(file)

    def tickets(self) -> list[Ticket]:
        """Everything filed so far, oldest first."""
        lines = self.path.read_bytes().splitlines() if self.path.exists() else []
        return [msgspec.json.decode(line, type=Ticket) for line in lines]
