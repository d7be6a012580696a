"""Schedules on SQLite whose process is killed while they come due."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

WORKER = Path(__file__).with_name("schedule_worker.py")
COUNT, KILLS = 24, 6


def worker(what, path):
    return subprocess.Popen([sys.executable, WORKER, what, path], stdout=subprocess.PIPE, text=True)


def test_whenever_the_process_is_killed_each_schedule_is_carried_out_once(tmp_path):
    """B070, B071."""
    path, dice = tmp_path / "s.db", random.Random(5)
    with worker("add", path) as adding:
        assert adding.stdout.readline() == "ready\n"
    for _ in range(KILLS):
        with worker("run", path) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(dice.uniform(0.0, 0.6))  # the kill comes at some instant, whatever is under way then
            process.kill()
    with worker("run", path) as process:
        assert process.stdout.readline() == "ready\n"
        lines = process.stdout.read().splitlines()
    done = Counter(line.rpartition("job ")[2] for line in lines if line.startswith("pi.user"))
    looked_up = [line for line in lines if line.startswith("perdure.lookup")]
    assert done == {str(number): 1 for number in range(COUNT) if number % 4}
    assert len(looked_up) == len(set(looked_up)) == COUNT // 4
    assert all(line.endswith("| noted") for line in looked_up)
