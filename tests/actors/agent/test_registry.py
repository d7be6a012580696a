import perdure
import pytest
from perdure.actors.agent.generation import Generation
from perdure.actors.agent.registry import Registry
from perdure.actors.models import call, current_tools
from perdure.actors.task.definition import Definitions

from ..conversation.support import MODEL, answering, echo, go, scene


def made(name, text="x"):
    def function() -> str:
        return text

    return perdure.Tool(function, name=name, description=f"Gives {text}.")


def ext(name, tools=(), sections=(), tasks=()):
    return perdure.Extension(
        name=name,
        tools=[made(one) if isinstance(one, str) else one for one in tools],
        sections=[perdure.Section(*one) for one in sections],
        tasks=list(tasks),
    )


def task(title, version=1):
    class Made(perdure.Task[None, None], name=title, version=version):
        class Start(perdure.Phase):
            pass

        async def start(self, run, state):
            await run.complete()

    return Made


@pytest.fixture
def registry():
    registry = Registry(Definitions())
    registry.build_in([Generation])
    return registry


def names(resolved):
    return [tool.name for tool in resolved.tools]


def resolve(registry, settings=None, **choice):
    return registry.resolve(choice, settings or perdure.Settings())


# --- what a conversation gets


def test_without_a_choice_everything_installed_is_offered_in_install_order(registry):
    registry.install(ext("b", ["b1", "b2"], [("sb", "x")]))
    registry.install(ext("a", ["a1"], [("sa", "x")]))
    resolved = resolve(registry)
    assert names(resolved) == ["b1", "b2", "a1"]
    assert [section.key for section in resolved.sections] == ["sb", "sa"]
    assert resolved.extensions == ["b", "a"]


def test_a_choice_of_extensions_gives_their_order_and_skips_what_is_not_installed(registry):
    for name in "abc":
        registry.install(ext(name, [f"{name}1"]))
    resolved = resolve(registry, extensions=["c", "gone", "a", "c"])
    assert (names(resolved), resolved.extensions) == (["c1", "a1"], ["c", "a"])
    assert names(resolve(registry, extensions=[])) == []


def test_settings_give_the_default_choice(registry):
    for name in "abc":
        registry.install(ext(name, [f"{name}1"]))
    settings = perdure.Settings(extensions=("b",))
    assert names(resolve(registry, settings)) == ["b1"]
    assert names(resolve(registry, settings, extensions=["a"])) == ["a1"]


def test_a_choice_of_tools_selects_among_those_offered_in_its_order(registry):
    registry.install(ext("a", ["x", "y", "z"]))
    assert names(resolve(registry, tools=["z", "gone", "x"])) == ["z", "x"]
    assert names(resolve(registry, tools=[])) == []


def test_a_later_extensions_tool_or_section_of_one_name_takes_the_place_of_the_earlier(registry):
    """PR-13."""
    newer = made("x", "newer")
    registry.install(ext("a", ["x", "y"], [("s", "old"), ("t", "x")]))
    registry.install(ext("b", [newer], [("s", "new")]))
    resolved = resolve(registry)
    assert names(resolved) == ["x", "y"]
    assert resolved.tool("x") is newer
    assert [(one.key, one.render) for one in resolved.sections] == [("s", "new"), ("t", "x")]


def test_the_choice_of_model_thinking_and_instructions_is_given(registry):
    resolved = resolve(registry, model={"provider": "p", "modelId": "m"}, thinkingLevel="high", instructions="be brief")
    assert (resolved.model, resolved.thinking_level) == ("p/m", "high")
    assert resolved.sections == [perdure.Section("instructions", "be brief")]
    assert (resolve(registry).model, resolve(registry).thinking_level) == (None, "off")


def test_an_unknown_tool_is_none(registry):
    assert resolve(registry).tool("x") is None


# --- installing


def test_an_extension_of_the_same_name_replaces_the_old_one_in_place(registry):
    """PR-05."""
    registry.install(ext("a", ["a1"], tasks=[task("t.old"), task("t.kept")]))
    registry.install(ext("b", ["b1"]))
    registry.install(ext("a", ["a2"], tasks=[task("t.kept", 2), task("t.new")]))
    assert names(resolve(registry)) == ["a2", "b1"]
    definitions = registry._definitions
    assert definitions.get("t.old") is None
    assert definitions.get("t.kept").version == 2
    assert definitions.get("t.new") is not None


def test_an_uninstalled_extension_takes_its_tasks_with_it(registry):
    """PR-05."""
    registry.install(ext("a", ["a1"], tasks=[task("t.x")]))
    registry.uninstall("a")
    registry.uninstall("never there")
    assert registry.installed() == []
    assert names(resolve(registry)) == []
    assert registry._definitions.get("t.x") is None
    registry.install(ext("b", tasks=[task("t.x")]))


class Unmade(perdure.Task[None, None], name="t.unmade", version=1):
    class Start(perdure.Phase):
        pass

    def __init__(self):
        raise RuntimeError("no licence")

    async def start(self, run, state):
        await run.complete()


BAD = {
    "two tools": ext("bad", ["x", "x"]),
    "two sections": ext("bad", [], [("s", "1"), ("s", "2")]),
    "two tasks": ext("bad", tasks=[task("t"), task("t")]),
    "a task of another": ext("bad", tasks=[task("t.taken")]),
    "a built-in task": ext("bad", tasks=[task("pi.generation")]),
    "instructions": ext("bad", [], [("instructions", "x")]),
    "upper case": ext("bad", [], [("Section", "x")]),
    "an empty key": ext("bad", [], [("", "x")]),
    "a key with a newline": ext("bad", [], [("key\n", "x")]),
    "a plain function": perdure.Extension(name="bad", tools=[print]),
    "no section": perdure.Extension(name="bad", sections=["x"]),
    "a section whose key is none": perdure.Extension(name="bad", sections=[perdure.Section(None, "x")]),
    "no task": perdure.Extension(name="bad", tasks=[print]),
    "a task in the place of its class": perdure.Extension(name="bad", tasks=[task("t")()]),
    "the class of all tasks": perdure.Extension(name="bad", tasks=[perdure.Task]),
    "a task that cannot be made": ext("bad", tasks=[task("t.new"), Unmade]),
}


@pytest.mark.parametrize("bad", BAD.values(), ids=BAD)
def test_an_extension_that_contradicts_the_rest_is_refused_and_changes_nothing(registry, bad):
    """PR-14."""
    good = ext("bad", ["fine"], tasks=[task("t.mine")])
    registry.install(ext("other", tasks=[task("t.taken")]))
    registry.install(good)
    with pytest.raises(perdure.ExtensionInvalid, match="bad"):
        registry.install(bad)
    assert registry.installed()[1] is good
    assert registry._definitions.get("t.mine") is not None
    assert registry._definitions.get("t") is registry._definitions.get("t.new") is None
    assert names(resolve(registry)) == ["fine"]


def test_an_extension_replaces_another_in_one_step(registry):
    """Nobody sees the one without the other: a task that is in both never loses its code."""
    seen = []
    registry.install(ext("a", tasks=[task("t.old"), task("t.both")]))
    have = registry._definitions.get
    registry._definitions.subscribe(lambda: seen.append([have(f"t.{name}") is None for name in ("old", "both", "new")]))
    registry.install(ext("a", tasks=[task("t.both"), task("t.new")]))
    assert seen == [[True, False, False]]


class Unheard:
    pass


def odd(a: Unheard):
    """Do."""


def test_a_tool_without_a_schema_is_refused_when_it_is_installed(registry):
    """PR-14: not in the middle of a run."""
    with pytest.raises(perdure.ToolDefinitionError, match="odd"):
        registry.install(perdure.Extension(name="a", tools=[perdure.tool(odd)]))
    assert registry.installed() == []


def test_a_system_does_not_open_with_a_bad_extension_and_opens_without_it():
    async def main():
        storage = perdure.MemoryStorage()
        bad = perdure.Extension(name="bad", tools=[perdure.tool(odd)])
        with pytest.raises(perdure.ToolDefinitionError):
            async with scene(storage=storage, extensions=[bad]):
                raise AssertionError("it opened")
        async with scene(storage=storage) as s:
            assert (await s.ask("x")).status == "done"

    go(main)


# --- while running


def test_a_replaced_tool_runs_its_new_code_in_the_next_round():
    async def main():
        async with scene(answering(call("t"), echo), extensions=[ext("live", [made("t", "old")])]) as s:
            assert (await s.ask()).answer.text == "re: old"
        async with scene(answering(call("t"), echo, call("t"), echo)) as s:
            s.system.registry.install(ext("live", [made("t", "old")]))
            assert (await s.ask()).answer.text == "re: old"
            s.system.registry.install(ext("live", [made("t", "new")]))
            assert (await s.ask()).answer.text == "re: new"

    go(main)


def test_a_choice_by_name_takes_effect_when_the_name_is_installed():
    async def main():
        agent = perdure.Agent(model=MODEL, extensions=["later"])
        async with scene(agent=agent) as s:
            await s.ask()
            assert current_tools(s.model.calls[-1].messages) == []
            s.system.registry.install(ext("later", ["t"]))
            await s.ask()
            assert [t.name for t in current_tools(s.model.calls[-1].messages)] == ["t"]

    go(main)


def test_a_tool_that_is_not_offered_is_for_conversations_that_name_it():
    @perdure.tool(offered=False)
    def inner() -> str:
        """Work."""
        return ""

    @perdure.tool
    def outer() -> str:
        """Work."""
        return ""

    registry = perdure.Registry(Definitions())
    registry.install(perdure.Extension(name="x", tools=[inner, outer]))
    settings = perdure.Settings()
    assert registry.resolve({}, settings).tools == [outer]
    assert registry.resolve({"tools": ["inner"]}, settings).tools == [inner]
