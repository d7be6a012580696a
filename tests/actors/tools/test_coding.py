"""The coding tools as an extension: whose environment they work in, and what they tell the model of it."""

import asyncio
import os

import perdure
import pytest
from perdure.actors.models import UserMessage, call, current_system, plain_text

from ..conversation.support import MODEL, go, scene, seen
from .desk import answers, desk, results, said


def test_the_prompt_names_the_working_directory(tmp_path):
    """PR-01: the section."""

    async def main():
        async with desk(tmp_path, brain=lambda request: "ok") as s:
            await s.ask("go")
            assert f"<cwd>\n{tmp_path}\n</cwd>" in current_system(s.model.calls[0].messages)

    go(main)


def test_each_conversation_works_in_the_environment_that_a_function_gives_it(tmp_path):
    """EN-54, PR-02: sync or not."""
    (tmp_path / "s-1").mkdir()

    async def place(about):
        await asyncio.sleep(0)
        return perdure.LocalEnvironment(tmp_path / f"{about.session}-{about.conversation_id}")

    async def main():
        calls = [call("write", path="a", content="x"), call("bash", command="touch b")]
        async with desk(place, *calls) as s:
            await s.ask("go")
            child = await s.session.create_conversation(agent=perdure.Agent(model=MODEL))
            (tmp_path / f"s-{child.id}").mkdir()
            await (await child.submit("go")).wait()
            for conversation in (s.root, child):
                folder = tmp_path / f"s-{conversation.id}"
                assert sorted(path.name for path in folder.iterdir()) == ["a", "b"]
                assert any(str(folder) in current_system(request.messages) for request in s.model.calls)

    go(main)


def test_an_environment_that_cannot_be_made_is_an_error_of_the_call_and_the_run_goes_on(tmp_path):
    """TO-07"""

    def place(about):
        in_a_call = isinstance(about, perdure.ToolContext)
        return 1 / 0 if in_a_call else perdure.LocalEnvironment(tmp_path)

    async def main():
        calls = [call("read", path="f"), call("write", path="f", content=""), call("bash", command="true")]
        found = await answers(place, *calls)
        assert len(found) == 3
        for result in found:
            assert result.is_error
            assert "ZeroDivisionError" in said(result)

    go(main)


def test_no_environment_is_made_to_abort_a_call_that_has_started_nothing(tmp_path):
    """TO-15"""
    asked = []

    async def place(about):
        if isinstance(about, perdure.ToolContext):
            asked.append(about.call_id)
            await asyncio.Event().wait()
        return perdure.LocalEnvironment(tmp_path)

    async def main():
        async with desk(place, call("bash", command="true")) as s:
            await s.root.submit("go")
            await seen(s.root, lambda v: [t["status"] for t in v["docs"]["pi.live"].get("tools", ())] == ["running"])
            await s.root.abort()
            assert "was aborted" in said((await results(s.root))[0])
        assert len(asked) <= 1

    go(main)


def test_tools_work_on_any_environment_that_keeps_the_protocol(tmp_path):
    """EN-54: they use the call's environment and nothing else."""

    class Elsewhere(perdure.LocalEnvironment):
        """Stands for another machine: knows its files under other names."""

        def _path(self, path, *, follow):
            return super()._path(os.path.join(self.cwd, path).replace("/elsewhere", str(tmp_path)), follow=follow)

    where = Elsewhere(tmp_path)
    where.cwd = "/elsewhere"

    async def main():
        write = call("write", path="/elsewhere/d/f", content="one")
        edit = call("edit", path="d/f", edits=[{"oldText": "one", "newText": "two"}])
        for one in (write, edit, call("read", path="d/f")):
            [result] = await answers(where, one)
            assert not result.is_error, said(result)
        assert said(result) == "two"

    go(main)


@pytest.mark.parametrize("name", ["coding", "mine"])
def test_the_extension_can_be_named_and_goes_with_others(tmp_path, name):
    def brain(request):
        if isinstance(request.messages[-1], UserMessage):
            return (
                [call("subagent", task="look")] if "look" not in plain_text(request.messages[-1].content) else "looked"
            )
        return "done"

    async def main():
        extension = perdure.coding_tools(tmp_path, name=name)
        async with scene(brain, extensions=[extension], tools=[perdure.subagent()]) as s:
            assert (await s.ask("go")).answer.text == "done"
            assert [one.name for one in s.system.registry.installed()] == ["kit", name]

    go(main)
