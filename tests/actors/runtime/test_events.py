"""What is logged: every event is in the table, and none is built for nobody."""

import logging
import re
import time

import pytest
import structlog
from perdure.actors.runtime import Actor, ActorSystem, events


class Quiet(Actor):
    def on_receive(self, message):
        return message


def constants():
    return {value for name, value in vars(events).items() if name.isupper() and isinstance(value, str)}


def test_the_table_names_every_event_and_no_other():
    assert set(re.findall(r"^``(\w+)``  ", events.__doc__, re.MULTILINE)) == constants()


async def test_starts_and_stops_are_debug_events(logs):
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
    async with ActorSystem() as system:
        await system.spawn(Quiet, id="q").stop(block=False)
    assert logs == [
        {"event": "actor_started", "actor": "q", "actor_class": "Quiet", "log_level": "debug"},
        {"event": "actor_stopped", "actor": "q", "actor_class": "Quiet", "log_level": "debug"},
    ]


async def test_an_application_that_did_not_configure_structlog_sees_no_debug_events(capsys):
    structlog.reset_defaults()
    async with ActorSystem() as system:
        await system.spawn(Quiet).stop(block=False)
    assert capsys.readouterr().out == ""
    assert not events.debug_enabled()


async def test_debug_events_are_not_built_when_the_level_hides_them(monkeypatch):
    monkeypatch.setattr(events, "debug", lambda *args, **fields: pytest.fail("built"))
    async with ActorSystem() as system:
        await system.spawn(Quiet).stop(block=False)


async def test_twenty_thousand_actors_live_and_die_in_about_a_second():
    """The figure proper is in tests/bench/bench_messages.py; this one only fails when something is badly off."""
    async with ActorSystem() as system:
        began = time.process_time()
        refs = [system.spawn(Quiet) for _ in range(20_000)]
        for future in [ref.stop(block=False) for ref in refs]:
            await future
        assert time.process_time() - began < 3
