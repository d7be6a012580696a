import perdure
import pytest
from perdure.actors.conversation.builtin import AgentDoc
from perdure.actors.conversation.choice import configure, model_name, model_ref

from .support import MODEL, go, scene


async def choice(conversation):
    return await conversation.snapshot(AgentDoc)


def test_a_field_left_out_changes_nothing_and_none_clears_it():
    async def main():
        async with scene(agent=perdure.Agent(model=MODEL, instructions="be brief", tools=["a"])) as s:
            await s.root.configure(perdure.Agent(thinking_level="high", tools=["b", "a"]))
            assert await choice(s.root) == {
                "model": {"provider": "scripted", "modelId": "model"},
                "thinkingLevel": "high",
                "tools": ["b", "a"],
                "instructions": "be brief",
            }
            await s.root.configure(perdure.Agent(model=None, thinking_level=None, instructions=None, extensions=None))
            assert await choice(s.root) == {"tools": ["b", "a"]}

    go(main)


def test_a_model_is_stored_as_its_parts():
    assert model_ref("a/b/c") == {"provider": "a", "modelId": "b/c"}
    assert model_name(model_ref("a/b/c")) == "a/b/c"


endless = []
endless.append(endless)

BAD = {
    "no provider": {"model": "/x"},
    "no slash": {"model": "claude"},
    "no id": {"model": "a/"},
    "not a name": {"model": 5},
    "no such level": {"thinking_level": "very"},
    "tools as text": {"tools": "grep"},
    "a tool that is no name": {"tools": [5]},
    "instructions": {"instructions": ["x"]},
    "a list without an end": {"tools": endless},
}


@pytest.mark.parametrize("fields", BAD.values(), ids=BAD)
def test_choices_that_could_never_work_are_refused_and_change_nothing(fields):
    async def main():
        async with scene() as s:
            before = await choice(s.root)
            with pytest.raises(perdure.InvalidValue):
                await s.root.configure(perdure.Agent(**({"instructions": "new"} | fields)))
            with pytest.raises(perdure.InvalidValue):
                await s.session.create_conversation(agent=perdure.Agent(**fields))
            assert await choice(s.root) == before
            assert (await s.ask("x")).status == "done"

    go(main)


def test_text_that_is_no_unicode_is_refused():
    async def main():
        async with scene() as s:
            with pytest.raises(perdure.PerdureError):
                await s.root.configure(perdure.Agent(instructions="a\ud800"))
            assert (await s.ask("x")).status == "done"

    go(main)


def test_a_conversation_can_be_configured_in_the_commit_that_creates_it():
    """DF-05."""

    async def main():
        async with scene() as s:
            async with s.session.commit() as tx:
                record = await tx.create_conversation()
                await configure(tx, record.id, perdure.Agent(model=MODEL, instructions="sing"))
            conversation = await s.session.conversation(record.id)
            await (await conversation.submit("x")).wait()
            assert s.model.calls[0].messages[0].sections == {"instructions": "<instructions>\nsing\n</instructions>"}

    go(main)


def test_an_owned_conversation_starts_with_a_copy_of_its_owners_choices_and_an_ownerless_one_empty():
    """PR-16."""

    class Parked(perdure.Task[None, None], name="test.parked", version=1):
        class Start(perdure.Phase):
            pass

        async def start(self, run, state):
            await run.wait(until=run.now() + 10**9, then=self.Start())

    async def main():
        async with scene(
            agent=perdure.Agent(model=MODEL, tools=["a"]), extensions=[perdure.Extension(name="x", tasks=[Parked])]
        ) as s:
            async with s.root.commit() as tx:
                owner = await tx.create_task(Parked)
                child = await tx.create_conversation(owner=owner.id)
                await configure(tx, 1, perdure.Agent(tools=["b"]))
            owned = await s.session.conversation(child.id)
            assert (await choice(owned))["tools"] == ["a"]
            assert await choice(await s.session.create_conversation()) == {}

    go(main)
