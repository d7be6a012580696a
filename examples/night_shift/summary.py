"""What is printed in the end: the report, what the crashes have cost, and whether all promises were kept."""

import textwrap
from collections.abc import Sequence

from .judge import Check, Shift, Transcripts, filed_before_the_crash, wasted_tokens

WIDTH = 110


def print_report(report: str) -> None:
    """Print what the daemon was asked for."""
    _heading("The report")
    for line in report.split("\n"):
        print(textwrap.fill(line, WIDTH, subsequent_indent="  "))


def print_costs(shift: Shift, transcripts: Transcripts, total: int) -> None:
    """Print for each crash how long it took to be back, and what had to be done again."""
    _heading("What the crashes have cost")
    tokens = wasted_tokens(shift.crashes, transcripts)
    for number, (crash, wasted) in enumerate(zip(shift.crashes, tokens, strict=True), 1):
        done, found = 100 * crash.entries / total, crash.found
        print(
            f"{number}. At {done:.0f} % of the work. The store was recovered in {found.recovered_s * 1_000:.0f} ms,"
            f" the system open in {crash.opened_s * 1_000:.0f} ms, the work went on {crash.back_s:.1f} s after the kill."
        )
        for fate, victims in found.by_fate().items():
            print(f"   {fate}: {victims}")
        if wasted:
            print(f"   {wasted} tokens were streamed in vain")
        if filed := filed_before_the_crash(found, shift.tickets):
            print(
                f"   {filed} of the interrupted calls had filed their ticket; the model looked, and did not file it again"
            )


def print_checks(checks: Sequence[Check]) -> None:
    """Print what was promised, and whether it was kept."""
    _heading("Checks")
    for check in checks:
        print(f"{'FAILED' if check.problems else 'ok    '}  {check.promise}")
        for problem in check.problems:
            print(f"        {problem}")


def _heading(text: str) -> None:
    print(f"\n{text}\n{'-' * len(text)}")
