"""The room's face, and that it stands alone."""

import importlib
import inspect
import subprocess
import sys
from pathlib import Path

from perdure import chord

ROOM = Path(chord.__file__).parent


def test_every_public_name_exists_and_is_documented():
    assert chord.__all__ == sorted(chord.__all__, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    things = [getattr(chord, name) for name in chord.__all__]
    assert all(inspect.getdoc(thing) for thing in things if inspect.isclass(thing) or inspect.isfunction(thing))
    assert all(thing.__doc__ for thing in things if inspect.isclass(thing) and issubclass(thing, chord.PerdureError))


def test_every_module_says_what_it_is_for_and_what_proves_it():
    proofs = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    for module in ROOM.glob("*.py"):
        doc = inspect.getdoc(importlib.import_module(f"perdure.chord.{module.stem}")) or ""
        assert len(doc) > 60
        named = {word.strip("`.,;)").removeprefix("tests/chord/") for word in doc.split() if "test_" in word}
        assert named <= proofs


def test_the_room_works_without_the_rest_of_the_house():
    script = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('alone', {str(ROOM / '__init__.py')!r})\n"
        "sys.modules['alone'] = alone = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(alone)\n"
        "assert alone.apply({}, [['s', ['a'], 1]]) == {'a': 1}\n"
        "assert not [name for name in sys.modules if name.startswith('perdure')]\n"
        "print('alone')\n"
    )

    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)

    assert done.stdout == "alone\n", done.stderr
