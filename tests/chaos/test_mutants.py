"""Every deliberate fault is caught by crashing the shipped scenarios. None survives."""

import subprocess
import sys
from pathlib import Path

import pytest

from .mutants import MUTANTS

RUNNER = Path(__file__).with_name("mutant_runner.py")


@pytest.mark.timeout(280)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_deliberate_fault_is_caught(mutant, record_property):
    run = subprocess.run(
        [sys.executable, RUNNER, mutant.name], capture_output=True, text=True, timeout=270, check=False
    )
    assert run.returncode == 0, f"{mutant.name}: {run.stdout}{run.stderr}"
    record_property("row", ["deliberate faults", f"{mutant.name:<50} {run.stdout.strip()}"])


def test_there_are_enough_of_them():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
