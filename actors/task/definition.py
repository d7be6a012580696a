"""How a task is written: a class with a name, a version, a struct for each phase and a handler for each.

    class Payment(Task[Card, Receipt], name="shop.payment", version=1):
        class Prepare(Phase): ...
        class Charge(Phase):
            key: str
        async def prepare(self, run, state): ...
        async def charge(self, run, state): ...

The stored checkpoint is a phase; a restart runs the current code from it. Definitions are stateless: one instance serves
every task of its kind. Proved by tests/actors/task/test_definition.py.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_args, get_origin

import msgspec

from ...chord import valid_text
from ...storage.records import Json, JsonObject, TaskRecord
from ...supervisors.restart import Restart
from ..session.arguments import plain
from .errors import DefinitionError

if TYPE_CHECKING:
    from .run import Run

I = TypeVar("I")  # noqa: E741
R = TypeVar("R")
Handler = Callable[[Any, Any], Awaitable[None]]


def _phase_name(qualname: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", qualname.rpartition(".")[2]).lower()


class Phase(msgspec.Struct, tag_field="phase", tag=_phase_name, rename="camel", omit_defaults=True):
    """Base of a task's phases: what is stored as its checkpoint. ``ChargeCard`` is handled by ``charge_card``."""


class Task(Generic[I, R]):
    """Base of task definitions; ``I`` is the type of the input, ``R`` of the result (what msgspec can convert).

    The first phase in the class is where a task starts; override ``initial`` when it needs fields. ``abort`` runs when
    the task has an abort mark and the work below it has ended; it must decide the outcome.
    A phase that raises faults the task. With ``restart=Restart(max=3, within=60.0)`` it runs again instead, from the
    stored checkpoint and after a backoff that is stored, too; one crash more faults the task.
    Raises DefinitionError when the class is incomplete.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    phases: ClassVar[dict[str, type[Phase]]]
    restart: ClassVar[Restart | None] = None
    input_type: ClassVar[Any]
    result_type: ClassVar[Any]

    def __init_subclass__(
        cls, *, name: str | None = None, version: int = 1, restart: Restart | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if name is None:
            raise DefinitionError(
                f'{cls.__name__}: give the task a stable name: class {cls.__name__}(..., name="app.x")'
            )
        if not isinstance(name, str) or not name or valid_text(name) != name or type(version) is not int or version < 1:
            raise DefinitionError(
                f"{cls.__name__}: expected a text as name and a version from 1, got: {name!r}, {version!r}"
            )
        if restart is not None and not isinstance(restart, Restart):
            raise DefinitionError(f"{cls.__name__}: expected restart to be a Restart(...), got: {restart!r}")
        cls.name, cls.version, cls.restart = name, version, restart
        phases = [phase for phase in vars(cls).values() if isinstance(phase, type) and issubclass(phase, Phase)]
        cls.phases = {_tag(phase): phase for phase in phases}
        cls.input_type, cls.result_type = _parameters(cls)
        _check_phases(cls, phases)

    def initial(self, input: I) -> Phase:
        """Give the phase that a new task starts in."""
        return next(iter(self.phases.values()))()

    def first_checkpoint(self, input: I) -> JsonObject:
        """Give what a new task stores before its first run. Raises DefinitionError when ``initial`` gives no phase."""
        phase = self.initial(input)
        if type(phase) not in self.phases.values():
            raise DefinitionError(f"{self.name}: initial() must give one of the task's phases, got: {phase!r}")
        checkpoint: JsonObject = encode(phase)
        return checkpoint

    async def abort(self, run: "Run[I]", state: Phase) -> None:
        """Decide the outcome of an aborted task; the default ends it as aborted."""
        async with run.commit() as tx:
            tx.abort()

    @staticmethod
    def migrate(input: Json, checkpoint: JsonObject, from_version: int) -> tuple[Any, Phase]:
        """Turn stored input and checkpoint of an older version into this version's; pure.

        Raising, as the default does, blocks the task until another definition is installed.
        """
        raise DefinitionError(f"there is no migration from version {from_version}")

    @staticmethod
    async def undecided(tx: Any, record: TaskRecord) -> None:
        """Clean up inside the commit that ends a task whose outcome none of its code decided: faulted, orphaned.

        Runs on the line, so it must not wait for anything outside. The task ends even if this raises.
        """

    @staticmethod
    def describe_span(record: TaskRecord) -> tuple[str, dict[str, Any]]:
        """Give the name and the attributes of an ended task's span, for tracing; pure."""
        return f"task {record.kind}", {}

    def handler(self, state: Phase) -> Handler:
        """Give the method that handles a phase."""
        handler: Handler = getattr(self, _tag(type(state)))
        return handler

    def decode_state(self, checkpoint: JsonObject) -> Phase:
        """Turn a stored checkpoint into its phase. Raises msgspec.ValidationError."""
        name = checkpoint.get("phase")
        phase = self.phases.get(name) if isinstance(name, str) else None
        if phase is None:  # looked up here: msgspec would learn a union of all phases anew each time
            raise msgspec.ValidationError(f"{self.name} has no phase {name!r}")
        return msgspec.convert(checkpoint, phase)


def _check_phases(cls: type[Task[Any, Any]], phases: Sequence[type[Phase]]) -> None:
    if not phases:
        raise DefinitionError(f"{cls.name}: a task needs at least one phase (a class inside it that extends Phase)")
    for phase in map(_tag, phases):
        if [_tag(other) for other in phases].count(phase) > 1:
            raise DefinitionError(f"{cls.name}: two phases are stored as {phase!r}")
        if hasattr(Task, phase):
            raise DefinitionError(f"{cls.name}: phase {phase!r} needs another name: every task has a {phase!r} already")
        if not callable(getattr(cls, phase, None)):
            raise DefinitionError(
                f"{cls.name}: phase {phase!r} has no handler; add `async def {phase}(self, run, state)`"
            )


def _tag(phase: type[Phase]) -> str:
    return str(phase.__struct_config__.tag)


def _parameters(cls: type[Task[Any, Any]]) -> tuple[Any, Any]:
    for base in getattr(cls, "__orig_bases__", ()):
        if isinstance(get_origin(base), type) and issubclass(get_origin(base), Task):
            given = get_args(base)
            if len(given) == 2 and not any(isinstance(one, TypeVar) for one in given):
                return given[0], given[1]
    raise DefinitionError(
        f"{cls.__name__}: say the types of input and result: class {cls.__name__}(Task[Input, Result])"
    )


encode = plain
"""Turn a value into strict JSON that nobody else holds. Raises InvalidJson for what has no JSON form."""


def decode(value: Json, kind: Any) -> Any:
    """Turn stored JSON into a declared type. Raises msgspec.ValidationError."""
    return None if kind in (None, type(None)) else msgspec.convert(value, kind)


class Definitions:
    """The task definitions that this process has, by name. Replacing one is picked up between phases."""

    def __init__(self) -> None:
        self._by_name: dict[str, Task[Any, Any]] = {}
        self._listeners: dict[object, Callable[[], None]] = {}

    def install(self, task: type[Task[Any, Any]]) -> None:
        """Add a definition, or replace the one of its name; tasks that were blocked for want of it go on."""
        self.replace((), (task(),))

    def uninstall(self, name: str) -> None:
        """Remove a definition; its tasks stay as they are, blocked, until one of that name comes back."""
        self.replace((name,), ())

    def replace(self, removed: Iterable[str], added: Iterable[Task[Any, Any]]) -> None:
        """Remove and add definitions, which are made already, at once."""
        for name in removed:
            self._by_name.pop(name, None)
        self._by_name.update((task.name, task) for task in added)
        self._changed()

    def get(self, name: str) -> Task[Any, Any] | None:
        """Look a definition up."""
        return self._by_name.get(name)

    def subscribe(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after every change. Returns a disposer."""
        token = object()
        self._listeners[token] = listener

        def dispose() -> None:
            self._listeners.pop(token, None)

        return dispose

    def _changed(self) -> None:
        for listener in list(self._listeners.values()):
            listener()
