"""A session's conversations as a value that is kept up to date."""

from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.conversation import listing
from perdure.actors.conversation.listing import listed, listing_ops
from perdure.chord import apply_immutable
from perdure.storage.records import ConversationRecord

from .support import answering, go, scene


def test_forks_and_new_ones_appear_and_all_watchers_share_one_value(storage):
    async def main():
        async with scene(answering("hello"), storage=storage) as there:
            await there.ask()
            async with (
                await there.session.watch_conversations() as one,
                await there.session.watch_conversations() as two,
            ):
                assert one.value is two.value
                assert one.value == {"conversations": {"1": {"id": 1}}, "omitted": False}
                fork = await there.root.fork()
                value, ops = await anext(one)
                assert ops == [["s", ["conversations", str(fork.id)], value["conversations"][str(fork.id)]]]
                assert value["conversations"][str(fork.id)]["parent"]["conversationId"] == 1
            assert there.system.inspect().figures["s"].watchers == 0

    go(main)


def test_watchers_outlive_passivation_and_end_with_the_session(storage):
    async def main():
        async with scene(answering("hello"), storage=storage) as there:
            watch = await there.session.watch_conversations()
            core = there.system._sessions._cores["s"]
            await there.system._sessions._passivate(core, there.system._actors.clock.monotonic() + 1)
            assert there.system.inspect().figures == {}
            made = await there.session.create_conversation()
            value, _ = await anext(watch)
            assert str(made.id) in value["conversations"]
            await there.system.delete_session("s")
            assert watch.ended.reason == "closed"

    go(main)


ids = st.lists(st.integers(1, 60), unique=True, max_size=30).map(sorted)


@given(ids, st.lists(st.integers(1, 3), max_size=20), st.integers(1, 8))
def test_the_operations_lead_to_the_newest_conversations(before, commits, most):
    kept, listing.MAX_LISTED = listing.MAX_LISTED, most
    try:
        everything = [ConversationRecord(id=one) for one in before]
        value = listed(everything[::-1][:most], omitted=len(everything) > most)
        for count in commits:
            last = everything[-1].id if everything else 0
            created = [ConversationRecord(id=last + 1 + number) for number in range(count)]
            everything += created
            value = apply_immutable(value, listing_ops(value, created))
        assert value == listed(everything[::-1][:most], omitted=len(everything) > most)
    finally:
        listing.MAX_LISTED = kept
