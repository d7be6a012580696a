"""Tools: plain typed functions that a model may call.

    @tool(replay="safe")
    async def grep(pattern: str, path: str = ".") -> str:
        '''Search files for a regular expression.'''

The schema comes from the signature, descriptions from the docstring. A first parameter annotated ``ToolContext`` gets
the call's context and is not shown to the model. Sync functions run in a thread. pydantic is imported when the first
schema is needed. Proved by tests/actors/agent/test_tool.py.
"""

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from functools import cached_property, partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, NotRequired, Protocol, get_type_hints, overload

import docstring_parser
import msgspec

from ...chord import PerdureError, copy_json
from ...storage.records import Json, JsonObject
from ..conversation.builtin import Diagnostic
from ..models import Content, ToolCall, ToolSpec, Usage, plain_text
from .errors import InvalidArguments, ToolDefinitionError
from .output import OutputLimits
from .threads import in_thread

if TYPE_CHECKING:
    from .toolcontext import ToolContext

Replay = Literal["safe", "unsafe"]
Validated = dict[str, Any]
"""A call's arguments as the function takes them."""

NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""What every provider takes as a name, so that a call comes back under the name that was offered."""
MAX_EXPLAINED = 20
"""Faults of one call's arguments that the model is told of."""


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that a tool can answer; a tool may return just a string, or any JSON value, instead.

    ``content`` is what the model reads (None: the output written with ``ctx.output``), ``details`` is for people and
    programs, ``is_error`` tells the model that the call failed, ``usage`` is what the call itself spent on models.
    ``add_tools`` names tools to offer from now on to a conversation that has chosen some; ``terminate`` ends the run
    with this round, without another word of the model, if every call of the round asks for it. ``handoff`` ends it, too, and
    takes everything so far out of context, which begins anew with that text by a user; the round's last one counts.
    """

    content: str | list[Content] | None = None
    details: Json = None
    is_error: bool = False
    diagnostics: Sequence[Diagnostic] = ()
    usage: Usage | None = None
    add_tools: Sequence[str] = ()
    terminate: bool = False
    handoff: str | None = None

    @property
    def text(self) -> str:
        """What it says: its text, or else its diagnostics'."""
        said = self.content if isinstance(self.content, str) else plain_text(self.content or ())
        return said or "\n".join(one["message"] for one in self.diagnostics)


Approval = Literal["always"] | Callable[[ToolCall], bool | Awaitable[bool]]
"""Which calls of a tool wait for somebody's approval: all, or those for which a function says so."""


class Around(Protocol):
    """What ``Tool.around`` takes."""

    def __call__(
        self, context: "ToolContext", arguments: JsonObject, *, run: Callable[[JsonObject], Awaitable[Any]]
    ) -> Awaitable[Any]:
        """Execute a call, or have ``run`` do it."""


class Tool:
    """A function with its declaration and policies.

    ``replay="safe"`` lets a call that a crash interrupted run again; by default it is answered as interrupted.
    ``execution="sequential"`` makes a round with this tool run its calls one after another. ``timeout_s`` is the longest
    that one execution may take. ``approval`` has calls wait, for ``approval_timeout_s`` at most, until somebody approves
    or denies them (``Conversation.approve``, ``deny``). ``details_type`` is what its results' details must be (anything
    that msgspec can convert to). With ``offered=False`` only conversations have it that name it among their tools.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        replay: Replay = "unsafe",
        execution: Literal["parallel", "sequential"] | None = None,
        limits: OutputLimits | None = None,
        timeout_s: float | None = None,
        approval: Approval | None = None,
        approval_timeout_s: float | None = None,
        details_type: Any = None,
        offered: bool = True,
    ) -> None:
        self.function = function
        self.name = name or str(getattr(function, "__name__", ""))
        self.replay: Replay = replay
        self.execution = execution
        self.limits = limits or OutputLimits()
        self.timeout_s = _seconds(self.name, "timeout_s", timeout_s)
        self.approval = _approval(self.name, approval)
        self.details_type = details_type
        self.offered = offered
        self._around: tuple[Around, ...] = ()
        self.approval_timeout_s = _seconds(self.name, "approval_timeout_s", approval_timeout_s)
        self._doc = docstring_parser.parse(inspect.getdoc(function) or "")
        self._description = description
        self._signature = _signature(self.name, function)
        if not self.description:
            raise ToolDefinitionError(f"tool {self.name!r} needs a docstring: the model chooses by it")

    def __repr__(self) -> str:
        return f"Tool({self.name!r}, replay={self.replay!r})"

    async def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as the author wrote it."""
        result = self.function(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    @property
    def description(self) -> str:
        """What the model is told about the tool."""
        parts = (self._doc.short_description, self._doc.long_description)
        return self._description or "\n\n".join(part for part in parts if part)

    @cached_property
    def spec(self) -> ToolSpec:
        """The declaration that a model gets. Raises ToolDefinitionError when the signature has no JSON Schema."""
        try:
            schema: JsonObject = copy_json(self._arguments.json_schema())
        except Exception as error:
            raise ToolDefinitionError(f"tool {self.name!r}: no schema can be made of its signature: {error}") from error
        schema.pop("title", None)
        return ToolSpec(name=self.name, description=self.description, parameters=schema)

    def around(self, function: "Around") -> "Tool":
        """Give this tool with ``function(context, arguments, *, run)`` in place of its execution, which ``run(arguments)`` is.

        Name, schema and policies stay. ``arguments`` are the call's, as JSON; what ``run`` gets is validated again.
        """
        wrapped = copy(self)
        wrapped._around = (*self._around, function)
        return wrapped

    def validate(self, arguments: JsonObject) -> Validated:
        """Give a call's arguments as the function takes them. Raises InvalidArguments, in words for the model."""
        from pydantic import ValidationError

        given = {name: value for name, value in arguments.items() if value is not None or name not in self._optional}
        schema = self._arguments
        try:
            validated: Validated = schema.validate_python(given)
        except ValidationError as error:
            raise InvalidArguments(_explain(self.name, error.errors(), arguments)) from None
        except Exception as error:  # a validator of the author's own
            fault = {"loc": (), "msg": f"{type(error).__name__}: {error}"}
            raise InvalidArguments(_explain(self.name, [fault], arguments)) from error
        return validated

    async def run(self, context: "ToolContext", arguments: JsonObject, given: Validated | None = None) -> Any:
        """Execute a call; ``given`` are its arguments if they are validated already.

        A sync function's thread cannot be cancelled, only left behind.
        """
        if given is not None and not self._around:
            return await self._run(context, given)
        run: Callable[[JsonObject], Awaitable[Any]] = partial(self._validate_and_run, context)
        for around in self._around:
            run = partial(around, context, run=run)
        return await run(arguments)

    async def _validate_and_run(self, context: "ToolContext", arguments: JsonObject) -> Any:
        return await self._run(context, self.validate(arguments))

    def _run(self, context: "ToolContext", given: Validated) -> Awaitable[Any]:
        first = (context,) if self._takes_context else ()
        if self._is_async:
            running: Awaitable[Any] = self.function(*first, **given)
            return running
        return self._run_in_thread(first, given)

    async def _run_in_thread(self, first: tuple[Any, ...], given: Validated) -> Any:
        result = await in_thread(self.function, *first, **given)
        return await result if inspect.isawaitable(result) else result

    async def clean_up(self, context: "ToolContext") -> None:
        """End what an execution that a crash or an abort cut off has left in the world; override it.

        Called before its call is answered or runs again, with the task's documents as that execution left them. It may
        be called more than once.
        """

    # --- the signature

    @cached_property
    def _parameters(self) -> dict[str, inspect.Parameter]:
        parameters = dict(self._signature.parameters)
        if self._takes_context:
            parameters.pop(next(iter(parameters)))
        return parameters

    @cached_property
    def _is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    @cached_property
    def _hints(self) -> dict[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @cached_property
    def _takes_context(self) -> bool:
        from .toolcontext import ToolContext

        first = next(iter(self._signature.parameters), None)
        return first is not None and self._hints.get(first) is ToolContext

    @cached_property
    def _optional(self) -> set[str]:
        return {name for name, one in self._parameters.items() if one.default is not one.empty}

    @cached_property
    def _arguments(self) -> Any:
        from pydantic import ConfigDict, TypeAdapter, with_config
        from typing_extensions import TypedDict

        fields = {name: self._field(name, parameter) for name, parameter in self._parameters.items()}
        arguments = TypedDict("Arguments", fields)  # type: ignore[misc]  # made from a signature
        return TypeAdapter(with_config(ConfigDict(extra="forbid"))(arguments))

    def _field(self, name: str, parameter: inspect.Parameter) -> Any:
        from pydantic import Field

        said = {one.arg_name: one.description for one in self._doc.params if one.description}
        shown = {**_shown_default(parameter), **({"description": said[name]} if name in said else {})}
        hint: Any = self._hints.get(name, Any)
        field: Any = Annotated[hint, Field(json_schema_extra=shown)]
        return NotRequired[field] if name in self._optional else field


def _signature(name: str, function: Callable[..., Any]) -> inspect.Signature:
    if not NAME.fullmatch(name):
        raise ToolDefinitionError(f"a tool's name is 1 to 64 letters, digits, '_' and '-', not {name!r}; give it one")
    if not (inspect.isfunction(function) or inspect.ismethod(function)):
        raise ToolDefinitionError(f"tool {name!r}: expected a function or method, got {function!r}")
    signature = inspect.signature(function)
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolDefinitionError(f"tool {name!r}: parameter {parameter.name!r} must be a named one")
    return signature


def _seconds(name: str, option: str, given: Any) -> float | None:
    if given is not None and (isinstance(given, bool) or not isinstance(given, int | float) or given <= 0):
        raise ToolDefinitionError(f"tool {name!r}: {option} is a number of seconds above 0, not {given!r}")
    return given


def _approval(name: str, given: Any) -> Approval | None:
    if given is not None and given != "always" and not callable(given):
        raise ToolDefinitionError(f'tool {name!r}: approval is "always" or a function of the call, not {given!r}')
    approval: Approval | None = given
    return approval


def _shown_default(parameter: inspect.Parameter) -> JsonObject:
    """Give the part of a schema that tells a default, when it has a JSON form."""
    from pydantic_core import to_jsonable_python

    if parameter.default is parameter.empty:
        return {}
    try:
        return {"default": copy_json(to_jsonable_python(parameter.default))}
    except (ValueError, PerdureError):
        return {}


def _explain(name: str, errors: Sequence[Any], arguments: JsonObject) -> str:
    lines = [f"  - {'.'.join(map(str, error['loc'])) or 'arguments'}: {error['msg']}" for error in errors]
    if len(lines) > MAX_EXPLAINED:
        lines[MAX_EXPLAINED:] = [f"  - and {len(lines) - MAX_EXPLAINED} more"]
    received = msgspec.json.encode(arguments).decode()[:2_000]
    return "\n".join([f"Validation failed for tool {name}:", *lines, f"Received: {received}"])


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    replay: Replay = "unsafe",
    execution: Literal["parallel", "sequential"] | None = None,
    limits: OutputLimits | None = None,
    timeout_s: float | None = None,
    approval: Approval | None = None,
    approval_timeout_s: float | None = None,
    details_type: Any = None,
    offered: bool = True,
) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
    """Make a function a tool, bare or with the options of ``Tool``. Raises ToolDefinitionError."""
    return Tool(function, **options) if function is not None else lambda function: Tool(function, **options)
