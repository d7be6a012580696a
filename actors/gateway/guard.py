"""Who may come in: names of this host, pages of our own, holders of the token, at a bearable rate. Decisions only.

A page of another site can have a browser send requests here, and can have its own name point here (rebinding). So neither a
foreign Origin nor a foreign Host passes, and the token is asked for all the same. Proved by tests/actors/gateway/test_guard.py.
"""

import hmac
from collections import OrderedDict
from collections.abc import Collection, Mapping

import msgspec

from ... import InvalidValue
from .refusals import Refused

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
MIN_TOKEN = 16
MAX_BUCKETS = 4_096


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one client may ask for, and how much everybody.

    Sizes are bytes: ``request_bytes`` of a body or of a frame that comes in, ``frame_bytes`` of one that goes out (what is
    larger goes in parts). Rates are per second, with ``burst`` at once: commands of one socket, requests of one address.
    ``hello_s`` is how long a socket may take to say who it is.
    """

    request_bytes: int = 2 * 2**20
    frame_bytes: int = 256 * 2**10
    sockets: int = 1_000
    strangers: int = 64
    attachments: int = 64
    waiting: int = 16
    per_s: float = 50.0
    burst: int = 200
    hello_s: float = 10.0


class Guard:
    """Decides by a request's headers. ``hosts`` and ``origins`` are let in beside the names of the loopback interface."""

    def __init__(self, token: str, hosts: Collection[str] = (), origins: Collection[str] = ()) -> None:
        if not isinstance(token, str) or len(token) < MIN_TOKEN:
            raise InvalidValue(
                f"a token is text of at least {MIN_TOKEN} characters; make one with secrets.token_urlsafe()"
            )
        self._token = token.encode()
        self._hosts = LOOPBACK | {host.lower() for host in hosts}
        self._origins = {origin.lower() for origin in origins}

    def check_place(self, headers: Mapping[str, str]) -> None:
        """Refuse names that are not ours, and pages that are not. Raises Refused."""
        host = headers.get("host", "").lower()
        if name_of(host) not in self._hosts:
            raise Refused("foreign_host", "this host name is not served here", 403)
        origin = headers.get("origin")
        if origin is not None and not self._ours(origin.lower(), host):
            raise Refused("foreign_origin", "pages of this origin may not use this gateway", 403)

    def _ours(self, origin: str, host: str) -> bool:
        return origin in self._origins or origin in (f"http://{host}", f"https://{host}")

    def check_bearer(self, headers: Mapping[str, str]) -> None:
        """Refuse a request without the token. Raises Refused."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self.knows(token.strip()):
            raise Refused("wrong_token", "send the token: Authorization: Bearer <token>", 401)

    def knows(self, token: str) -> bool:
        """Tell whether this is the token, in a time that does not depend on how much of it is right."""
        return hmac.compare_digest(self._token, token.encode(errors="replace"))


def name_of(host: str) -> str:
    """Give a Host header's name without its port; "" for what is none."""
    name, colon, port = host.rpartition(":")
    if host.endswith("]") or not colon:
        return host
    return name if port.isdigit() else ""


class Rate:
    """Tokens of one bucket, full at first: ``take`` one, or learn how long to wait."""

    __slots__ = ("_at", "_burst", "_left", "_per_s")

    def __init__(self, per_s: float, burst: int, now: float) -> None:
        self._per_s, self._burst, self._left, self._at = per_s, burst, float(burst), now

    def take(self, now: float) -> float:
        """Take one at a time in seconds; give how many seconds there are until there is one, 0.0 if this was it."""
        self._left = min(float(self._burst), self._left + (now - self._at) * self._per_s)
        self._at = now
        if self._left < 1.0:
            return (1.0 - self._left) / self._per_s
        self._left -= 1.0
        return 0.0


class Rates:
    """A bucket for each address. Only the latest are remembered, so that no number of addresses fills memory."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._by_address: OrderedDict[str, Rate] = OrderedDict()

    def check(self, address: str, now: float) -> None:
        """Count a request. Raises Refused."""
        rate = self._by_address.pop(address, None) or Rate(self._limits.per_s, self._limits.burst, now)
        self._by_address[address] = rate
        if len(self._by_address) > MAX_BUCKETS:
            self._by_address.popitem(last=False)
        slow_down(rate.take(now))


def slow_down(wait_s: float) -> None:
    """Refuse who has to wait. Raises Refused."""
    if wait_s > 0:
        raise Refused("rate_limited", "too many requests; wait a moment", 429, retry_after_s=round(wait_s + 0.001, 3))
