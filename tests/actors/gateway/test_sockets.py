"""WebSockets: what a page sees and does, and what is refused."""

import asyncio
import gc
import json

import perdure
import pytest
import websockets
from perdure.gateway import Limits

from .support import MODEL, TOKEN, Page, go, opened, said, served


def test_a_page_sees_an_answer_stream_and_end():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            assert await page.command("open") == {"conversation": 1}
            view = await page.attach("conversation", conversation=1)
            events = await page.attach("events", conversation=1)
            assert page.events[events][0]["type"] == "snapshot"
            await page.command("submit", conversation=1, content="Hello")
            await page.until(lambda: said(page.values[view])[-1:] == ["re: Hello"])
            await page.until(lambda: page.events[events][-1]["type"] in ("usage", "run_end", "submission"))
            async with await (await (await system.session("s")).root()).watch() as watch:
                assert page.values[view] == watch.value

    go(main)


def test_two_people_see_each_other_and_who_said_what():
    async def main():
        async with opened() as system, served(system) as door, door.page("Ada") as ada, door.page("Bob") as bob:
            await ada.command("open")
            there = await ada.attach("presence")
            view = await ada.attach("conversation", conversation=1)
            await bob.attach("conversation", conversation=1)
            await ada.until(lambda: len(ada.values[there]["people"]) == 2)
            assert {one["name"]: one["conversations"] for one in ada.values[there]["people"].values()} == {
                "Ada": [1],
                "Bob": [1],
            }
            await bob.send(type="status", session="s", status="typing")
            await ada.until(lambda: ada.values[there]["people"][bob.welcome["you"]["id"]].get("status") == "typing")
            await bob.command("submit", conversation=1, content="from Bob")
            await ada.command("submit", conversation=1, content="from Ada")
            await ada.command("write", conversation=1, kind="chat.note", data={"n": 1}, text="noted")
            await ada.until(lambda: len(said(ada.values[view])) == 5)
            authors = [entry.get("data", {}).get("author") for entry in ada.values[view]["entries"]]
            assert authors == ["Bob", None, "Ada", None, "Ada"]
            await bob.bare.close()
            await ada.until(lambda: len(ada.values[there]["people"]) == 1)

    go(main)


def test_the_lists_of_a_session_are_kept_up_to_date():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            listed = await page.attach("conversations")
            tasks = await page.attach("tasks")
            assert page.values[listed] == {"conversations": {"1": {"id": 1}}, "omitted": False}
            made = (await page.command("create"))["conversation"]
            await page.command("submit", conversation=1, content="Hello")
            forked = (await page.command("fork", conversation=1))["conversation"]
            await page.until(lambda: str(forked) in page.values[listed]["conversations"])
            assert str(made) in page.values[listed]["conversations"]
            assert page.values[listed]["conversations"][str(forked)]["parent"]["conversationId"] == 1
            await page.until(lambda: page.values[tasks] == {})

    go(main)


def test_a_large_value_comes_in_bounded_frames():
    async def main():
        limits = Limits(frame_bytes=4_096)
        async with opened() as system, served(system, limits=limits) as door, door.page() as page:
            await page.command("open")
            text = 'a "quote" \\ and \N{PERFORMING ARTS} ' * 2_000
            await page.command("submit", conversation=1, content=text)
            view = await page.attach("conversation", conversation=1)
            await page.until(lambda: said(page.values[view])[-1:] == [f"re: {text}"])
            assert max(page.frames) <= limits.frame_bytes
            assert len(page.frames) > 40

    go(main)


def test_attachments_can_be_given_up_and_are_bounded():
    async def main():
        async with opened() as system, served(system, limits=Limits(attachments=2)) as door, door.page() as page:
            await page.command("open")
            first = await page.attach("conversation", conversation=1)
            await page.attach("tasks")
            await page.send(type="attach", id=77, session="s", what="tasks")
            await page.until(lambda: 77 in page.answers)
            assert page.answers[77]["error"]["code"] == "too_many"
            await page.send(type="detach", id=first)
            await page.attach("conversations")
            assert system.inspect().figures["s"].watchers == 2

    go(main)


@pytest.mark.parametrize("how", ["close", "abort"])
def test_nothing_stays_of_those_who_have_left(how):
    """B170: connects and disconnects, orderly or by reset, leave no listener and no task."""

    async def main():
        async with opened() as system, served(system) as door:
            async with door.page() as page:
                await page.command("open")
            async with door.connect():
                pass
            tasks = await settled(door, system)
            for _ in range(50):
                async with door.page() as page:
                    await page.attach("conversation", conversation=1)
                    await page.attach("presence")
                    if how == "abort":
                        page.bare.transport.abort()
            assert await settled(door, system) <= tasks
            assert len(door.house.presence) == 0

    go(main)


async def settled(door, system):
    """Wait until nobody is inside; give how many tasks there are then."""
    async with asyncio.timeout(20):
        while door.house.inside or system.inspect().figures["s"].watchers:
            await asyncio.sleep(0.01)
    for _ in range(5):
        await asyncio.sleep(0)
    gc.collect()
    return len(asyncio.all_tasks())


@pytest.mark.parametrize(
    ("hello", "code"),
    [
        ({"type": "hello", "token": TOKEN + "x"}, "wrong_token"),
        ({"type": "hello", "token": ""}, "wrong_token"),
        ({"type": "hello"}, "wrong_token"),
        ({"type": "ping"}, "no_hello"),
        ({"type": "hello", "token": TOKEN, "name": ""}, "invalid_frame"),
    ],
)
def test_who_does_not_know_the_token_is_told_so_and_put_out(hello, code):
    async def main():
        async with opened() as system, served(system) as door, door.connect() as bare:
            page = Page(bare)
            await page.send(**hello)
            assert (await page.frame("refused"))["error"]["code"] == code
            assert await page.closed() == 4401

    go(main)


def test_the_token_may_come_in_a_header():
    async def main():
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with opened() as system, served(system) as door, door.connect(additional_headers=headers) as bare:
            page = Page(bare)
            await page.send(type="hello", name="Ada")
            assert (await page.frame("welcome"))["you"]["name"] == "Ada"

    go(main)


def test_who_says_nothing_is_put_out_in_time():
    async def main():
        clock = perdure.VirtualClock()
        async with opened() as system, served(system, clock=clock) as door, door.connect() as bare:
            page = Page(bare)
            async with asyncio.timeout(20):
                while clock.next_due() is None:
                    await asyncio.sleep(0.01)
            clock.advance(10.1)
            assert await page.closed() == 4401

    go(main)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1.evil.example"])
def test_a_foreign_page_gets_no_socket(origin):
    """B181: no page of another site, whatever it knows."""

    async def main():
        async with opened() as system, served(system) as door:
            await refused_socket(door, f"ws://{door.host}/socket", additional_headers={"Origin": origin})

    go(main)


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.com"])
def test_a_foreign_name_gets_no_socket(name):
    """B182: no page that has its own name point here."""

    async def main():
        async with opened() as system, served(system) as door:
            await refused_socket(door, f"ws://{name}/socket", host="127.0.0.1", port=door.port)

    go(main)


async def refused_socket(door, url, **options):
    with pytest.raises(websockets.InvalidStatus) as refused:
        async with websockets.connect(url, proxy=None, **options):
            pass
    assert refused.value.response.status_code == 403
    assert door.house.inside == 0


def test_bad_frames_are_answered_and_disturb_nobody():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            for text in ("", "nonsense", "[]", "7", '{"type": "nope"}', "[" * 100_000, '{"type": "attach", "id": -1}'):
                await page.bare.send(text)
                assert (await page.frame("refused"))["error"]["code"] == "invalid_frame"
            await page.send(
                type="command", id=5, command={"type": "submit", "session": "s", "requestId": "x", "foo": 1}
            )
            await page.until(lambda: 5 in page.answers)
            assert page.answers[5]["error"]["code"] == "invalid_frame"
            for what in ({"what": "conversation"}, {"what": "tasks", "conversation": 1}, {"what": "everything"}):
                await page.send(type="attach", id=9, session="s", **what)
                await page.until(lambda: 9 in page.answers)
                assert page.answers.pop(9)["error"]["code"] == "invalid_frame"
            assert page.ended[await page.attach("conversation", conversation=99)] == "unknown_record"
            assert page.ended[await page.attach("tasks", session="nobody's")] == "unknown_session"
            assert not await system.has_session("nobody's")
            assert "submission" in await page.command("submit", conversation=1, content="still here")

    go(main)


@pytest.mark.parametrize(("message", "code"), [(b"\x00\x01", 1003), ("x" * 70_000, 1009)])
def test_binary_and_oversized_frames_end_the_socket_and_nobody_elses(message, code):
    async def main():
        limits = Limits(request_bytes=65_536)
        async with opened() as system, served(system, limits=limits) as door, door.page() as other:
            await other.command("open")
            async with door.page() as page:
                await page.bare.send(message)
                assert await page.closed() == code
            assert "submission" in await other.command("submit", conversation=1, content="hi")

    go(main)


def test_commands_that_come_too_fast_are_refused_and_say_when():
    async def main():
        clock, limits = perdure.VirtualClock(), Limits(per_s=1.0, burst=3)
        async with opened() as system, served(system, limits=limits, clock=clock) as door, door.page() as page:
            for number in range(4):
                await page.send(type="ping", id=number)
            await page.until(lambda: 3 in page.answers)  # the hello counts, too
            error = page.answers[3]["error"]
            assert (error["code"], error["retryAfter"] > 0) == ("rate_limited", True)
            clock.advance(1.1)
            await page.send(type="ping", id=99)
            await page.until(lambda: {"type": "pong", "id": 99} in page.others)

    go(main)


def test_a_socket_survives_the_crash_of_its_session_and_goes_on():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            view = await page.attach("conversation", conversation=1)
            listed = await page.attach("conversations")
            assert system.kill("session:s")
            await page.command("submit", conversation=1, content="again")
            await page.until(lambda: said(page.values[view])[-1:] == ["re: again"])
            await page.command("create")
            await page.until(lambda: len(page.values[listed]["conversations"]) == 2)

    go(main)


def test_the_followers_of_a_deleted_session_are_told():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            view = await page.attach("conversation", conversation=1)
            await system.delete_session("s")
            await page.until(lambda: view in page.ended)
            assert page.ended[view] in ("unknown_session", "unknown_record")

    go(main)


def test_sockets_are_told_when_the_system_closes():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            await page.attach("conversation", conversation=1)
            await system.close()
            assert await page.closed() == 1012

    go(main)


def test_a_command_that_waits_lets_others_pass():
    async def main():
        gate = asyncio.Event()

        async def brain(request):
            await gate.wait()
            return "done"

        async with opened(brain) as system, served(system) as door, door.page() as page:
            await page.command("open")
            await page.command("submit", conversation=1, content="hi")
            aborted = asyncio.ensure_future(page.command("abort", conversation=1))
            assert await page.command("create") != {}
            assert await aborted == {}
            submission = await (await system.session("s")).submission(7)
            assert submission.id == 7

    go(main)


def test_frames_that_a_newer_client_sends_are_refused_one_by_one():
    """B163: an unknown frame is an answer, never the end."""

    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.bare.send(json.dumps({"type": "of tomorrow", "id": 3}))
            await page.until(lambda: 3 in page.answers)
            await page.send(type="ping", id=1)
            assert await page.frame("pong") == {"type": "pong", "id": 1}

    go(main)


def test_the_names_of_models_are_chosen_by_the_daemon():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            view = await page.attach("conversation", conversation=1)
            assert page.values[view]["docs"]["pi.agent"]["model"] == {"provider": "scripted", "modelId": "model"}
            assert MODEL == "scripted/model"
            await page.command("configure", conversation=1, agent={"instructions": "be brief"})
            await page.until(lambda: page.values[view]["docs"]["pi.agent"].get("instructions") == "be brief")

    go(main)


def test_one_socket_more_than_may_be_is_refused():
    async def main():
        limits = Limits(sockets=2)
        async with opened() as system, served(system, limits=limits) as door, door.page(), door.page() as other:
            async with door.connect() as bare:
                page = Page(bare)
                assert (await page.frame("refused"))["error"]["code"] == "too_many"
                assert await page.closed() == 4429
            assert await other.command("open") == {"conversation": 1}

    go(main)


def test_a_session_that_is_given_up_ends_what_follows_it():
    """B037: attachments do not keep a session crashing that its supervisors have given up."""

    async def main():
        clock = perdure.VirtualClock()
        async with opened() as system, served(system, clock=clock) as door, door.page() as page:
            await page.command("open")
            view = await page.attach("conversation", conversation=1)
            failing = perdure.SessionFailed("s", None)

            async def session(key):
                raise failing

            system.session = session
            system.kill("session:s")
            async with asyncio.timeout(20):
                while view not in page.ended:
                    clock.advance(5.0)
                    await asyncio.sleep(0.01)
            assert page.ended[view] == "session_failed"

    go(main)


def test_whoever_follows_a_conversation_is_told_that_it_was_deleted():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            made = (await page.command("create"))["conversation"]
            view = await page.attach("conversation", conversation=made)
            events = await page.attach("events", conversation=made)
            root = await page.attach("conversation", conversation=1)
            await page.command("delete", conversation=made)
            await page.until(lambda: {view, events} <= page.ended.keys())
            assert [page.ended[one] for one in (view, events)] == ["unknown_record"] * 2
            assert root not in page.ended

    go(main)
