"""``python -m perdure.testing simulate``: seeds for a time, for a number, or one again."""

import re

import pytest
from perdure.actors.chaos.commands import app
from perdure.actors.chaos.simulation import simulate
from typer.testing import CliRunner

SCENARIO = """
from perdure.testing import Scenario


class Wrong(Scenario):
    async def run(self, system):
        await system.session("a")

    def check(self, stored):
        raise AssertionError("not like that")
"""


def run(*arguments):
    told = CliRunner().invoke(app, ["simulate", *arguments])
    assert told.exception is None or isinstance(told.exception, SystemExit), told.exception
    return told.exit_code, told.stdout


def test_seeds_are_simulated_for_a_time():
    code, said = run("--seconds", "0.5")
    assert code == 0
    assert re.search(r"office: \d+ seeds from \d+, \d+ schedules, .*: 0 violations", said), said


def test_so_many_seeds_are_simulated_from_a_first_one():
    code, said = run("ping-pong", "--seed", "5", "--seeds", "3")
    assert code == 0
    assert "ping-pong: 3 seeds from 5, 3 schedules" in said


def test_one_seed_is_shown_with_its_trace():
    code, said = run("--seed", "7")
    again = simulate(7)
    assert code == 0
    assert said.splitlines()[:-1] == list(again.trace.lines())
    assert again.digest in said.splitlines()[-1]


def test_broken_promises_end_with_an_error_and_the_command_to_have_them_again(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SCENARIO)
    code, said = run(f"{file}:Wrong", "--seed", "1", "--seeds", "2")
    assert code == 1
    assert "2 seeds with violations" in said
    replay = re.search(r"again: python -m perdure\.testing (simulate \S+mine\.py:Wrong --seed 2)", said)
    assert replay, said
    code, said = run(*replay[1].split()[1:])
    assert code == 1
    assert "not like that" in said


def test_an_unknown_scenario_is_told():
    told = CliRunner().invoke(app, ["simulate", "nobody", "--seed", "1"])
    assert told.exit_code != 0
    with pytest.raises(LookupError, match="no scenario is called 'nobody'"):
        raise told.exception
