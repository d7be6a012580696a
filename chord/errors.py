"""The root of perdure's one error hierarchy, and the errors of documents.

The root lives on the lowest floor so that every room can share it without importing upwards.
"""

from reprlib import Repr


class PerdureError(Exception):
    """Base of every error that perdure raises on purpose.

    Raised inside an actor it answers the caller and leaves the actor alive; any other exception is a crash.
    """


class ChordError(PerdureError):
    """A JSON value, an operation or a frame is not what chord's rules ask for. Nothing was changed."""


class InvalidJson(ChordError):
    """A value is not strict JSON. The message names the path of the offending part and what stands there."""


class InvalidOp(ChordError):
    """An operation, or a whole frame, has the wrong shape."""


class UnsafePath(ChordError):
    """A path segment is reserved, or of a type that cannot address anything."""


class OutOfRange(ChordError):
    """An array index lies beyond the end of its array."""


class PathMissing(ChordError):
    """Something on the path is absent, or is not of the type that the operation needs."""


class DraftRevoked(ChordError):
    """A draft, or the change it belongs to, was used after the change had been prepared or aborted."""


class StaleChange(ChordError):
    """A tracker was asked for something out of turn.

    A second change while one is open, a prepared change that belongs to another tracker or to an older revision,
    or the value of a revision that was given up by `adopt(..., consume=True)`.
    """


class WatchTaken(ChordError):
    """A watch or a state attachment already has the one consumer that it can have."""


def quote(thing: object) -> str:
    """`thing` for an error message, cut to a length that a person may read. Cheap, however large it is."""
    try:
        text = _short.repr(thing)
    except ValueError:  # an int of more digits than Python writes
        text = f"<{type(thing).__name__}>"
    return text if len(text) <= 160 else text[:157] + "..."


_short = Repr()
_short.maxlevel = 3
_short.maxstring = _short.maxother = _short.maxlong = 40
