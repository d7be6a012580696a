"""What can go wrong with tools and extensions, and what state each leaves behind."""

from ...chord.errors import PerdureError


class ToolDefinitionError(PerdureError, TypeError):
    """A function cannot be made a tool. Nothing was defined."""


class InvalidArguments(PerdureError, ValueError):
    """A call's arguments do not fit the tool's schema. The tool did not run; the model gets the text."""


class ExtensionInvalid(PerdureError, ValueError):
    """The registry would contradict itself with this extension. It is as it was before."""
