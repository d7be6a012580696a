import asyncio

import pytest
from perdure.actors.chaos.trace import Answered, Began
from perdure.testing import Scenario

from .support import KEY, Once, run


def test_what_a_caller_hears_is_in_the_trace():
    answers = run(Once()).trace.of(Answered)
    assert [(one.session, one.about, one.record.status) for one in answers] == [
        (KEY, "job", "placed"),
        (KEY, "job", "done"),
    ]


def test_the_world_of_a_scenario_lives_on_over_all_lives():
    scenario = Once()
    report = run(scenario, "after call of act #1", "before commit a/8")
    assert report.crashed == 2
    assert scenario.done == 1
    assert len([one for one in report.trace.of(Began) if one.name == "act"]) == 1


def test_a_scenario_has_work():
    with pytest.raises(NotImplementedError):
        asyncio.run(Scenario().run(None))
