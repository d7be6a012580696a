"""The process that test_kill9_heads.py kills: it forks a life of one plot for each order, a line of JSON."""

import asyncio
import json
import os
import sys
import traceback
from pathlib import Path

import structlog

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.chaos.test_heads import PLOTS, World, meddle


def live(order):
    async def act():
        world = World(PLOTS[order["plot"]], order["store"])
        async with world.open() as system:
            await world.act(system)

    try:
        asyncio.run(act())
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main():
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    _ = meddle.spec  # loads what makes schemas, once for all lives
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            live(json.loads(line))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
