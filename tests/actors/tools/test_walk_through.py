"""A decision is said in one conversation and asked for in another; a look-up is scheduled, everything sleeps, and it is done."""

import re

import perdure
from perdure.actors.models import UserMessage, call, current_tools, plain_text

from ..conversation.support import MODEL, go, history, problems
from .test_schedules import MINUTE, START
from .test_search_history import CITED


def assistant(request):
    """Plays every agent: who may search passages is a searcher, who may search history asks it, anybody else takes note."""
    last, said = request.messages[-1], plain_text(request.messages[-1].content)
    tools = {one.name for one in current_tools(request.messages)}
    if not isinstance(last, UserMessage):
        hit = next((hit for hit in CITED.finditer(said) if not hit[3].endswith("?")), None)
        return f"You decided: {hit[3]} [conversation {hit[1]}, entry {hit[2]}]" if hit else said
    if "find_passages" in tools:
        return call("find_passages", question=said)
    if said.startswith("In two minutes, "):
        return call("schedule", text=said.removeprefix("In two minutes, "), after_s=120, look_up=True, name="reminder")
    return call("search_history", question=said) if said.endswith("?") else "Noted."


def opened(path, clock):
    return perdure.System.open(
        path,
        models=[perdure.ScriptedModel(assistant)],
        extensions=[perdure.schedules(), perdure.search_history()],
        settings=perdure.Settings(idle_after_s=5.0),
        clock=clock,
    )


async def told(conversation, text):
    settled = await (await conversation.submit(text)).wait()
    return settled.text


def test_a_decision_is_found_and_cited_elsewhere_and_a_look_up_is_done_while_everybody_is_away(tmp_path):
    async def evening():
        clock = perdure.VirtualClock(START, autojump=True)
        async with opened(tmp_path / "room.db", clock) as system:
            session = await system.session("crew")
            agent = perdure.Agent(model=MODEL)
            deck, cabin = await session.root(agent=agent), await session.create_conversation(agent=agent)
            assert await told(deck, "The ship shall be called Argo.") == "Noted."
            [decision] = [one for one in await history(deck) if one.kind == "pi.user"]
            cited = f"You decided: The ship shall be called Argo. [conversation {deck.id}, entry {decision.id}]"

            assert await told(cabin, "What is the ship called?") == cited
            [result] = [one for one in await history(cabin) if one.kind == "pi.tool-result"]
            assert result.model[0]["details"]["citations"] == [{"conversationId": deck.id, "entryId": decision.id}]

            assert "next at" in await told(cabin, "In two minutes, What did we say about the ship?")
            while system.inspect().sessions:  # nobody stays: the session leaves memory
                await clock.sleep(1.0)
            deadline = await system.next_deadline()
            assert START + 2 * MINUTE <= deadline < clock.now() + 2 * MINUTE
        return cabin.id, deadline, cited

    async def at_the_deadline(cabin_id, deadline, cited):
        clock = perdure.VirtualClock(deadline, autojump=True)
        async with opened(tmp_path / "room.db", clock) as system:
            while await system.next_deadline() is not None or system.inspect().sessions:
                await clock.sleep(1.0)  # nobody asks for the session
            cabin = await (await system.session("crew")).conversation(cabin_id)
            found = [one for one in await history(cabin) if one.kind == "perdure.lookup"]
            assert len(found) == 1
            said = found[0].model[0]["content"]
            assert re.fullmatch(r"\[Looked up as scheduled: reminder, due [^\]]+\]\n" + re.escape(cited), said)
            assert problems((await cabin.context()).messages) == []
            assert await perdure.list_schedules(await system.session("crew")) == []

    cabin_id, deadline, cited = go(evening)
    for _ in range(2):  # once more: what has been done is not done again
        go(lambda: at_the_deadline(cabin_id, deadline, cited))
