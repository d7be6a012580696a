"""SDK clients, made late and kept per event loop.

Importing an SDK takes seconds and building a client reads certificates, so both happen in a thread, at the first
request. A client's connections belong to the loop that opened them, so every loop has its own client: one model object
may serve a daemon's background loop and a test's short ones alike.
"""

import asyncio
import importlib
import os
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any
from weakref import WeakKeyDictionary

from . import pricing

SECRET_ENV = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY")
"""What the SDKs take for credentials by themselves."""
LEAST_SECRET = 8
HIDDEN = "[hidden]"


class Clients:
    """The clients of one server. `make` gets the SDK's module and builds one; `secrets` are what it is given for that."""

    def __init__(self, sdk: str, make: Callable[[ModuleType], Any], *, secrets: Iterable[str | None] = ()) -> None:
        self._sdk = sdk
        self._make = make
        self._secrets = tuple(secrets)
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()

    async def get(self) -> Any:
        """The running loop's client."""
        loop = asyncio.get_running_loop()
        client = self._clients.get(loop)
        if client is None:
            client = self._clients.setdefault(loop, await asyncio.to_thread(self._build))
        return client

    def hide(self, text: str, more: Iterable[str] = ()) -> str:
        """Take credentials out of a text: servers repeat them in what they say of a failure, and that is stored.

        ``more`` are others that went with the request. Of a header like ``Bearer <key>`` the key alone is one, too.
        """
        given = [one for one in (*self._secrets, *(os.environ.get(name) for name in SECRET_ENV), *more) if one]
        known = {*given, *(words[1] for one in given if len(words := one.split()) == 2)}
        for secret in sorted((one for one in known if len(one) >= LEAST_SECRET), key=len, reverse=True):
            text = text.replace(secret, HIDDEN)
        return text

    async def aclose(self) -> None:
        """Close the running loop's client and its idle connections; a later request opens a new one."""
        client = self._clients.pop(asyncio.get_running_loop(), None)
        if client is not None:
            await client.close()

    def _build(self) -> Any:
        pricing.load()
        return self._make(importlib.import_module(self._sdk))
