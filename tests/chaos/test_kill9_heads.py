"""Compactions, resets, handoffs, steers and follow-ups in a process that is killed with SIGKILL at random instants."""

import asyncio
import random
import time

import pytest

from .test_heads import PLOTS, World
from .test_kill9 import worker

SEED = 20_261_130
KILLS = 4
"""Of each plot, at most: a life that was faster counts, too."""


@pytest.fixture(scope="module")
def lives(tmp_path_factory):
    with worker(tmp_path_factory.mktemp("lives"), "heads_worker.py") as process:
        yield process


def begun(plot, path):
    """Give a store the history that a plot begins with."""
    world = World(PLOTS[plot], str(path))
    asyncio.run(world.begin())
    return world, {"plot": plot, "store": str(path)}


@pytest.mark.parametrize("plot", PLOTS)
def test_whenever_the_process_is_killed_the_next_one_completes_what_was_begun(plot, lives, tmp_path):
    """B122, CO-18, must show 4 of issue 6: at instants spread over a life, as long as one takes undisturbed."""
    _, undisturbed = begun(plot, tmp_path / "undisturbed.db")
    start = time.perf_counter()
    lives.begin(undisturbed)
    lives.finish()
    life_s = time.perf_counter() - start
    world, order = begun(plot, tmp_path / "s.db")
    dice = random.Random(f"{SEED}{plot}")
    for _ in range(KILLS):
        lives.begin(order)
        lives.kill_after(dice.uniform(0.1, 1.0) * life_s)
    asyncio.run(world.check())
