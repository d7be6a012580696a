"""B173: optional parts without their extra."""

import subprocess
import sys

import perdure
import pytest
from perdure.actors.tools.extras import require


def without(package, code):
    """Run code in a process that has no such package."""
    block = f"import sys; sys.modules[{package!r}] = None\n"
    return subprocess.run([sys.executable, "-c", block + code], check=True, capture_output=True, text=True).stdout


def test_without_the_extra_a_server_is_refused_at_once_with_the_line_that_installs_it():
    """B173"""
    code = (
        "import perdure\n"
        "for make in (lambda: perdure.McpServer.stdio('x', ['y']), lambda: perdure.McpServer.http('x', 'http://y')):\n"
        "    try: make()\n"
        "    except perdure.MissingExtra as error: print(error, error.extra, isinstance(error, ImportError))\n"
    )
    lines = without("mcp", code).splitlines()
    assert len(lines) == 2
    assert all("pip install 'perdure[mcp]'" in line and line.endswith("mcp True") for line in lines)


def test_without_the_extra_every_module_can_be_imported():
    """B173"""
    code = (
        "import importlib, pkgutil, perdure.actors.tools as room\n"
        "print(len([importlib.import_module(f'{room.__name__}.{one.name}') for one in pkgutil.iter_modules(room.__path__)]))\n"
    )
    assert int(without("mcp", code)) > 10


def test_an_extra_that_is_there_is_not_imported_by_asking():
    require("mcp", "mcp")
    with pytest.raises(perdure.MissingExtra, match="no_such_package"):
        require("x", "no_such_package")
