"""The source tree under audit: its Python files, and a search through them.

A part of the tree is a range of its top-level names, so it takes two words to hand one to somebody. Everything comes in
a fixed order and is bounded: the same question gets the same answer.
"""

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

SKIPPED = {"__pycache__", "test", "tests", "idle_test", "site-packages", "dist-packages", "node_modules"}
MAX_FILE_BYTES = 2_000_000
MAX_HITS = 200
MAX_TEXT = 160


class Hit(NamedTuple):
    """A line that matches, and the lines after it."""

    path: str
    line: int
    text: str
    after: tuple[str, ...] = ()


class Tree:
    """The Python source below a directory, tests and installed packages left out."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def names(self) -> list[str]:
        """The top-level entries that hold source, in order."""
        found = (path for path in self.root.iterdir() if path.suffix == ".py" or path.is_dir())
        return sorted(path.name for path in found if not _skipped(path) and any(_sources(path)))

    def part(self, first: str = "", last: str = "") -> list[str]:
        """The top-level entries from ``first`` to ``last``; left out, they are the tree's own."""
        return [name for name in self.names() if first <= name and (not last or name <= last)]

    def files(self, name: str) -> list[Path]:
        """The source files of one top-level entry."""
        return list(_sources(self.root / name))

    def grep(self, pattern: str, first: str = "", last: str = "", after: int = 0) -> list[Hit]:
        """Search a part line by line. Raises re.error."""
        expression = re.compile(pattern, re.MULTILINE)
        files = (path for name in self.part(first, last) for path in self.files(name))
        return list(islice((hit for path in files for hit in self._hits(path, expression, after)), MAX_HITS))

    def _hits(self, path: Path, expression: re.Pattern[str], after: int) -> Iterator[Hit]:
        source = path.read_text(errors="replace")
        numbers = sorted({source.count("\n", 0, match.start()) for match in expression.finditer(source)})
        lines = source.split("\n") if numbers else []
        for number in numbers:
            text, *following = (line.strip()[:MAX_TEXT] for line in lines[number : number + 1 + after])
            yield Hit(path.relative_to(self.root).as_posix(), number + 1, text, tuple(following))


def _skipped(path: Path) -> bool:
    return path.name in SKIPPED or path.name.startswith(".") or path.is_symlink()


def _sources(path: Path) -> Iterator[Path]:
    if path.is_dir():
        for child in sorted(path.iterdir()):
            if not _skipped(child):
                yield from _sources(child)
    elif path.suffix == ".py" and path.stat().st_size <= MAX_FILE_BYTES:
        yield path


# --- hits as text, and back: what a tool says and what a model reads


def hits_as_text(hits: list[Hit]) -> str:
    """Write hits as ``path:line: text``, with the lines after each indented."""
    lines = [f"{len(hits)} hits" + (f" (there may be more: the limit is {MAX_HITS})" if len(hits) == MAX_HITS else "")]
    for hit in hits:
        lines += [f"{hit.path}:{hit.line}: {hit.text}", *(f"    | {line}" for line in hit.after)]
    return "\n".join(lines)


def hits_from_text(text: str) -> list[Hit]:
    """Read what ``hits_as_text`` wrote."""
    hits: list[Hit] = []
    for line in text.split("\n"):
        if line.startswith("    |") and hits:
            hits[-1] = hits[-1]._replace(after=(*hits[-1].after, line[6:]))
        elif match := re.match(r"(.+?):(\d+): ?(.*)", line):
            hits.append(Hit(match[1], int(match[2]), match[3]))
    return hits
