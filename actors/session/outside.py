"""Waiting for something outside of the process, as storage is: a virtual clock does not jump meanwhile."""

from collections.abc import Iterator
from contextlib import contextmanager

from ..runtime import Actor


@contextmanager
def waiting_outside(actor: Actor) -> Iterator[None]:
    """Let an actor's scheduler know that something outside is waited for."""
    actor.system.scheduler.io_in_flight += 1
    try:
        yield
    finally:
        actor.system.scheduler.io_in_flight -= 1
