"""Every deliberate fault is caught by crashing the shipped scenarios. None survives. Run by ``make chaos``."""

import subprocess
import sys
from pathlib import Path

import pytest

from .mutants import MUTANTS

ROOT = Path(__file__).parents[2]
RUNNER = Path(__file__).with_name("mutant_runner.py")


@pytest.mark.slow
@pytest.mark.timeout(280)
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_deliberate_fault_is_caught(mutant, record_property):
    run = subprocess.run(
        [sys.executable, RUNNER, mutant.name], capture_output=True, text=True, timeout=270, check=False
    )
    assert run.returncode == 0, f"{mutant.name}: {run.stdout}{run.stderr}"
    record_property("row", ["deliberate faults", f"{mutant.name:<50} {run.stdout.strip()}"])


def test_there_are_enough_of_them_and_each_fits_the_source():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
    for mutant in MUTANTS:
        source = (ROOT / f"{mutant.module.replace('.', '/')}.py").read_text()
        assert source.count(mutant.old) == 1, f"{mutant.name}: the source has changed"
