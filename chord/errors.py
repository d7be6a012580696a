"""The root of perdure's one error hierarchy, and the errors of documents.

The root lives on the lowest floor so that every room can share it without importing upwards.
"""


class PerdureError(Exception):
    """Base of every error that perdure raises on purpose.

    Raised inside an actor it answers the caller and leaves the actor alive; any other exception is a crash.
    """


class ChordError(PerdureError):
    """A JSON value, an operation or a frame is not what chord's rules ask for. Nothing was changed."""


class InvalidOp(ChordError):
    """An operation, or a whole frame, has the wrong shape."""


class UnsafePath(ChordError):
    """A path segment is reserved, or of a type that cannot address anything."""


class OutOfRange(ChordError):
    """An array index lies beyond the end of its array."""


class PathMissing(ChordError):
    """Something on the path is absent, or is not of the type that the operation needs."""
