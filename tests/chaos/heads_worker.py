"""The process that test_kill9_heads.py kills (see lives.py): a life acts one plot."""

import sys
from pathlib import Path

from lives import main

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.chaos.test_heads import PLOTS, World, meddle


class Life:
    """One opening of the store, up to the end of the plot or to its own sudden end."""

    def __init__(self, order):
        self.world = World(PLOTS[order["plot"]], order["store"])

    async def run(self):
        async with self.world.open() as system:
            await self.world.act(system)


if __name__ == "__main__":
    _ = meddle.spec  # loads what makes schemas, once for all lives
    main(Life)
