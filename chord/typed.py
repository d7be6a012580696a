"""A JSON value seen as a `msgspec.Struct`, without a copy of it.

    class Job(msgspec.Struct):
        name: str
        steps: list[Step] = []

    job = view(tracker.value, Job)      job.steps[0].title      isinstance(job, Job)

Reading an attribute reads the value and checks what is read: structs, lists and dicts become views in turn, anything
else is what msgspec makes of it. Methods and properties of the struct work. Views are read-only and cost what they
are asked for; for an independent object use `msgspec.convert(value, Job)`. Proved by tests/chord/test_typed.py.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from inspect import getattr_static
from types import NoneType, UnionType
from typing import Any, NoReturn, TypeAlias, TypeVar, Union, get_args, get_origin, overload

import msgspec

from .errors import InvalidJson
from .values import ABSENT, Json

StructT = TypeVar("StructT", bound=msgspec.Struct)

Reader: TypeAlias = Callable[[Json], Any]


def view(value: Json, kind: type[StructT]) -> StructT:
    """A read-only view of `value` as `kind`. Nothing is checked before it is read.

    Raises:
        InvalidJson: `value` is no object; later, on reading: what stands there is not of the field's type.
    """
    if type(value) is not dict:
        raise InvalidJson(f"expected an object to view as {kind.__name__}, got {type(value).__name__}")
    return _StructView(value, kind)  # type: ignore[return-value]


class _StructView:
    """Reads attributes from an object of the document. Passes for an instance of its struct."""

    __slots__ = ("_kind", "_object")

    def __init__(self, value: dict[str, Json], kind: type[msgspec.Struct]) -> None:
        object.__setattr__(self, "_object", value)
        object.__setattr__(self, "_kind", kind)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # what isinstance asks
        return self._kind

    def __getattr__(self, name: str) -> Any:
        field = _fields(self._kind).get(name)
        if field is None:
            return _bound(getattr_static(self._kind, name), self, self._kind)
        raw = self._object.get(field.key, ABSENT)
        return field.default(self._kind) if raw is ABSENT else field.read(raw)

    def __setattr__(self, name: str, _value: object) -> NoReturn:
        raise AttributeError(f"{name!r} belongs to a read-only view; change the document in a draft")

    def __eq__(self, other: object) -> bool:
        if type(other) is _StructView:
            return self._kind is other._kind and bool(self._object == other._object)
        return isinstance(other, self._kind) and all(
            getattr(self, name) == getattr(other, name) for name in _fields(self._kind)
        )

    __hash__ = None  # type: ignore[assignment]  # as structs that are not frozen

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in _fields(self._kind))
        return f"{self._kind.__name__}({fields})"


def _bound(attribute: Any, instance: object, kind: type) -> Any:
    """A method or property of the struct, as it would be found on an instance."""
    return attribute.__get__(instance, kind) if hasattr(attribute, "__get__") else attribute


class _Field:
    """How one field of a struct is read."""

    __slots__ = ("_info", "key", "read")

    def __init__(self, info: msgspec.structs.FieldInfo) -> None:
        self._info = info
        self.key = info.encode_name
        self.read = _reader(info.type)

    def default(self, kind: type) -> Any:
        """What the struct has where the value has nothing."""
        if self._info.default is not msgspec.NODEFAULT:
            return self._info.default
        if self._info.default_factory is not msgspec.NODEFAULT:
            return self._info.default_factory()
        raise InvalidJson(f"expected {self.key!r} in a {kind.__name__}, got nothing")


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, _Field]:
    return {info.name: _Field(info) for info in msgspec.structs.fields(kind)}


def _reader(annotation: Any) -> Reader:
    """The function that makes of raw JSON what a field of this type holds."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType) and len(parts) == 2 and NoneType in parts:
        inner = _reader(parts[0] if parts[1] is NoneType else parts[1])
        return lambda raw: None if raw is None else inner(raw)
    if isinstance(annotation, type) and issubclass(annotation, msgspec.Struct):
        return lambda raw: view(raw, annotation)
    if origin is list or annotation is list:
        return _container_reader(list, _ListView, parts[0] if parts else Any)
    if origin is dict or annotation is dict:
        return _container_reader(dict, _DictView, parts[1] if parts else Any)
    return _any if annotation is Any else lambda raw: _convert(raw, annotation)


def _container_reader(kind: type, view_kind: Callable[[Json, Reader], Any], item: Any) -> Reader:
    read = _any if item is Any else _late(item)

    def reader(raw: Json) -> Any:
        if type(raw) is not kind:
            raise InvalidJson(f"expected a {kind.__name__}, got {type(raw).__name__}")
        return view_kind(raw, read)

    return reader


def _late(annotation: Any) -> Reader:
    """A reader made when it is first needed, so that a struct may hold lists of itself."""

    def reader(raw: Json) -> Any:
        return _cached_reader(annotation)(raw)

    return reader


_cached_reader = cache(_reader)


def _convert(raw: Json, annotation: Any) -> Any:
    try:
        return msgspec.convert(raw, annotation)
    except msgspec.ValidationError as error:
        raise InvalidJson(str(error)) from None


def _any(raw: Json) -> Any:
    if type(raw) is dict:
        return _DictView(raw, _any)
    return _ListView(raw, _any) if type(raw) is list else raw


class _ListView(Sequence[Any]):
    """A read-only array of the document."""

    __slots__ = ("_array", "_read")

    def __init__(self, array: list[Json], read: Reader) -> None:
        self._array = array
        self._read = read

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        if isinstance(index, slice):
            return [self._read(raw) for raw in self._array[index]]
        return self._read(self._array[index])

    def __len__(self) -> int:
        return len(self._array)

    def __iter__(self) -> Iterator[Any]:
        return map(self._read, self._array)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _ListView | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # equal by content, as a list

    def __repr__(self) -> str:
        return repr(list(self))


class _DictView(Mapping[str, Any]):
    """A read-only object of the document whose keys are data."""

    __slots__ = ("_object", "_read")

    def __init__(self, value: dict[str, Json], read: Reader) -> None:
        self._object = value
        self._read = read

    def __getitem__(self, key: str) -> Any:
        return self._read(self._object[key])

    def __len__(self) -> int:
        return len(self._object)

    def __iter__(self) -> Iterator[str]:
        return iter(self._object)

    def __repr__(self) -> str:
        return repr(dict(self))
