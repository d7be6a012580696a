"""A daemon that is killed at random instants while its agent runs commands: none is run twice, none is left."""

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import perdure
import pytest

from ..conversation.support import go
from .desk import desk, results, said
from .processes import alive, until

pytestmark = pytest.mark.timeout(180)  # programs are started, and a busy machine takes long for that
COMMANDS, KILLS = 8, 5


def life(folder):
    """Begin a life of the daemon; it is at work when this returns."""
    script = Path(__file__).with_name("commands_worker.py")
    arguments = [sys.executable, str(script), str(folder), str(COMMANDS)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "open\n"
    return process


def lines(path):
    return path.read_text().splitlines() if path.exists() else []


def test_killed_at_any_instant_no_command_runs_twice_and_none_is_left(tmp_path):
    """B091, B092, B098"""
    dice = random.Random(4711)
    for _ in range(KILLS):
        with life(tmp_path) as process:
            time.sleep(dice.uniform(0.0, 0.4))
            process.kill()
    with life(tmp_path) as process:
        assert process.stdout.readline() == "done\n"

    async def outcome():
        async with desk(tmp_path, storage=perdure.SqliteStorage(tmp_path / "s.db"), brain=lambda request: "") as s:
            return [said(result) for result in await results(s.root)]

    answered = go(outcome)
    assert len(answered) == COMMANDS
    finished = Counter(lines(tmp_path / "done"))
    assert set(finished.values()) <= {1}, "a command ran twice"
    assert any("was interrupted" in text for text in answered), "no kill hit a command"
    for number, text in enumerate(answered):
        assert str(number) in finished or "was interrupted" in text
    go(lambda: until(lambda: not any(alive(pid) for pid in lines(tmp_path / "started"))))
