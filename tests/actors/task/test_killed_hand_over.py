"""P5: an actor that is killed and restarted runs the code that is installed now, not what its first incarnation was given."""

import asyncio

from perdure.actors.chaos.backends import Memory
from perdure.actors.chaos.life import perform
from perdure.actors.chaos.points import Crash
from perdure.actors.chaos.scenarios.migration import Migration
from perdure.actors.chaos.trace import Committed


def test_a_task_that_is_killed_while_it_runs_old_code_goes_on_with_the_new_one():
    """Found by the crash explorer: it ran one more phase of the definition that had been replaced, or all of them."""
    learned = asyncio.run(perform(Migration(), Memory()))
    (task,) = {actor for one in learned.reached for actor in one.actors if actor.startswith("task:")}
    for event in learned.trace.of(Committed):
        for side in ("before", "after"):
            crash = Crash.parse(f"{side} commit a/{event.batch.seq}: {task}")
            report = asyncio.run(perform(Migration(), Memory(), [crash]))
            assert report.violations == [], str(crash)
