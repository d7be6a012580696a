"""Decisions about who may come in, and how fast."""

import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.gateway.guard import Guard, Limits, Rate, Rates, name_of
from perdure.actors.gateway.refusals import Refused

TOKEN = "0123456789abcdef"


def test_a_short_token_is_no_token():
    for token in ("", "short", None, b"0123456789abcdef"):
        with pytest.raises(perdure.InvalidValue):
            Guard(token)


@given(st.text())
def test_only_the_token_is_the_token(text):
    assert Guard(TOKEN).knows(text) == (text == TOKEN)


@given(st.text(alphabet="abc.:[]127/@ ", max_size=20))
def test_no_text_is_taken_for_a_loopback_name_that_is_none(text):
    """B182: only these names, with a port of digits or without."""
    try:
        Guard(TOKEN).check_place({"host": text})
    except Refused:
        return
    name, _, port = text.rpartition(":") if not text.endswith("]") and ":" in text else (text, "", "0")
    assert name in ("localhost", "127.0.0.1", "[::1]")
    assert port.isdigit()


def test_an_origin_is_the_gateways_own_or_named():
    """B181: the page's own origin passes, another port of the same machine does not."""
    guard = Guard(TOKEN, hosts=["agents.example"], origins=["https://front.example"])
    for host, origin in (
        ("127.0.0.1:8420", "http://127.0.0.1:8420"),
        ("localhost:8420", "http://localhost:8420"),
        ("agents.example", "https://agents.example"),
        ("127.0.0.1:8420", "https://front.example"),
    ):
        guard.check_place({"host": host, "origin": origin})
    for origin in ("http://127.0.0.1:9999", "http://localhost:8420", "null", "", "http://127.0.0.1:8420.evil.example"):
        with pytest.raises(Refused):
            guard.check_place({"host": "127.0.0.1:8420", "origin": origin})


def test_names_are_read_with_and_without_ports():
    assert [name_of(host) for host in ("a", "a:1", "[::1]", "[::1]:1", "a:", "a:b")] == [
        "a",
        "a",
        "[::1]",
        "[::1]",
        "",
        "",
    ]


@given(st.lists(st.floats(0, 3), max_size=60), st.floats(0.5, 20), st.integers(1, 10))
def test_nobody_gets_more_than_the_burst_and_the_rate(pauses, per_s, burst):
    rate, now, taken = Rate(per_s, burst, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        wait = rate.take(now)
        taken += wait == 0
        assert taken <= burst + now * per_s + 1e-6
        if wait:
            assert rate.take(now + wait + 1e-6) == 0
            now += wait + 1e-6
            taken += 1


def test_addresses_have_buckets_of_their_own_and_only_so_many():
    rates = Rates(Limits(per_s=1.0, burst=1))
    rates.check("a", 0.0)
    rates.check("b", 0.0)
    with pytest.raises(Refused):
        rates.check("a", 0.0)
    for number in range(10_000):
        rates.check(str(number), 0.0)
    assert len(rates._by_address) == 4_096
