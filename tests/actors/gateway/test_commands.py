"""Commands run once for their request id, whatever is lost on the way."""

import perdure
import pytest

from .support import MODEL, go, opened, served


def asking(request):
    """Ask for the tool once a user has spoken; then say what it gave."""
    last = request.messages[-1]
    return (
        perdure.models.call("launch", at="noon")
        if isinstance(last, perdure.models.UserMessage)
        else perdure.models.plain_text(last.content)
    )


@perdure.tool(approval="always")
def launch(at: str) -> str:
    """Launch something."""
    return f"launched at {at}"


@pytest.mark.parametrize("by", ["http", "socket"])
def test_every_command_that_is_sent_again_gives_the_same_receipt_and_stores_nothing(by):
    """B064, B091: a replayed command is the first one's answer, by whichever door."""

    async def main():
        async with opened() as system, served(system) as door, door.page() as page:

            async def do(kind, /, **fields):
                given = {"session": "s", "requestId": f"{kind}-1", **fields}
                if by == "http":
                    return await door.post(kind, **given)
                del given["requestId"]
                return await page.command(kind, request_id=f"{kind}-1", **given)

            commands = [
                ("open", {}),
                ("submit", {"conversation": 1, "content": "hi"}),
                ("write", {"conversation": 1, "kind": "app.note", "data": {"n": 1}}),
                ("create", {"agent": {"model": MODEL}}),
                ("fork", {"conversation": 1}),
                ("configure", {"conversation": 1, "agent": {"instructions": "brief"}}),
                ("abort", {"conversation": 1}),
                ("withdraw", {"conversation": 1, "submission": 7}),
            ]
            receipts = [await do(kind, **fields) for kind, fields in commands]
            commands.append(("delete", {"conversation": receipts[3]["conversation"]}))
            receipts.append(await do("delete", **commands[-1][1]))
            session = await system.session("s")
            await session.wait_for_idle()
            before = await system.sessions()
            again = [await do(kind, **fields) for kind, fields in commands]
            assert again == receipts
            assert await system.sessions() == before
            assert receipts[-2:] == [{"outcome": "settled"}, {}]
            left = (await session.conversations()).items
            assert [one.id for one in left] == [1, receipts[4]["conversation"]]

    go(main)


def test_an_abort_that_is_sent_again_does_not_abort_what_began_since():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            await page.command("abort", conversation=1, request_id="stop")
            sent = await page.command("submit", conversation=1, content="hi")
            assert await page.command("abort", conversation=1, request_id="stop") == {}
            settled = await (await (await system.session("s")).submission(sent["submission"])).wait()
            assert settled.text == "re: hi"

    go(main)


def test_an_approval_that_is_sent_again_is_the_same_approval():
    """B115: an approval is used once; a repeated one is neither an error nor another one."""

    async def main():
        async with opened(asking, tools=[launch]) as system, served(system) as door, door.page() as page:
            await page.command("open")
            view = await page.attach("conversation", conversation=1)
            await page.command("submit", conversation=1, content="go")
            await page.until(lambda: waiting(page.values[view]))
            call = waiting(page.values[view])
            named = {"conversation": 1, "call": call["callId"], "hash": call["approval"]["hash"]}
            assert (await page.command("approve", **named | {"hash": "other"}))["code"] == "approval_mismatch"
            assert await page.command("approve", request_id="yes", **named) == {}
            assert await page.command("approve", request_id="yes", **named) == {}
            assert (await page.command("approve", request_id="no", **named))["code"] in (
                "call_not_waiting",
                "unknown_call",
            )
            await page.until(lambda: page.values[view]["entries"][-1]["kind"] == "pi.assistant")
            assert (await page.command("deny", request_id="yes", **named))["code"] == "request_id_reused"

    go(main)


def waiting(view):
    return next((slot for slot in view["docs"]["pi.live"].get("tools", ()) if "approval" in slot), None)


def test_a_refused_command_leaves_its_request_id_free():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            assert (await page.command("fork", conversation=1, request_id="f"))["code"] == "invalid_value"
            await page.command("write", conversation=1, kind="app.note")
            assert "conversation" in await page.command("fork", conversation=1, request_id="f")

    go(main)


def test_entries_of_perdures_own_kinds_cannot_be_written():
    async def main():
        async with opened() as system, served(system) as door, door.page() as page:
            await page.command("open")
            refused = await page.command("write", conversation=1, kind="pi.compaction", data={"n": 1})
            assert refused["code"] == "invalid_frame"

    go(main)


def test_a_steer_joins_the_run_and_what_is_queued_can_be_taken_back():
    async def main():
        async with opened(asking, tools=[launch]) as system, served(system) as door, door.page() as page:
            await page.command("open")
            view = await page.attach("conversation", conversation=1)
            await page.command("submit", conversation=1, content="go")
            await page.until(lambda: waiting(page.values[view]))
            refused = await page.command("submit", conversation=1, content="now", whenBusy="reject")
            assert refused["code"] == "conversation_busy"
            await page.command("submit", conversation=1, content="and this", whenBusy="steer")
            queued = await page.command("submit", conversation=1, content="later")
            await page.until(lambda: len(page.values[view]["docs"]["pi.inbox"]["items"]) == 2)
            items = page.values[view]["docs"]["pi.inbox"]["items"]
            assert [(one["mode"], one["author"]) for one in items] == [("steer", "Ada"), ("followUp", "Ada")]
            assert await page.command("withdraw", conversation=1, **queued) == {"outcome": "aborted"}
            call = waiting(page.values[view])
            named = {"conversation": 1, "call": call["callId"], "hash": call["approval"]["hash"]}
            await page.command("deny", reason="not today", **named)
            await page.until(lambda: len(page.values[view]["entries"]) >= 5)

    go(main)
