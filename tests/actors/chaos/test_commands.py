import subprocess
import sys
from pathlib import Path

import pytest
from perdure.actors.chaos.commands import app
from perdure.actors.chaos.names import find, reference
from perdure.actors.chaos.scenarios import SHIPPED
from typer.testing import CliRunner

from .support import Careless

SUPPORT = Path(__file__).parent / "support.py"
SCENARIOS = """
from perdure.testing import Scenario

class Idle(Scenario):
    name = "idle"

    async def run(self, system):
        await (await system.session("a")).root()

class Broken(Idle):
    name = "broken"

    def check(self, stored):
        assert len(stored["a"].conversations) == 2, "there is one conversation"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(SCENARIOS)
    return path


def said(*arguments):
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.output


def test_a_shipped_scenario_is_explored_by_its_name():
    code, output = said("explore", "migration", "--pairs", "2", "--actors", "2")
    assert code == 0
    assert output.startswith("migration on memory: ")
    assert output.endswith("2 actors, 2 pairs: 0 violations\n")


def test_a_scenario_of_ones_own_is_explored_by_its_file(file):
    code, output = said("explore", f"{file}:Idle", "--backend", "jsonl")
    assert code == 0
    assert "2 points (2 commit)" in output


def test_a_failure_is_replayed_by_the_command_that_it_prints():
    """In another process, as a user does it."""
    command = [sys.executable, "-m", "perdure.testing", "replay", f"{SUPPORT}:Careless", "memory"]
    done = subprocess.run([*command, "after call of act #1"], check=False, capture_output=True, text=True, timeout=50)
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "  end: acted 2 times"
    assert '"event":"crashed"' in done.stdout


def test_a_replay_of_what_holds_ends_well_and_shows_its_trace(file):
    code, output = said("replay", f"{file}:Idle", "memory", "after commit a/1")
    assert code == 0
    assert "1 crashes, 0 violations, trace " in output
    code, output = said("replay", f"{file}:Broken", "sqlite")
    assert code == 1
    assert output.splitlines()[-1] == "  end: there is one conversation"


def test_the_shipped_scenarios_are_listed():
    code, output = said("scenarios")
    assert code == 0
    assert [line.split()[0] for line in output.splitlines()] == list(SHIPPED)


@pytest.mark.parametrize(
    "arguments", [("explore", "migration", "--backend", "paper"), ("replay", "migration", "paper")]
)
def test_a_backend_that_there_is_not_is_refused(arguments):
    code, output = said(*arguments)
    assert code == 2
    assert "expected one of memory, sqlite, jsonl" in output


def test_every_scenario_is_found_by_its_name(file):
    for scenario in SHIPPED.values():
        assert find(reference(scenario)) is scenario
    assert find(reference(Careless)).__name__ == "Careless"
    for unknown in ("nothing", "nowhere.py:X", f"{file}:Nothing", f"{file}:Scenario.name"):
        with pytest.raises(LookupError):
            find(unknown)
