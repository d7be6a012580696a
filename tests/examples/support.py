"""Where the examples are, how to run one, and a source tree for the night shift."""

import pathlib
import subprocess
import sys

EXAMPLES = pathlib.Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

MODULE = """\
import os, pickle, tempfile

def run(command, data, {name}):
    os.system(command)
    name = tempfile.mktemp("{name}")
    try:
        return pickle.loads(data), eval(command)
    except:
        pass
    # TODO: not thread safe
    print("os.system(command)")  # not eval(command) either
"""


def command(example, *arguments):
    return [sys.executable, *map(str, (EXAMPLES / example, *arguments))]


def run(example, *arguments, **options):
    """Run an example to its end, in not more than 50 s."""
    return subprocess.run(
        command(example, *arguments), check=False, capture_output=True, text=True, timeout=50, **options
    )


def plant(root):
    """Write a source tree with six findings in each of six files, and hits that are none."""
    for name in ("apples", "dates", "lemons", "melons", "pears", "plums"):
        path = root / name / "code.py" if name < "m" else root / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(MODULE.format(name=name))
    (root / "tests").mkdir()
    (root / "tests" / "test_code.py").write_text("eval(code)\n")
    return root
