import importlib.util
import sys

import perdure
import pytest
from perdure.actors.models import call
from perdure.actors.task.definition import Definitions

from ..conversation.support import answering, calling, go, scene

KIT = '''
import perdure

@perdure.tool
async def version() -> str:
    """Tell."""
    return "{text}"

KIT = perdure.Extension(name="dev", tools=[version])
{more}
'''


@pytest.fixture
def module(tmp_path):
    """A module file that can be written again."""

    class Module:
        path = tmp_path / "dev_kit.py"

        def write(self, text="one", more=""):
            self.path.write_text(KIT.format(text=text, more=more))

        def load(self):
            spec = importlib.util.spec_from_file_location("dev_kit", self.path)
            loaded = importlib.util.module_from_spec(spec)
            sys.modules["dev_kit"] = loaded
            spec.loader.exec_module(loaded)
            return loaded

    yield Module()
    sys.modules.pop("dev_kit", None)


def test_a_changed_file_is_taken_in_while_everything_runs(module):
    """PR-05: replaced in place; the next round runs the new code, whoever imports the module sees it."""

    async def main():
        module.write("one")
        loaded = module.load()
        brain = calling(call("version", "c1"))
        async with scene(brain, extensions=[loaded.KIT]) as s:
            assert (await s.ask()).text == "one"
            module.write("two")
            assert perdure.reload(s.system.registry, loaded) == ["dev"]
            assert (await s.ask()).text == "two"
            assert sys.modules["dev_kit"].KIT is s.system.registry.installed()[-1]

    go(main)


def test_a_call_that_runs_keeps_its_code(module):
    async def main():
        module.write("one", more="import asyncio\narrived, free = asyncio.Event(), asyncio.Event()")
        module.path.write_text(
            module.path.read_text().replace("    return", "    arrived.set()\n    await free.wait()\n    return")
        )
        loaded = module.load()
        async with scene(
            answering([call("version", "c1")], lambda r: r.messages[-1].content[0].text), extensions=[loaded.KIT]
        ) as s:
            free = loaded.free
            submission = await s.root.submit("x")
            await loaded.arrived.wait()
            module.write("two")
            perdure.reload(s.system.registry, loaded)
            free.set()
            assert (await submission.wait()).text == "one"

    go(main)


BROKEN = {
    "syntax": "def (",
    "raises": "raise SystemError('no')",
    "invalid": "BAD = perdure.Extension(name='bad', tools=[version, version])",
    "import": "import no_such_module_anywhere",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_file_that_cannot_be_taken_in_changes_nothing(module, fault):
    """PR-14."""
    module.write("one", more='OTHER = perdure.Extension(name="other")')
    loaded = module.load()
    registry = perdure.Registry(Definitions())
    for extension in (loaded.KIT, loaded.OTHER):
        registry.install(extension)
    before, names = registry.installed(), dict(vars(loaded))
    module.write("two", more=BROKEN[fault])
    with pytest.raises(perdure.ReloadFailed):
        perdure.reload(registry, loaded)
    assert registry.installed() == before
    assert dict(vars(loaded)) == names
    module.write("three")
    assert perdure.reload(registry, loaded) == ["dev"]
    assert [one.name for one in registry.installed()] == ["dev"]


def test_what_a_file_no_longer_defines_is_uninstalled_and_what_others_define_stays(module):
    module.write("one", more='OTHER = perdure.Extension(name="other")')
    loaded = module.load()
    registry = perdure.Registry(Definitions())
    for extension in (loaded.KIT, perdure.Extension(name="mine"), loaded.OTHER):
        registry.install(extension)
    module.write("two", more='NEW = perdure.Extension(name="new")')
    assert perdure.reload(registry, loaded) == ["dev", "new"]
    assert [one.name for one in registry.installed()] == ["dev", "mine", "new"]
    assert not hasattr(loaded, "OTHER")


def test_a_module_without_a_file_is_refused():
    with pytest.raises(perdure.ReloadFailed):
        perdure.reload(perdure.Registry(Definitions()), type(sys)("nowhere"))
