"""Extensions: named bundles of tools, prompt sections, hooks and tasks, and the registry of those installed in this process.

Conversations store names; code comes from here when it is needed, so installing a new version under an old name takes
effect at the next request. Proved by tests/actors/agent/test_registry.py.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, cast

import msgspec
import structlog

from ...storage.records import JsonObject
from ..conversation.choice import model_name
from ..conversation.settings import Settings
from ..models import ThinkingLevel
from ..task.definition import Definitions, Task
from .errors import ExtensionInvalid
from .hooks import Hooks
from .responses import said
from .tool import Tool

log = structlog.get_logger("perdure.agent")

Render = Callable[["PromptInput"], str | Awaitable[str | None] | None]
SECTION_KEY = re.compile(r"[a-z][a-z0-9_-]*")
INSTRUCTIONS = "instructions"


class PromptInput(msgspec.Struct, frozen=True, kw_only=True):
    """What a prompt section may look at: where it is shown, for which agent, and committed documents of the session."""

    session: str
    conversation_id: int
    agent: "Resolved"
    snapshot: Callable[..., Awaitable[Any]]


class Section(msgspec.Struct, frozen=True):
    """A named part of the system prompt: a text, or a function that gives it (None leaves it out).

    With ``tag`` the text is wrapped as ``<key>`` ... ``</key>``. A function must give equal text for equal input: every
    change is sent to the model and costs its prompt cache.
    """

    key: str
    render: str | Render
    tag: bool = True


class Wrap(msgspec.Struct, frozen=True, kw_only=True):
    """Puts something in place of the tool or section of a name, whoever brings that: what ``by`` makes of it.

    It must give a ``Tool`` (see ``Tool.around``) or ``Section`` of the same name, and is asked at every resolution.
    """

    tool: str | None = None
    section: str | None = None
    by: Callable[[Any], Any]


class Extension(msgspec.Struct, frozen=True, kw_only=True):
    """A named bundle of what an agent can do."""

    name: str
    tools: Sequence[Tool] = ()
    sections: Sequence[Section] = ()
    tasks: Sequence[type[Task[Any, Any]]] = ()
    hooks: Hooks = Hooks()
    wraps: Sequence[Wrap] = ()


class Resolved(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation's agent as the installed extensions make it."""

    model: str | None
    thinking_level: ThinkingLevel
    extensions: list[str]
    tools: list[Tool]
    sections: list[Section]
    hooks: list[tuple[str, Hooks]] = []
    """Each extension's, in the order in which they were installed."""
    fallbacks: list[str] = []
    deferred: bool = False

    @property
    def models(self) -> list[str]:
        """The models to ask, the chosen one first."""
        return [name for name in (self.model, *self.fallbacks) if name is not None]

    def tool(self, name: str) -> Tool | None:
        """Give an offered tool by name."""
        for tool in self.tools:
            if tool.name == name:
                return tool
        return None

    def unasked(self, name: str) -> Tool | None:
        """Give an offered tool by name if its calls may run, and run again, without anybody being asked."""
        tool = self.tool(name)
        if tool is None or tool.replay != "safe" or tool.approval is not None:
            return None
        return None if any(hooks.before_tool for _, hooks in self.hooks) else tool


class Registry:
    """The extensions installed in this process, in install order. One that is replaced keeps its place."""

    def __init__(self, definitions: Definitions) -> None:
        self._definitions = definitions
        self._built_in: set[str] = set()
        self._installed: dict[str, Extension] = {}
        self._resolved: tuple[JsonObject, Settings, Resolved] | None = None
        """The last choice that was resolved, which is often the next one, too. Committed JSON does not change."""

    def build_in(self, tasks: Iterable[type[Task[Any, Any]]]) -> None:
        """Install tasks that belong to no extension and that none may replace."""
        for task in tasks:
            self._built_in.add(task.name)
            self._definitions.install(task)

    def install(self, extension: Extension) -> Callable[[], None]:
        """Install an extension, or replace the one of its name. Gives a function that uninstalls it, if it is still there.

        Raises ExtensionInvalid, and ToolDefinitionError for a tool without a schema, and changes nothing.
        """
        _check(extension, self._taken(extension.name))
        made = [_made(extension, task) for task in extension.tasks]
        gone = _task_names(self._installed.get(extension.name)) - _task_names(extension)
        self._installed[extension.name] = extension
        self._resolved = None
        self._definitions.replace(gone, made)
        return partial(self._dispose, extension)

    def _dispose(self, extension: Extension) -> None:
        if self._installed.get(extension.name) is extension:
            self.uninstall(extension.name)

    def exchange(self, gone: Iterable[str], extensions: Iterable[Extension]) -> None:
        """Uninstall and install extensions, all or none. Raises as ``install``."""
        before = dict(self._installed)
        try:
            for name in gone:
                self.uninstall(name)
            for extension in extensions:
                self.install(extension)
        except BaseException:
            for name in [name for name in self._installed if name not in before]:
                self.uninstall(name)
            for extension in before.values():
                self.install(extension)
            self._installed, self._resolved = before, None
            raise

    def uninstall(self, name: str) -> None:
        """Remove an extension. Conversations that select it keep its name; its tasks wait until it comes back."""
        self._resolved = None
        self._definitions.replace(_task_names(self._installed.pop(name, None)), ())

    def installed(self) -> list[Extension]:
        """List what is installed."""
        return list(self._installed.values())

    def resolve(self, choice: JsonObject, settings: Settings) -> Resolved:
        """Resolve a conversation's stored choices. Names that are not installed are skipped.

        ``choice`` and what this gives are not to be changed.
        """
        if self._resolved is not None and self._resolved[0] is choice and self._resolved[1] is settings:
            return self._resolved[2]
        resolved, wrapped = self._resolve(choice, settings)
        self._resolved = None if wrapped else (choice, settings, resolved)
        return resolved

    def _resolve(self, choice: JsonObject, settings: Settings) -> tuple[Resolved, bool]:
        """Resolve anew; tell whether wraps had a part in it, who are asked each time."""
        chosen = choice.get("extensions", settings.extensions)
        names = list(self._installed) if chosen is None else chosen
        selected = [self._installed[name] for name in dict.fromkeys(names) if name in self._installed]
        tools = {tool.name: tool for extension in selected for tool in extension.tools}
        offered = choice.get("tools")
        sections = {section.key: section for extension in selected for section in extension.sections}
        for extension in selected:
            for wrap in extension.wraps:
                _wrap(tools, wrap.tool, wrap, Tool, extension.name)
                _wrap(sections, wrap.section, wrap, Section, extension.name)
        if choice.get(INSTRUCTIONS):
            sections[INSTRUCTIONS] = Section(INSTRUCTIONS, choice[INSTRUCTIONS])
        resolved = Resolved(
            model=model_name(choice["model"]) if choice.get("model") else None,
            thinking_level=cast("ThinkingLevel", choice.get("thinkingLevel", "off")),
            extensions=[extension.name for extension in selected],
            tools=_offered(tools) if offered is None else [tools[name] for name in offered if name in tools],
            sections=list(sections.values()),
            fallbacks=[model_name(ref) for ref in choice.get("fallbacks", ())],
            deferred=choice.get("deferred", False),
            hooks=[(one.name, one.hooks) for one in self._installed.values() if one in selected],
        )
        return resolved, any(extension.wraps for extension in selected)

    def _taken(self, name: str) -> set[str]:
        others = (extension for extension in self._installed.values() if extension.name != name)
        return self._built_in.union(*(_task_names(extension) for extension in others))


def _offered(tools: Mapping[str, Tool]) -> list[Tool]:
    """What a conversation has that has chosen no tools."""
    return [tool for tool in tools.values() if tool.offered]


def _task_names(extension: Extension | None) -> set[str]:
    return set() if extension is None else {task.name for task in extension.tasks}


def _made(extension: Extension, task: type[Task[Any, Any]]) -> Task[Any, Any]:
    try:
        return task()
    except Exception as error:
        raise ExtensionInvalid(
            f"extension {extension.name!r}: task {task.name!r} cannot be made: {said(error)}"
        ) from error


def _check(extension: Extension, taken: set[str]) -> None:
    where = f"extension {extension.name!r}"
    if not isinstance(extension.name, str):
        raise ExtensionInvalid(f"{where}: a name is text")
    for task in extension.tasks:
        if not (isinstance(task, type) and issubclass(task, Task) and hasattr(task, "name")):
            raise ExtensionInvalid(f"{where}: {task!r} is no task class")
    for tool in extension.tools:
        if not isinstance(tool, Tool):
            raise ExtensionInvalid(f"{where}: {tool!r} is no tool; make a function one with @tool")
        _ = tool.spec  # a signature without a schema is found now, not in the middle of a run
    _unique(where, "tool", [tool.name for tool in extension.tools])
    for section in extension.sections:
        if not isinstance(section, Section) or not isinstance(section.key, str):
            raise ExtensionInvalid(f"{where}: {section!r} is no section")
        if not SECTION_KEY.fullmatch(section.key) or section.key == INSTRUCTIONS:
            raise ExtensionInvalid(f"{where}: section key {section.key!r} is reserved or not like 'a-name'")
    _check_hooks(where, extension.hooks)
    _check_wraps(where, extension.wraps)
    _unique(where, "section", [section.key for section in extension.sections])
    _unique(where, "task", [task.name for task in extension.tasks])
    for name in _task_names(extension) & taken:
        raise ExtensionInvalid(f"{where}: task {name!r} is defined elsewhere")


def _wrap(winners: dict[str, Any], name: str | None, wrap: Wrap, kind: type[Any], extension: str) -> None:
    """Wrap a tool or section that is there. A wrapper that fails, or gives something else, takes its target away."""
    if name is None or name not in winners:
        return
    try:
        winners[name] = _wrapped(wrap.by(winners[name]), name, kind)
    except Exception as error:
        log.exception("wrap_failed", extension=extension, target=name, error=said(error))
        del winners[name]


def _wrapped(given: Any, name: str, kind: type[Any]) -> Any:
    if not isinstance(given, kind) or (given.name if isinstance(given, Tool) else given.key) != name:
        raise TypeError(f"expected a {kind.__name__} called {name!r}, got {given!r}")
    return given


def _check_wraps(where: str, wraps: Sequence[Any]) -> None:
    for wrap in wraps:
        if not isinstance(wrap, Wrap) or (wrap.tool is None) == (wrap.section is None) or not callable(wrap.by):
            raise ExtensionInvalid(
                f"{where}: a wrap names a tool or a section, and a function that makes it anew: {wrap!r}"
            )


def _check_hooks(where: str, hooks: Any) -> None:
    if not isinstance(hooks, Hooks):
        raise ExtensionInvalid(f"{where}: {hooks!r} are no hooks")
    for point in hooks.__struct_fields__:
        hook = getattr(hooks, point)
        if hook is not None and not callable(hook):
            raise ExtensionInvalid(f"{where}: hook {point!r} cannot be called: {hook!r}")


def _unique(where: str, what: str, names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ExtensionInvalid(f"{where}: two {what}s are called {name!r}")
