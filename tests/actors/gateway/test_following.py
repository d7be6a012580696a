"""What a slow client gets: bounded, in order, and in the end the same."""

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.gateway import backlog as backlog_module
from perdure.actors.gateway.backlog import MAX_BATCHES, MAX_BYTES, Backlog, filled
from perdure.actors.gateway.commands import Open
from perdure.actors.gateway.following import Subject, pieces
from perdure.actors.gateway.refusals import Refused
from perdure.chord import apply_immutable
from perdure.gateway import Limits

from .support import TOKEN, go, opened, said, served


@given(st.lists(st.integers(0, 40), max_size=400))
def test_a_backlog_is_bounded_and_leads_to_the_newest_value(sizes):
    """B160, B161: batches and their bytes are capped; what is dropped, one replacement stands for."""

    async def main():
        backlog, newest, seen = Backlog(), {"text": ""}, {"text": ""}
        for size in sizes:
            ops = [["a", ["text"], "x" * (size * 1_000)]]
            newest = apply_immutable(newest, ops)
            backlog.put(ops, lambda value=newest: [["r", value]])
            assert len(backlog._batches) <= MAX_BATCHES
            assert backlog._bytes <= MAX_BYTES
        backlog.end()
        while (batch := await backlog.take()) is not None:
            seen = apply_immutable(seen, batch)
        assert seen == newest

    go(main)


def test_what_fills_a_backlog_ends_with_it_and_what_it_raises_is_raised():
    async def main():
        async def for_ever(backlog):
            await asyncio.Event().wait()

        async def broken(backlog):
            backlog.put(["one"], list)
            raise ValueError("no")

        before = len(asyncio.all_tasks())
        with pytest.raises(KeyError):
            async with filled(for_ever):
                raise KeyError
        with pytest.raises(ValueError, match="no"):
            async with filled(broken) as backlog:
                assert await backlog.take() == ["one"]
                assert await backlog.take() is None
        assert len(asyncio.all_tasks()) == before

    go(main)


json = st.recursive(
    st.none() | st.integers(-99, 99) | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(json, st.integers(200, 400))
def test_pieces_are_as_small_as_they_have_to_be_and_make_the_whole_again(value, limit):
    frame = {"type": "ops", "value": value, "more": 'a "quote" \\ \N{PERFORMING ARTS}' * 50}
    texts = list(pieces(frame, limit))
    assert all(len(text.encode()) <= limit for text in texts)
    parts = [msgspec.json.decode(text) for text in texts]
    assert [part["last"] for part in parts] == [False] * (len(parts) - 1) + [True]
    assert msgspec.json.decode("".join(part["text"] for part in parts)) == frame
    assert list(pieces({"type": "pong"}, limit)) == ['{"type":"pong"}']


@pytest.mark.parametrize(
    ("what", "conversation"), [("events", None), ("conversation", None), ("tasks", 1), ("presence", 1)]
)
def test_a_subject_names_a_conversation_if_and_only_if_it_is_of_one(what, conversation):
    with pytest.raises(Refused):
        Subject(session="s", what=what, conversation=conversation).check()


@pytest.mark.parametrize("what", ["conversation", "events"])
def test_who_does_not_read_gets_a_replacement_and_holds_up_nobody(what, monkeypatch):
    """B160: one client that never reads beside one that does; the other is not slowed, and the first ends up equal."""
    monkeypatch.setattr(backlog_module, "MAX_BATCHES", 5)

    async def main():
        limits = Limits(per_s=1e6, burst=10**6)
        async with opened() as system, served(system, limits=limits, keepalive=False) as door, door.page("Ada") as ada:
            session = await system.session("s")
            root = await session.root()
            view = await ada.attach("conversation", conversation=1)
            async with door.connect(max_queue=1) as deaf:
                await deaf.send(f'{{"type": "hello", "token": "{TOKEN}"}}')
                await deaf.send(f'{{"type": "attach", "id": 1, "session": "s", "what": "{what}", "conversation": 1}}')
                for number in range(60):
                    await root.write("app.line", {"n": number}, model=None)
                    await root.write("app.big", {"text": "x" * 200_000}, head="self")
                await root.write("app.end", {"n": 60})
                await ada.until(lambda: ada.values[view]["entries"][-1]["kind"] == "app.end")
                frames = [msgspec.json.decode(text) async for text in whole(deaf)]
                replaced = [frame for frame in frames if is_replacement(frame)]
                assert 2 <= len(replaced) < len(frames) < 200
                newest = ada.values[view]
                assert shown(replaced[-1], frames[frames.index(replaced[-1]) + 1 :], what) == newest["entries"][-1]
                assert said(newest) == []

    go(main)


async def whole(socket):
    """Give whole frames up to the one that shows the end."""
    text = ""
    async for piece in socket:
        frame = msgspec.json.decode(piece)
        text = text + frame["text"] if frame["type"] == "part" else piece
        if frame["type"] == "part" and not frame["last"]:
            continue
        yield text
        if "app.end" in text:
            return
        text = ""


def is_replacement(frame):
    return frame.get("ops", [[""]])[0][0] == "r" or frame.get("event", {}).get("type") == "snapshot"


def shown(replacement, following, what):
    """Give the newest entry that a client knows of."""
    if what == "events":
        entries = replacement["event"]["view"]["entries"]
        return [*entries, *(frame["event"]["entry"] for frame in following if "entry" in frame["event"])][-1]
    from perdure.chord import Decoder

    decoder, value = Decoder(), None
    for frame in [replacement, *following]:
        value = apply_immutable(value, decoder.decode(frame["ops"]))
    return value["entries"][-1]


def test_commands_are_data():
    assert msgspec.json.decode(b'{"type":"open","session":"s","requestId":"1"}', type=Open).session == "s"
