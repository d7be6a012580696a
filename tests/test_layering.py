"""Which room may import which: the house's floors, checked on the syntax tree of every module."""

import ast
from collections.abc import Iterator
from pathlib import Path

import perdure
import pytest

ROOT = Path(perdure.__file__).parent

ROOMS = (
    "chord",
    "storage",
    "supervisors",
    "actors.runtime",
    "actors.models",
    "actors.session",
    "actors.task",
    "actors.conversation",
    "actors.agent",
    "actors.tools",
    "actors.gateway",
    "actors.cli",
    "actors.system",
    "actors.chaos",
)
MAY_IMPORT = {
    "chord": set(),
    "storage": {"chord"},
    "supervisors": {"storage.records"},
    "actors.runtime": {"chord.errors", "supervisors"},
    "actors.models": {"chord"},
    "actors.session": {"chord", "storage", "supervisors", "actors.runtime"},
    "actors.task": {"chord", "storage", "supervisors", "actors.runtime", "actors.session"},
    "actors.conversation": {"chord", "storage", "actors.models", "actors.session", "actors.task"},
    "actors.agent": {
        "chord",
        "storage",
        "actors.runtime",
        "actors.models",
        "actors.session",
        "actors.task",
        "actors.conversation",
    },
    "actors.tools": {
        "chord",
        "storage",
        "actors.runtime",
        "actors.models",
        "actors.session",
        "actors.task",
        "actors.conversation",
        "actors.agent",
    },
    "actors.gateway": {"chord", "events", "models"},
    "actors.cli": {
        "chord",
        "storage",
        "actors.runtime",
        "actors.models",
        "actors.session",
        "actors.conversation",
        "actors.tools",
        "actors.gateway",
        "actors.system",
    },
    "actors.system": set(ROOMS) - {"actors.chaos"},
    "actors.chaos": set(ROOMS),
}
PYKKA_ROOMS = {"actors.runtime"}
PUBLIC_ONLY = {"actors.gateway"}
"""Rooms that are built on what any user could import: beside the rooms above, on the package's public names."""
FACES = {"__init__", "__main__", "events", "gateway", "models", "testing"}
"""Modules that only name what is public; they may import every room."""


def modules() -> list[Path]:
    paths = [path for room in ("actors", "chord", "storage", "supervisors") for path in (ROOT / room).rglob("*.py")]
    return sorted([*paths, *ROOT.glob("*.py")])


def dotted(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def room_of(module: str) -> str | None:
    return next((room for room in ROOMS if module == room or module.startswith(f"{room}.")), None)


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Yield line and dotted name of everything that a module imports; relative names as seen from the package's root."""
    package = path.parent.relative_to(ROOT).parts
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, f"/{alias.name}") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.lineno, f"/{node.module}"
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1]
            prefix = ".".join([*base, *filter(None, [node.module])])
            yield from ((node.lineno, f"{prefix}.{alias.name}") for alias in node.names)


def allowed(room: str, imported: str) -> bool:
    target = room_of(imported)
    if room in PUBLIC_ONLY and imported.removeprefix(".") in perdure.__all__:
        return True
    if target == room:
        return True
    return any(imported == may or imported.startswith(f"{may}.") for may in MAY_IMPORT[room])


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_a_module_imports_only_what_its_room_may(path: Path) -> None:
    module = dotted(path)
    room = room_of(module)
    if module in FACES or module == "":
        return
    assert room is not None or module == "actors", f"{module} stands in no room"
    wrong = [
        f"{module}:{line} imports {name}"
        for line, name in imports(path)
        if not name.startswith("/") and not (room and allowed(room, name))
    ]
    assert not wrong


@pytest.mark.parametrize("path", modules(), ids=dotted)
def test_imports_inside_the_package_are_relative_and_pykka_stays_in_its_room(path: Path) -> None:
    for line, name in imports(path):
        assert not name.startswith("/perdure"), f"{dotted(path)}:{line} imports {name[1:]} absolutely"
        if name.split(".")[0] == "/pykka":
            assert room_of(dotted(path)) in PYKKA_ROOMS, f"{dotted(path)}:{line} imports Pykka"


def test_the_rules_know_every_room_and_nothing_else() -> None:
    folders = {dotted(path.parent / "x").removesuffix(".x") for path in modules()} - {"", "x", "actors"}
    inside = {folder for folder in folders if any(folder.startswith(f"{room}.") for room in ROOMS)}
    assert (folders - inside) | {"actors.system"} == set(ROOMS)


def test_a_forbidden_import_is_noticed() -> None:
    assert not allowed("storage", "actors.session.core")
    assert not allowed("supervisors", "storage.contract.Page")
    assert not allowed("actors.runtime", "storage.records.TaskRecord")
    assert allowed("supervisors", "storage.records.TaskRecord")
