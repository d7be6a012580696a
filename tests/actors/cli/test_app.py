import sys

import perdure
import pytest
from perdure.actors.cli.app import AppInvalid, open_app

from ..conversation.support import go

APP = """
from contextlib import asynccontextmanager
import perdure

def options():
    agent = perdure.Agent(model="scripted/model", instructions="be brief")
    return {"models": [perdure.ScriptedModel(lambda request: "hi")], "agent": agent}

def served():
    from perdure.gateway import Limits
    return options() | {"limits": Limits(sockets=7), "clock": perdure.SystemClock()}

def for_file(file):
    assert file.endswith(".db")
    return {"models": [perdure.ScriptedModel(lambda request: "hi")]}

@asynccontextmanager
async def opened(file):
    async with perdure.System.open(file, models=[perdure.ScriptedModel(lambda request: "hi")]) as system:
        yield system

def wrong():
    return {"modells": []}

def nothing():
    return None

number = 5
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "an_app.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    yield tmp_path
    sys.modules.pop("an_app", None)


@pytest.mark.parametrize("spec", ["an_app:options", "an_app:served", "an_app:for_file", "an_app:opened"])
def test_a_factory_gives_options_or_the_system_itself(here, spec):
    async def main():
        async with open_app("a.db", spec, model="scripted/model") as app:
            root = await (await app.system.session("s")).root(agent=app.agent)
            assert (await (await root.submit("hello")).wait()).status == "done"

    go(main)


def test_a_model_that_is_named_takes_the_place_of_the_agents(here):
    async def main():
        async with open_app("a.db", "an_app:options", model="scripted/other") as app:
            assert app.agent == perdure.Agent(model="scripted/other", instructions="be brief")

    go(main)


def test_what_serving_needs_beside_a_system_comes_with_it(here):
    async def main():
        async with open_app("a.db", "an_app:served") as app:
            assert (app.limits.sockets, type(app.clock)) == (7, perdure.SystemClock)
            assert app.agent.instructions == "be brief"

    go(main)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("an_app", 'expected "module:factory"'),
        ("no_such_module:app", "No module named 'no_such_module'"),
        ("an_app:gone", "no attribute 'gone'"),
        ("an_app:number", "is no function"),
        ("an_app:nothing", "not NoneType"),
        ("an_app:wrong", "modells"),
    ],
)
def test_what_gives_no_system_is_refused_in_words_and_nothing_is_opened(here, spec, said):
    """P11."""

    async def main():
        with pytest.raises(AppInvalid, match=said):
            async with open_app("a.db", spec):
                raise AssertionError

    go(main)
    assert not (here / "a.db").exists()
