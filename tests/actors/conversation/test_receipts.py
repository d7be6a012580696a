"""A command with a request id runs once, whatever is lost on the way, and what it did is stored with its receipt."""

import perdure
import pytest

from .support import Faults, answering, go, scene


def test_a_command_that_is_sent_again_gives_what_it_gave_and_writes_nothing(storage):
    async def main():
        async with scene(answering("hello"), storage=storage) as there:
            await there.ask()
            made = [await there.session.create_conversation(request_id="c") for _ in range(2)]
            forked = [await there.root.fork(request_id="f") for _ in range(2)]
            assert made[0] == made[1] != forked[0] == forked[1]
            seq = there.system._sessions._cores["s"].seq
            assert await there.root.fork(request_id="f") == forked[0]
            assert await there.session.create_conversation(request_id="c") == made[0]
            await there.root.abort(request_id="a")
            await there.root.abort(request_id="a")
            assert there.system._sessions._cores["s"].seq == seq + 1

    go(main)


def test_receipts_survive_a_restart(storage):
    async def main():
        async with scene(answering("hello"), storage=storage) as there:
            await there.ask()
            made, forked = (
                await there.session.create_conversation(request_id="c"),
                await there.root.fork(request_id="f"),
            )
        async with scene(answering("hello"), storage=storage) as there:
            assert await there.session.create_conversation(request_id="c") == made
            assert await there.root.fork(request_id="f") == forked

    go(main)


def test_a_request_id_that_named_another_command_is_refused_and_a_failed_one_leaves_it_free(storage):
    async def main():
        async with scene(answering("hello"), storage=storage) as there:
            with pytest.raises(perdure.InvalidValue):
                await there.root.fork(request_id="r")  # there is no entry yet
            await there.ask()
            await there.root.fork(request_id="r")
            with pytest.raises(perdure.RequestIdReused):
                await there.root.configure(perdure.Agent(), request_id="r")
            with pytest.raises(perdure.InvalidValue):
                await there.root.fork(request_id="x" * 513)
            with pytest.raises(perdure.UnknownRecord):
                await perdure.Conversation(there.root._services, "s", 99).withdraw(1, request_id="w")

    go(main)


@pytest.mark.parametrize("when", ["before", "after"])
def test_when_nobody_knows_whether_it_was_stored_sending_it_again_makes_one_of_it(when):
    """Storage fails before or after the write, and the answer is lost either way."""

    async def main():
        storage = Faults(perdure.MemoryStorage())
        async with scene(answering("hello"), storage=storage) as there:
            await there.ask()
            storage.fail(storage.writes + 1, when)
            with pytest.raises(perdure.SessionFailed):
                await there.session.create_conversation(request_id="c")
            made = await there.session.create_conversation(request_id="c")
            assert await there.session.create_conversation(request_id="c") == made
            page = await there.session.conversations()
            assert [one.id for one in page.items] == [1, made.id]

    go(main)


def test_an_author_is_kept_with_what_was_said_and_the_model_is_not_told(storage):
    async def main():
        async with scene(answering("hello"), storage=storage) as there:
            await there.ask("hi", author="Ada")
            entries = (await there.root.entries(order="ascending")).items
            assert [entry.data for entry in entries][:1] == [{"author": "Ada"}]
            assert "Ada" not in repr(there.model.calls[0].messages)
            for wrong in ("", "  ", "x" * 257, 7):
                with pytest.raises(perdure.InvalidValue):
                    await there.root.submit("hi", author=wrong)

    go(main)
