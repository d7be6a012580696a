"""The map in the package's docstring is true, and the public names are listed."""

import ast
import pathlib
import re

from perdure.actors import runtime

FOLDER = pathlib.Path(runtime.__file__).parent


def modules_of_the_map():
    rows = re.findall(r"^    ([a-z_]+(?:, [a-z_]+)*)  +\w", runtime.__doc__, re.MULTILINE)
    return [module for row in rows for module in row.split(", ")]


def imports_at_run_time(module):
    tree = ast.parse((FOLDER / f"{module}.py").read_text())
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.level == 1:
            yield from [statement.module] if statement.module else [name.name for name in statement.names]


def test_the_map_names_every_module():
    assert sorted(modules_of_the_map()) == sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__")


def test_a_module_imports_only_what_stands_before_it_in_the_map():
    order = modules_of_the_map()
    for module in order:
        for imported in imports_at_run_time(module):
            assert order.index(imported) < order.index(module), f"{module} imports {imported}"


def test_the_public_names_are_sorted_and_there():
    assert runtime.__all__ == sorted(runtime.__all__)
    assert all(hasattr(runtime, name) for name in runtime.__all__)
