"""Making the application: what it needs, what it refuses, and that it costs nothing until it is used."""

import subprocess
import sys

import perdure
import pytest
from perdure.actors.gateway import app
from perdure.gateway import create_app

from .support import TOKEN, go, opened


def test_a_token_is_asked_for():
    async def main():
        async with opened() as system:
            with pytest.raises(perdure.InvalidValue, match="16 characters"):
                create_app(system, token="short")
            assert len(create_app(system, token=TOKEN).routes) > 20

    go(main)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    """B173: a missing extra is named with the line that installs it."""
    monkeypatch.setattr(app, "find_spec", lambda name: None)
    with pytest.raises(perdure.MissingExtra, match=r"perdure\[web\]"):
        create_app(None, token=TOKEN)


def test_naming_the_gateway_imports_no_server():
    """B173: the module can be imported, and its names read, without the extra."""
    code = "import sys, perdure.gateway; print([name for name in ('starlette', 'uvicorn') if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
