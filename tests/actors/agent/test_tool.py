import asyncio
import dataclasses
import math
import threading
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import perdure
import pydantic
import pytest
from perdure.actors.agent.tool import MAX_EXPLAINED
from pydantic import Field
from typing_extensions import TypedDict


def schema(function, **options):
    return perdure.tool(**options)(function).spec.parameters


def properties(function):
    return schema(function)["properties"]


def run(tool, context=None, **arguments):
    return asyncio.run(tool.run(context, arguments))


# --- the declaration


def test_name_and_description_come_from_the_function():
    @perdure.tool
    def grep(pattern: str) -> str:
        """Search files.

        Gives the matching lines.

        Args:
            pattern: A regular expression.
        """

    assert (grep.spec.name, grep.spec.description) == ("grep", "Search files.\n\nGives the matching lines.")
    assert grep.spec.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["pattern"],
        "properties": {"pattern": {"type": "string", "title": "Pattern", "description": "A regular expression."}},
    }


def test_name_and_description_can_be_given():
    def f() -> None: ...

    tool = perdure.tool(name="other", description="Does it.")(f)
    assert (tool.spec.name, tool.spec.description) == ("other", "Does it.")


def test_a_parameter_with_a_default_is_optional_and_tells_it():
    def f(a: int, b: str = "x", c: float | None = None, d: list[int] = [1], e: Path = Path("src")):  # noqa: B006
        """Do."""

    declared = schema(f)
    assert declared["required"] == ["a"]
    defaults = {name: one["default"] for name, one in declared["properties"].items() if "default" in one}
    assert defaults == {"b": "x", "c": None, "d": [1], "e": "src"}


def test_a_default_without_a_json_form_is_not_told():
    marker = object()

    def f(a: Any = marker, b: float = math.inf):
        """Do."""

    assert all("default" not in one for one in properties(f).values())


def test_types_become_schemas():
    class Point(TypedDict):
        x: int
        y: int

    @dataclasses.dataclass
    class Box:
        corner: int
        label: str = "b"

    class Line(pydantic.BaseModel):
        points: list[int]

    def f(
        mode: Literal["fast", "slow"],
        maybe: Optional[int],  # noqa: UP045
        names: list[str],
        table: dict[str, int],
        nested: list[dict[str, list[float]]],
        point: Point,
        box: Box,
        line: Line,
        limited: Annotated[int, Field(ge=1, le=9, description="from the annotation")],
    ):
        """Do."""

    f.__annotations__ |= {"point": Point, "box": Box, "line": Line}
    declared = schema(f)
    shown = declared["properties"]
    assert shown["mode"]["enum"] == ["fast", "slow"]
    assert shown["maybe"]["anyOf"] == [{"type": "integer"}, {"type": "null"}]
    assert shown["names"]["items"] == {"type": "string"}
    assert shown["table"]["additionalProperties"] == {"type": "integer"}
    assert shown["nested"]["items"]["additionalProperties"] == {"type": "array", "items": {"type": "number"}}
    assert shown["limited"]["minimum"] == 1
    assert shown["limited"]["description"] == "from the annotation"
    assert set(declared["$defs"]) == {"Point", "Box", "Line"}
    assert declared["required"] == list(shown)


def test_a_description_in_the_annotation_yields_to_the_docstring():
    def f(a: Annotated[int, Field(description="annotation")]):
        """Do.

        Args:
            a: docstring
        """

    assert properties(f)["a"]["description"] == "docstring"


def test_a_parameter_without_a_type_takes_anything():
    def f(a, b=1):
        """Do."""

    assert perdure.tool(f).validate({"a": [None], "b": {"c": 1}}) == {"a": [None], "b": {"c": 1}}


def test_the_context_is_not_shown():
    @perdure.tool
    def f(ctx: perdure.ToolContext, a: int):
        """Do."""

    assert list(f.spec.parameters["properties"]) == ["a"]


def test_without_parameters_the_schema_is_an_empty_object():
    @perdure.tool
    def f():
        """Do."""

    assert f.spec.parameters["properties"] == {}
    assert f.validate({}) == {}


def test_the_author_can_still_call_the_function():
    @perdure.tool
    def twice(x: int) -> int:
        """Double."""
        return 2 * x

    assert asyncio.run(twice(4)) == 8


# --- what cannot be a tool


def no_docstring(a: int): ...


def many(*args: int):
    """Do."""


def any_keyword(**options: int):
    """Do."""


def by_position(a: int, /):
    """Do."""


class Caller:
    """Do."""

    def __call__(self, a: int):
        return a


@pytest.mark.parametrize(
    "function", [no_docstring, many, any_keyword, by_position, lambda a: a, Caller(), print], ids=lambda f: str(f)[:20]
)
def test_what_cannot_be_a_tool_is_refused_when_it_is_made(function):
    with pytest.raises(perdure.ToolDefinitionError):
        perdure.tool(function)


@pytest.mark.parametrize("name", ["a b", "a.b", "\u00e4", "x" * 65, "<lambda>", "a\n"])
def test_a_name_that_a_provider_would_refuse_is_refused(name):
    with pytest.raises(perdure.ToolDefinitionError):
        perdure.Tool(no_docstring, name=name, description="Does.")


def test_a_method_is_a_tool():
    class Counter:
        def __init__(self):
            self.n = 0

        def add(self, n: int) -> int:
            """Add."""
            self.n += n
            return self.n

    assert run(perdure.Tool(Counter().add), n="3") == 3


class Unheard:
    pass


def with_a_type_without_schema(a: Unheard):
    """Do."""


def with_an_unknown_type(a: "Nowhere"):  # noqa: F821
    """Do."""


@pytest.mark.parametrize("function", [with_a_type_without_schema, with_an_unknown_type])
def test_a_signature_without_a_schema_is_found_when_the_tool_is_installed(function):
    tool = perdure.tool(function)
    with pytest.raises(perdure.ToolDefinitionError, match=function.__name__):
        _ = tool.spec


# --- validation


@perdure.tool
def checked(count: int, mode: Literal["a", "b"] = "a", names: list[str] | None = None, flag: bool = False):
    """Check."""


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ({"count": 1}, {"count": 1}),
        ({"count": "42"}, {"count": 42}),
        ({"count": 42.0}, {"count": 42}),
        ({"count": 1, "flag": "true"}, {"count": 1, "flag": True}),
        ({"count": 1, "names": ["x"]}, {"count": 1, "names": ["x"]}),
        ({"count": 1, "mode": None, "names": None, "flag": None}, {"count": 1}),
    ],
)
def test_arguments_are_coerced_and_null_for_an_optional_one_is_left_out(given, taken):
    """TO-09, B110."""
    assert checked.validate(given) == taken


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "count"),
        ({"count": "many"}, "count"),
        ({"count": None}, "count"),
        ({"count": 1.5}, "count"),
        ({"count": 1, "mode": "c"}, "mode"),
        ({"count": 1, "names": [1]}, "names"),
        ({"count": 1, "colour": "red"}, "colour"),
        ({"count": [1]}, "count"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_in_words_for_the_model(given, said):
    with pytest.raises(perdure.InvalidArguments) as refused:
        checked.validate(given)
    lines = str(refused.value).splitlines()
    assert lines[0] == "Validation failed for tool checked:"
    assert any(said in line for line in lines[1:-1])
    assert lines[-1].startswith("Received: {")


def test_null_is_an_argument_where_none_is_a_value_and_nothing_is_optional():
    @perdure.tool
    def f(a: int | None):
        """Do."""

    assert f.validate({"a": None}) == {"a": None}


def test_what_the_model_is_told_of_many_faults_is_bounded():
    @perdure.tool
    def f(numbers: list[int]):
        """Do."""

    with pytest.raises(perdure.InvalidArguments) as refused:
        f.validate({"numbers": ["x"] * 10_000})
    text = str(refused.value)
    assert f"and {10_000 - MAX_EXPLAINED} more" in text
    assert len(text) < 10_000


def test_a_validator_of_the_authors_own_may_raise_what_it_likes():
    def odd(value):
        raise KeyError("no such thing")

    @perdure.tool
    def f(a: Annotated[int, pydantic.BeforeValidator(odd)]):
        """Do."""

    with pytest.raises(perdure.InvalidArguments, match="no such thing"):
        f.validate({"a": 1})


def test_nested_arguments_reach_the_function_as_its_types():
    @dataclasses.dataclass
    class Point:
        x: int

    def where(points: list[Point]):
        """Do."""
        return [type(point).__name__ for point in points]

    where.__annotations__["points"] = list[Point]
    assert run(perdure.tool(where), points=[{"x": "1"}]) == ["Point"]


# --- execution


def test_a_sync_function_runs_in_a_thread_and_an_async_one_on_the_loop():
    @perdure.tool
    def sync() -> int:
        """Do."""
        return threading.get_ident()

    @perdure.tool
    async def on_loop() -> int:
        """Do."""
        return threading.get_ident()

    assert run(sync) != threading.get_ident()
    assert run(on_loop) == threading.get_ident()


def test_a_sync_function_that_gives_a_coroutine_is_awaited():
    async def later():
        return "late"

    @perdure.tool
    def wrapped() -> str:
        """Do."""
        return later()

    assert run(wrapped) == "late"


@pytest.mark.timeout(5)
def test_stop_iteration_in_a_thread_is_an_error_and_not_an_endless_wait():
    @perdure.tool
    def first() -> int:
        """Do."""
        return next(iter([]))

    with pytest.raises(RuntimeError, match="StopIteration"):
        run(first)


def test_the_context_is_given_first():
    @perdure.tool
    def f(ctx: perdure.ToolContext, a: int):
        """Do."""
        return ctx, a

    assert run(f, "the context", a=1) == ("the context", 1)


def test_arguments_are_checked_again_at_execution():
    """TO-09, B118."""
    with pytest.raises(perdure.InvalidArguments):
        run(checked, count="many")
