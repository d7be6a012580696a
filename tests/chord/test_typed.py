"""A struct view reads a document in place, typed and read-only."""

import datetime as dt
from typing import Any, Literal

import msgspec
import pytest
from perdure.chord import InvalidJson, view


class Step(msgspec.Struct, rename="camel"):
    step_title: str
    done: bool = False
    inner: "list[Step]" = []


class Job(msgspec.Struct, kw_only=True):
    name: str
    weight: float = 1.0
    state: Literal["new", "old"] = "new"
    due: dt.datetime | None = None
    first: Step | None = None
    steps: list[Step] = []
    by_key: dict[str, Step] = {}
    extra: Any = None
    tags: list = []
    options: dict = {}
    pair: tuple[int, str] = (0, "")

    limit = 3

    def open_steps(self):
        return [step for step in self.steps if not step.done]

    @property
    def title(self):
        return self.name.upper()


DOCUMENT = {
    "name": "tidy",
    "weight": 2,
    "due": "2030-01-02T03:04:05Z",
    "first": {"stepTitle": "begin", "inner": [{"stepTitle": "within"}]},
    "steps": [{"stepTitle": "one", "done": True}, {"stepTitle": "two"}],
    "by_key": {"k": {"stepTitle": "keyed"}},
    "extra": {"rows": [{"x": 1}]},
    "tags": ["a", {"b": 1}],
    "pair": [1, "x"],
}


@pytest.fixture
def job():
    return view(DOCUMENT, Job)


def test_fields_are_read_by_their_stored_names_and_types(job):
    assert (job.name, job.weight, job.state) == ("tidy", 2.0, "new")
    assert type(job.weight) is float
    assert job.due == dt.datetime(2030, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    assert job.pair == (1, "x")


def test_structs_lists_and_dicts_within_are_views_too(job):
    assert job.first.step_title == "begin"
    assert job.first.inner[0].step_title == "within"
    assert [step.step_title for step in job.steps] == ["one", "two"]
    assert [step.step_title for step in job.steps[-1:]] == ["two"]
    assert job.by_key["k"].step_title == "keyed"
    assert (len(job.steps), list(job.by_key)) == (2, ["k"])
    assert job.extra["rows"][0]["x"] == 1
    assert list(job.tags) == ["a", {"b": 1}]


def test_a_view_passes_for_an_instance_and_has_its_methods(job):
    assert isinstance(job, Job)
    assert job.title == "TIDY"
    assert job.limit == 3
    assert [step.step_title for step in job.open_steps()] == ["two"]
    match job:
        case Job(name="tidy", first=Step(step_title=title)):
            assert title == "begin"
        case _:
            pytest.fail("the view does not match as a struct does")


def test_what_the_document_lacks_is_the_default(job):
    bare = view({"name": "bare"}, Job)

    assert (bare.weight, bare.due, bare.first, list(bare.steps), dict(bare.options)) == (1.0, None, None, [], {})
    with pytest.raises(InvalidJson, match="expected 'name' in a Job, got nothing"):
        _ = view({}, Job).name


def test_a_view_sees_no_copy(job):
    text = "a long text " * 100
    value = {"name": text, "extra": {"text": text}}

    assert view(value, Job).name is text
    assert view(value, Job).extra["text"] is text


def test_a_view_is_read_only(job):
    with pytest.raises(AttributeError, match="read-only"):
        job.name = "other"
    with pytest.raises(TypeError):
        job.steps[0] = None
    with pytest.raises(TypeError):
        job.by_key["k"] = None


def test_an_unknown_attribute_is_an_attribute_error(job):
    with pytest.raises(AttributeError):
        _ = job.unknown


@pytest.mark.parametrize(
    ("field", "value"),
    [("weight", "heavy"), ("state", "other"), ("first", [1]), ("steps", {}), ("by_key", []), ("due", "soon")],
)
def test_what_does_not_fit_its_type_is_refused_when_it_is_read(field, value):
    job = view({"name": "x", field: value}, Job)

    assert job.name == "x"
    with pytest.raises(InvalidJson):
        getattr(job, field)


def test_only_an_object_can_be_viewed():
    with pytest.raises(InvalidJson, match="expected an object to view as Job, got list"):
        view([], Job)


def test_views_compare_by_content_with_each_other_and_with_structs(job):
    assert job == view(dict(DOCUMENT), Job)
    assert job != view({"name": "tidy"}, Job)
    assert job.first == msgspec.convert(DOCUMENT["first"], Step)
    assert job.first != Step(step_title="begin")
    assert job.steps == [msgspec.convert(step, Step) for step in DOCUMENT["steps"]]
    assert job != 5


def test_a_view_shows_what_it_sees():
    assert repr(view({"stepTitle": "x", "inner": [{"stepTitle": "y"}]}, Step)) == (
        "Step(step_title='x', done=False, inner=[Step(step_title='y', done=False, inner=[])])"
    )
    assert repr(view({"name": "x", "extra": {"a": [1]}}, Job).extra) == "{'a': [1]}"


def test_msgspec_makes_an_independent_struct_of_the_same_value():
    assert msgspec.convert(DOCUMENT, Job).first.inner[0].step_title == "within"
