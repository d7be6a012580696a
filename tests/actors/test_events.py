"""What is logged about actors, sessions and tasks: the table of events is complete, and the events say what it says."""

import ast
import asyncio
import logging
import re
from pathlib import Path

import perdure
import pytest
import structlog
from perdure import Backoff, MemoryStorage, Restart, VirtualClock
from perdure.actors.runtime import events as of_actors
from perdure.actors.task import events as of_tasks
from structlog.testing import capture_logs

from .task.support import Script, Scripted, home, opened, outcome, scripted, start

ROOT = Path(perdure.__file__).parent
ROW = re.compile(r"^\| `(\w+)` \| (\w+) \| ([^|]*) \|", re.MULTILINE)
LEVELS = ("debug", "info", "warning", "error", "exception")


def rows():
    """Event, level and fields of every row."""
    found = ROW.findall((ROOT / "docs/events.md").read_text())
    return [(event, level, frozenset(fields.split(", "))) for event, level, fields in found]


def table():
    """Level and fields by event."""
    return {event: (level, set(fields)) for event, level, fields in rows()}


def constants(module):
    return {value for name, value in vars(module).items() if name.isupper() and isinstance(value, str)}


def literals(tree):
    """Event, level and fields of everything that a module logs by ``log.level("event", field=...)``."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.Name("log"), level), [ast.Constant(str() as event)]) if level in LEVELS:
                fields = {keyword.arg for keyword in node.keywords}
                if level == "exception":
                    level, fields = "error", fields | {"exc_info"}
                yield event, level, frozenset(fields)


def logged():
    return {one for path in (ROOT / "actors").rglob("*.py") for one in literals(ast.parse(path.read_text()))}


def test_the_table_names_every_event_and_no_other():
    assert len(rows()) == len(set(rows()))
    assert {event for event, *_ in rows()} == constants(of_actors) | constants(of_tasks) | {
        event for event, *_ in logged()
    }


def test_the_table_tells_the_levels_and_fields():
    assert logged() - set(rows()) == set()


def test_no_event_is_logged_in_a_way_that_the_table_cannot_be_compared_with():
    other = re.compile(r"\blog\.(?:debug|info|warning|error|exception|critical)\((?!\s*\")")
    assert [str(path) for path in (ROOT / "actors").rglob("*.py") if other.search(path.read_text())] == []


CASES = {
    "a task that completes": (None, ["task_started", "task_stopped"]),
    "a task that crashes": (
        {"restart": None},
        ["task_started", "task_crashed", "task_faulted", "task_stopped"],
    ),
    "a task that crashes, restarts and crashes again": (
        {"restart": Restart(max=1, within=60.0, backoff=Backoff(first_s=1.0))},
        [
            *("task_started", "task_crashed", "task_restarting", "task_stopped"),
            *("task_started", "task_crashed", "task_escalated", "task_faulted", "task_stopped"),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_life_of_a_task_is_logged_with_the_fields_of_the_table(case):
    async def main():
        crashes, expected = CASES[case]
        kind = Scripted if crashes is None else scripted(**crashes)
        script = Script()

        async def run(run):
            raise RuntimeError("broken")

        if crashes is not None:
            script.on("a", run=run)
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG))
        with capture_logs() as logs:
            async with opened(MemoryStorage(), script, kind, clock=VirtualClock(autojump=True)) as system:
                _, root = await home(system)
                await outcome(await start(root, "a", kind=kind))
        told = [log for log in logs if log["event"].startswith("task_")]
        assert [log["event"] for log in told] == expected
        for log in told:
            level, fields = table()[log["event"]]
            assert (log["log_level"], set(log) - {"event", "log_level"}) == (level, fields)

    try:
        asyncio.run(main())
    finally:
        structlog.reset_defaults()


def test_a_logger_that_raises_ends_no_task():
    def broken(*_):
        raise RuntimeError("no space left for logs")

    async def main():
        script, kind = Script(), scripted(restart=Restart(max=1, within=60.0))
        tries = []

        async def run(run):
            tries.append(run.now())
            if len(tries) == 1:
                raise RuntimeError("broken")
            await run.complete("a")

        script.on("a", run=run)
        async with opened(MemoryStorage(), script, kind, clock=VirtualClock(autojump=True)) as system:
            _, root = await home(system)
            structlog.configure(processors=[broken])
            assert await (await start(root, "a", kind=kind)).result() == "a"

    try:
        asyncio.run(main())
    finally:
        structlog.reset_defaults()
