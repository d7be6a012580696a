"""Any script of edits on any document: the operations lead every kind of replica to what the edits made.

A script runs twice, on a draft and on plain dicts and lists that have the same manners, so the plain ones say what the
document must become.
"""

import copy
import json

from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.chord import Decoder, Draft, DraftRevoked, Encoder, ListDraft, Tracker, apply, apply_immutable

KEYS = st.sampled_from(["a", "b", "text", "0", "", "é", "😀", "constructor", "__proto__"])
TEXT = st.text(st.sampled_from("ab é日😀\n"), max_size=30)
ATOMS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from([2**60, 0.5, 1.0, 1e300]) | TEXT
JSON = st.recursive(
    ATOMS, lambda part: st.lists(part, max_size=4) | st.dictionaries(KEYS, part, max_size=4), max_leaves=12
)
DOCUMENTS = st.dictionaries(KEYS, JSON, max_size=5) | st.lists(JSON, max_size=5)
INDEX = st.integers(0, 7)
STEPS = st.tuples(st.lists(INDEX, max_size=3), st.integers(0, 19), INDEX, INDEX, JSON)
SCRIPTS = st.lists(st.lists(STEPS, max_size=8), min_size=1, max_size=4)  # one list of steps for each change

some = settings(deadline=None, max_examples=100)


def exact(value):
    """JSON text with sorted keys: equal exactly when values are, 1 and 1.0 and true told apart."""
    return json.dumps(value, sort_keys=True)


# The script: each step is given a container, plain or a draft, and two numbers and a value to do something with.


def is_object(place):
    return isinstance(place, dict | Draft)


def is_array(place):
    return isinstance(place, list | ListDraft)


def walk(place, route):
    """Follow a route of numbers to some container below `place`."""
    for number in route:
        keys = sorted(place) if is_object(place) else range(len(place))
        inner = [key for key in keys if is_object(place[key]) or is_array(place[key])]
        if not inner:
            break
        place = place[inner[number % len(inner)]]
    return place


def play(root, steps, held):
    """Run the steps; every fifth works on a container that was visited before, wherever it is now."""
    for count, (route, verb, one, other, value) in enumerate(steps):
        place = held[one % len(held)] if held and count % 5 == 4 else walk(root, route)
        held.append(place)
        actions = OBJECT_ACTIONS if is_object(place) else ARRAY_ACTIONS
        actions[verb % len(actions)](place, one, other, copy.deepcopy(value))


def some_key(place, number):
    keys = [*sorted(place), "new"]
    return keys[number % len(keys)]


def grow_text(place, key, chunk, *, explicitly):
    if isinstance(place[key], str) and isinstance(chunk, str):
        if explicitly and isinstance(place, Draft | ListDraft):
            place.append_text(key, chunk)
        else:
            place[key] += chunk


def grow_text_at_key(place, one, other, value):
    key = some_key(place, one)
    if key in place:
        grow_text(place, key, value, explicitly=other % 2)


def grow_text_at_index(place, one, other, value):
    if len(place):
        grow_text(place, one % len(place), value, explicitly=other % 2)


def slide_text(place, one, other, value):
    key = some_key(place, one)
    if isinstance(place.get(key), str):
        place[key] = place[key][other:] + str(value)


def set_element(place, one, _other, value):
    if len(place):
        place[one % len(place)] = value


def sort(place, one, other, _value):
    def plain_text(element):
        return exact(element.to_json() if isinstance(element, Draft | ListDraft) else element)[one % 3 :]

    place.sort(key=plain_text, reverse=bool(other % 2))


def remove(place, one, _other, _value):
    if len(place):
        place.pop(one % len(place))


def extend_in_place(place, _one, _other, value):
    place += [value]


def merge_in_place(place, _one, _other, value):
    place |= {"merged": value}


def twins(one, other, value):
    """The value twice, since plain containers would otherwise stand at two places as one."""
    return {one: value, other: copy.deepcopy(value)}


OBJECT_ACTIONS = [
    lambda place, one, _other, value: place.__setitem__(some_key(place, one), value),
    lambda place, one, _other, _value: place.pop(some_key(place, one), None),
    lambda place, one, other, value: place.update(twins(some_key(place, one), some_key(place, other), value)),
    lambda place, one, _other, value: place.setdefault(some_key(place, one), value),
    merge_in_place,
    grow_text_at_key,
    slide_text,
    grow_text_at_key,
    lambda place, one, _other, _value: place.clear() if one == 7 else None,
]

ARRAY_ACTIONS = [
    set_element,
    lambda place, _one, _other, value: place.append(value),
    lambda place, one, _other, value: place.insert(one, value),
    remove,
    lambda place, one, other, value: place.__setitem__(slice(one, other), [*twins(0, 1, value).values()]),
    lambda place, one, other, _value: place.__delitem__(slice(one, None, other + 1)),
    extend_in_place,
    lambda place, _one, _other, _value: place.reverse(),
    sort,
    grow_text_at_index,
    lambda place, one, _other, value: place.__setitem__(slice(one, one), [0, value, 0]),
]


def changes(document, script):
    """Run a script, change by change; yield the tracker, what was prepared, and the plain value it must give."""
    tracker, plain = Tracker(copy.deepcopy(document)), copy.deepcopy(document)
    for steps in script:
        change = tracker.begin_change()
        play(change.state, steps, [])
        play(plain, steps, [])
        prepared = change.prepare()
        yield tracker, prepared, plain
        tracker.adopt(prepared)


# Properties


@given(DOCUMENTS, SCRIPTS)
@some
def test_operations_lead_to_the_edited_value_by_every_way(document, script):
    encoder, decoder = Encoder(), Decoder()
    in_place, across = copy.deepcopy(document), copy.deepcopy(document)

    for tracker, prepared, plain in changes(document, script):
        base = exact(tracker.value)
        in_place = apply(in_place, copy.deepcopy(prepared.ops))
        across = apply_immutable(across, decoder.decode(json.loads(json.dumps(encoder.encode(prepared.ops)))))
        for value in (prepared.value, in_place, across, apply_immutable(tracker.value, prepared.ops)):
            assert exact(value) == exact(plain)
        assert exact(tracker.value) == base


@given(DOCUMENTS, SCRIPTS)
@some
def test_consuming_adoption_leads_to_the_same_value(document, script):
    consuming = Tracker(copy.deepcopy(document))

    for _tracker, _prepared, plain in changes(document, [steps[:2] for steps in script]):
        change = consuming.begin_change()
        play(change.state, script[consuming.revision][:2], [])
        consuming.adopt(change.prepare(), consume=True)
        assert exact(consuming._value) == exact(plain)


@given(DOCUMENTS, SCRIPTS)
@some
def test_unchanged_parts_are_shared_and_operations_share_nothing_with_the_base(document, script):
    for tracker, prepared, _plain in changes(document, script):
        touched = [op[1] if op[0] != "r" else [] for op in prepared.ops]
        assert_shared(tracker.value, prepared.value, [], touched)
        base = {id(part) for part in containers(tracker.value)}
        assert not any(id(part) in base for op in prepared.ops for part in containers(op))


def assert_shared(old, new, path, touched):
    """What lies on no operation's path is the same object, not only equal."""
    if not any(op == path[: len(op)] or path == op[: len(path)] for op in touched):
        assert new is old or not isinstance(old, dict | list)
    elif isinstance(old, dict) and isinstance(new, dict) and path not in touched:
        for key in old.keys() & new.keys():
            assert_shared(old[key], new[key], [*path, key], touched)


def containers(value):
    if isinstance(value, dict | list):
        yield value
        for item in value.values() if isinstance(value, dict) else value:
            yield from containers(item)


@given(DOCUMENTS, st.lists(STEPS, max_size=6))
@some
def test_all_drafts_of_a_change_end_with_it(document, steps):
    change = Tracker(document).begin_change()
    held = [change.state]
    play(change.state, steps, held)
    change.prepare()

    for draft in held:
        for use in (len, list, repr_of_first, lambda draft: draft.clear(), lambda draft: draft.to_json()):
            try:
                use(draft)
            except DraftRevoked:
                continue
            raise AssertionError(f"{use} went through")


def repr_of_first(draft):
    return draft[0 if isinstance(draft, ListDraft) else "a"]


@given(DOCUMENTS, st.lists(STEPS, max_size=8))
@some
def test_a_draft_reads_as_the_plain_value_at_every_step(document, steps):
    draft, plain = Tracker(copy.deepcopy(document)).begin_change().state, copy.deepcopy(document)

    for step in steps:
        play(draft, [step], [])
        play(plain, [step], [])
        assert exact(draft.to_json()) == exact(plain)
        assert len(draft) == len(plain)
        assert draft == plain
        if is_object(draft):
            assert sorted(draft) == sorted(plain)
        else:
            assert [exact(read(element)) for element in draft] == [exact(element) for element in plain]


def read(element):
    return element.to_json() if isinstance(element, Draft | ListDraft) else element
