"""Who is here: counted by what they look at, remembered only as long as somebody is."""

from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.gateway.presence import Presence
from perdure.chord import apply_immutable

from .support import go


def test_a_person_is_there_as_long_as_they_look_at_anything():
    async def main():
        presence = Presence()
        presence.enter("s", "p1", "Ada", None)
        watch = presence.watch("s")
        presence.enter("s", "p1", "Ada", 7)
        presence.enter("s", "p1", "Ada", 7)
        presence.enter("s", "p2", "Bob", 1)
        presence.leave("s", "p1", 7)
        assert presence.say("s", "p2", "typing")
        assert not presence.say("s", "p3", "typing")
        seen = [value async for value, _ in taken(watch, 4)][-1]
        assert seen == {
            "people": {
                "p1": {"name": "Ada", "conversations": [7]},
                "p2": {"name": "Bob", "conversations": [1], "status": "typing"},
            }
        }
        presence.say("s", "p2", None)
        presence.leave("s", "p2", 1)
        presence.leave("s", "p1", 7)
        presence.leave("s", "p1", None)
        assert len(presence) == 0
        assert watch.ended.reason == "closed"

    go(main)


async def taken(watch, count):
    for _ in range(count):
        if watch._frames:
            yield await anext(watch)


steps = st.lists(
    st.tuples(st.sampled_from("st"), st.sampled_from(["p1", "p2"]), st.sampled_from([None, 1, 2])), max_size=30
)


@given(steps)
def test_whoever_comes_and_goes_the_operations_say_the_same_as_the_value(steps):
    async def main():
        presence, inside, watched = Presence(), [], {}
        for step in steps:
            if step in inside:
                inside.remove(step)
                presence.leave(step[0], step[1], step[2])
            else:
                inside.append(step)
                presence.enter(step[0], step[1], step[1].upper(), step[2])
            if step[0] not in watched and any(one[0] == step[0] for one in inside):
                watch = presence.watch(step[0])
                watched[step[0]] = (watch, watch.value)
            if not any(one[0] == step[0] for one in inside):
                watched.pop(step[0], None)
        assert len(presence) == len({session for session, _, _ in inside})
        for session, (watch, first) in watched.items():
            value = apply_immutable(first, [op for _, ops in watch._frames for op in ops])
            assert set(value["people"]) == {person for where, person, _ in inside if where == session}
            for person, shown in value["people"].items():
                places = {place for where, who, place in inside if (where, who) == (session, person)}
                assert shown["conversations"] == sorted(places - {None})

    go(main)
