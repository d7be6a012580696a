"""Documents: mutable JSON next to the transcript, described by definitions and kept as bases and deltas.

A definition says how a document starts, how long it lives, what a fork gets of it and when to store a complete value.
Proved by tests/actors/session/test_documents.py.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from ...chord import Change, Encoder, Prepared, Tracker, copy_json
from ...storage.records import (
    Base,
    ConversationScope,
    Delta,
    DocumentRecord,
    ForkPolicy,
    History,
    JsonObject,
    Scope,
    SessionScope,
    TaskScope,
)
from .arguments import name, whole
from .errors import DocumentMismatch, InvalidValue

T = TypeVar("T")
ScopeKind = Literal["session", "conversation", "task"]
Checkpoint = Callable[[JsonObject, Sequence[Any], int], bool]
"""``(value, ops, deltas_since_base)`` -> store a complete value now?"""


class Doc(Generic[T]):
    """The definition of a document, or with ``family=True`` of a family of documents told apart by a key.

    ``scope`` is who it belongs to and lives with. Conversation documents also choose ``history``: "latest" keeps the
    current value, "rewindable" every point; and ``fork``, what a fork gets: "asOf" (the value at the fork's entry, needs
    rewindable), "current", or "initial" (nothing: it starts anew). ``initial`` gives the first value (a family's takes
    the seed), ``migrate(value, from_version)`` the value in this version's form (pure; called on access).
    ``checkpoint_when(value, ops, deltas_since_base)`` decides when a complete value is stored instead of operations; a
    definition that never says so lets the replay tail grow. ``type`` is an optional msgspec.Struct for typed snapshots.

    Raises InvalidValue for combinations that make no sense.
    """

    def __init__(
        self,
        kind: str,
        *,
        scope: ScopeKind = "conversation",
        version: int = 1,
        initial: Callable[..., JsonObject] = dict,
        history: History = "latest",
        fork: ForkPolicy = "initial",
        migrate: Callable[[JsonObject, int], JsonObject] | None = None,
        checkpoint_when: Checkpoint | None = None,
        family: bool = False,
        type: type[T] | None = None,
    ) -> None:
        if whole("a document's version", version) < 1:
            raise InvalidValue(f"document {kind!r}: version must be at least 1, not {version}")
        if fork == "asOf" and history != "rewindable":
            raise InvalidValue(f'document {kind!r}: fork="asOf" needs history="rewindable"')
        self.kind = name("a document's kind", kind)
        self.scope = scope
        self.version = version
        self.initial = initial
        self.history: History | None = history if scope == "conversation" else None
        self.fork: ForkPolicy | None = fork if scope == "conversation" else None
        self.migrate = migrate
        self.checkpoint_when = checkpoint_when
        self.family = family
        self.type = type

    def __repr__(self) -> str:
        return f"Doc({self.kind!r}, scope={self.scope!r}, version={self.version})"

    def address(self, scope_id: int | None, key: str | None) -> "Address":
        """Make the logical address of one document. Raises InvalidValue when an id or key is missing or too much."""
        if (scope_id is None) != (self.scope == "session"):
            raise InvalidValue(f"document {self.kind!r} belongs to a {self.scope}: give exactly that id")
        if (key is None) == self.family:
            raise InvalidValue(f"document {self.kind!r}: a key is for families, and only for them")
        return Address(self.kind, self.scope, scope_id, None if key is None else name("a document's key", key))

    def view(self, value: JsonObject) -> Any:
        """Give the value as the definition's type, or as it is."""
        return value if self.type is None else msgspec.convert(value, self.type)


class Address(NamedTuple):
    """Where a document is found: at most one incarnation is alive at an address."""

    kind: str
    scope: ScopeKind
    scope_id: int | None
    key: str | None

    def stored_scope(self) -> Scope:
        """Give the scope as records have it."""
        if self.scope_id is None:
            return SessionScope()
        if self.scope == "task":
            return TaskScope(task_id=self.scope_id)
        return ConversationScope(conversation_id=self.scope_id)


def address_of(record: DocumentRecord) -> Address:
    """Give the address of a stored incarnation."""
    match record.scope:
        case ConversationScope(conversation_id=scope_id):
            return Address(record.kind, "conversation", scope_id, record.key)
        case TaskScope(task_id=scope_id):
            return Address(record.kind, "task", scope_id, record.key)
        case _:
            return Address(record.kind, "session", None, record.key)


class Loaded(msgspec.Struct, gc=False):
    """One incarnation in memory. ``stored_version`` is what the newest stored record has, None before the first."""

    record: DocumentRecord
    tracker: Tracker
    version: int
    stored_version: int | None
    deltas_since_base: int
    seq: int = 0
    """The last commit that changed it: it may leave memory only when that is durable."""
    held: bool = False
    """Whether a transaction has it open."""
    encoder: Encoder = msgspec.field(default_factory=Encoder)
    """Knows the paths that deltas since the newest base have named. A new one knows none, and so goes with every stream."""

    def forget_names(self) -> None:
        """Begin to name paths anew: a base follows, or what named some was never stored."""
        self.encoder = Encoder()


class Open(msgspec.Struct, gc=False):
    """A document that a transaction has acquired."""

    doc: Doc[Any]
    loaded: Loaded
    change: Change
    created: bool
    prepared: Prepared | None = None
    stored: Base | Delta | None = None


def fits(doc: Doc[Any], record: DocumentRecord) -> None:
    """Check a definition against a stored incarnation's lifetime semantics. Raises DocumentMismatch."""
    if (doc.history, doc.fork) != (record.history, record.fork):
        raise DocumentMismatch(
            f"document {doc.kind!r} is stored with history={record.history!r}, fork={record.fork!r}; "
            f"the definition says history={doc.history!r}, fork={doc.fork!r}"
        )


def migrated(doc: Doc[Any], value: JsonObject, version: int) -> JsonObject:
    """Give a stored value in the definition's version. Raises DocumentMismatch when there is no way."""
    if version == doc.version:
        return value
    if version > doc.version:
        raise DocumentMismatch(f"document {doc.kind!r} is stored in version {version}, newer than {doc.version}")
    if doc.migrate is None:
        raise DocumentMismatch(f"document {doc.kind!r} has no migration from version {version} to {doc.version}")
    return root(doc, doc.migrate(value, version))


def root(doc: Doc[Any], value: Any) -> JsonObject:
    """Check and detach a value that user code made for a whole document. Raises InvalidValue or InvalidJson."""
    if not isinstance(value, dict):
        raise InvalidValue(f"document {doc.kind!r} must be a JSON object, not {type(value).__name__}")
    copied: JsonObject = copy_json(value)
    return copied


def content(one: Open) -> Base | Delta | None:
    """Decide what a prepared change stores: a base, a delta, or nothing."""
    prepared = one.prepared
    assert prepared is not None
    if one.created or one.loaded.stored_version != one.doc.version:
        return _base(one, prepared.value)
    if not prepared.ops:
        return None
    decide = one.doc.checkpoint_when
    if decide is not None and decide(prepared.value, prepared.ops, one.loaded.deltas_since_base):
        return _base(one, prepared.value)
    return Delta(version=one.doc.version, ops=one.loaded.encoder.encode(list(prepared.ops)))


def _base(one: Open, value: JsonObject) -> Base:
    one.loaded.forget_names()
    return Base(version=one.doc.version, value=value)
