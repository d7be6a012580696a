"""The process that test_stress_kill9.py kills (see lives.py): a life works on in the office of stress.py."""

import json
import sys
import time
from pathlib import Path

from lives import main, open_lines

sys.path.insert(0, str(Path(__file__).parents[2]))

import os

from tests.chaos import scenario, stress


class Life:
    """One opening of the store, up to the end of all work or to its own sudden end.

    What it shows and does is appended to a diary with one system call each: a killed process's writes stay.
    """

    def __init__(self, order):
        self.order = order
        self.diary = open_lines(order["diary"])

    async def run(self):
        born = time.perf_counter()
        async with stress.open_system(
            stress.make_storage(self.order["backend"], self.order["store"]), self._look, self._file
        ) as system:
            self._say({"what": "opened", "ms": (time.perf_counter() - born) * 1_000})
            await stress.work(system, self._say)

    def _look(self, key):
        self._say({"what": "looked", "key": key})

    def _file(self, key):
        self._say({"what": "filed", "key": key})

    def _say(self, facts):
        os.write(self.diary, json.dumps(facts).encode() + b"\n")


if __name__ == "__main__":
    _ = [tool.spec for tool in scenario.extension(print, print).tools]  # loads what makes schemas, once for all lives
    main(Life)
