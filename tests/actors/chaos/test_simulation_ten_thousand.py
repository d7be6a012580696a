"""Ten thousand seeds keep all promises. Split so that processes share them evenly."""

import pytest
from perdure.actors.chaos.seeds import simulate_seeds

SEEDS = 10_000
EACH = 250
QUICK = 2_500
"""So many of them in every run of the suite, the others in ``make chaos``."""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "first",
    [pytest.param(first, marks=[pytest.mark.slow] if first >= QUICK else []) for first in range(0, SEEDS, EACH)],
)
def test_seeds_keep_all_promises(first):
    found = simulate_seeds(first=first, seeds=EACH)
    found.check()
    assert found.seeds == EACH
    assert found.schedules > 0.98 * EACH, found
