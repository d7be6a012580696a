"""What can go wrong with tools and extensions, and what state each leaves behind."""

from ...chord.errors import PerdureError


class ToolDefinitionError(PerdureError, TypeError):
    """A function cannot be made a tool. Nothing was defined."""


class InvalidArguments(PerdureError, ValueError):
    """A call's arguments do not fit the tool's schema. The tool did not run; the model gets the text."""


class ExtensionInvalid(PerdureError, ValueError):
    """The registry would contradict itself with this extension. It is as it was before."""


class ToolTimeout(PerdureError, TimeoutError):
    """A tool did not end within its time limit. It was cancelled; the model gets what it had shown."""


class UnknownCall(PerdureError, LookupError):
    """The conversation has no tool call of this id that somebody could decide about. Nothing was changed."""


class CallNotWaiting(PerdureError):
    """The call does not wait for this: it was decided before, it runs, or it has ended. Nothing was changed."""


class ApprovalMismatch(PerdureError, ValueError):
    """The hash is not of the arguments that wait for approval. Nothing was changed; the call waits on."""
