"""Every shipped scenario, crashed at every single point, at pairs of points, and with single actors killed."""

import pytest
from perdure.actors.chaos.explorer import explore
from perdure.actors.chaos.scenarios import ALL

BACKENDS = {"memory": {"pairs": 4, "actors": 10}, "sqlite": {"pairs": 1, "actors": 1}, "jsonl": {"pairs": 1}}
FEWEST = {
    "payment": 30,
    "parallel": 35,
    "subagents": 90,
    "steering": 35,
    "compaction": 60,
    "fork": 80,
    "approval": 35,
    "interrupt": 35,
    "aborting": 20,
    "ping-pong": 25,
    "migration": 20,
}
"""A scenario with fewer points does not do what it is there for any more."""


@pytest.mark.timeout(300)  # so many runs on a busy machine
@pytest.mark.parametrize(
    "backend", [pytest.param(name, marks=[] if name == "memory" else pytest.mark.slow) for name in BACKENDS]
)
@pytest.mark.parametrize("scenario", ALL, ids=lambda scenario: scenario.name)
def test_whatever_dies_at_any_point_of_a_scenario_everything_holds(scenario, backend, record_property):
    """B092: before and after every commit, effect and hand-over."""
    found = explore(scenario, backend=backend, seed=8, **BACKENDS[backend])
    points = sum(found.points.values())
    kinds = ", ".join(f"{count} {kind}" for kind, count in found.points.items())
    crashed = f"{points:>4} points  {found.actors:>3} actors  {found.pairs:>3} pairs  {found.missed} missed"
    line = f"{scenario.name:<11} {backend:<7} {crashed}"
    record_property("row", ["crash explorer", f"{line}  {len(found.failures)} failures  ({kinds})"])
    found.check()
    assert points >= FEWEST[scenario.name]
    assert found.missed <= points // 20, "what is not there in most runs is no point of the scenario"


def test_every_scenario_has_a_name_of_its_own_and_says_what_it_is():
    assert len({scenario.name for scenario in ALL}) == len(ALL) == len(FEWEST)
    assert all(scenario.__doc__ for scenario in ALL)
