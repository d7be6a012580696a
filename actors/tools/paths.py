"""From the path that a tool was given to the file that it may touch.

A root confines file operations: neither ``..`` nor a link leads out. It is no sandbox: commands go where they like, and
may swap a link between the check and the use. Proved by tests/actors/tools/test_paths.py.
"""

import os
from collections.abc import Sequence

from .environment import FileError


def absolute(cwd: str, path: str) -> str:
    """Make a path absolute and take ``.`` and ``..`` out of it. Raises FileError for what no path can be."""
    if not isinstance(path, str) or not path or "\0" in path:
        raise FileError("invalid", str(path), "a path is text that is not empty and has no NUL in it")
    try:
        os.fsencode(path)
    except UnicodeEncodeError:
        raise FileError("invalid", ascii(path), "this text cannot name a file") from None
    return os.path.normpath(os.path.join(cwd, path))


def confined(path: str, roots: Sequence[str], *, follow: bool) -> str:
    """Give the path to use for an absolute one: where its links lead, for ``follow`` those of its last part too.

    Raises FileError when that is below none of the roots; without any roots the path is used as it is.
    """
    if not roots:
        return path
    real = os.path.realpath(path) if follow else _real_parent(path)
    if not any(_below(real, os.path.realpath(root)) for root in roots):
        raise FileError("outside_root", path, f"is outside of {roots[0]}, and only what is inside may be used")
    return real


def _real_parent(path: str) -> str:
    parent, name = os.path.split(path)
    return os.path.join(os.path.realpath(parent), name)


def _below(path: str, root: str) -> bool:
    return path == root or path.startswith(root.rstrip(os.sep) + os.sep)
