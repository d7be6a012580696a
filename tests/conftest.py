"""What all tests share: the same examples in every run. HYPOTHESIS_PROFILE=explore looks for new ones.

Tables that tests give as the property "table" are shown at the end of the run, whichever process ran the test. So are
lines of the property "row", each with the name of the table that it is part of.
"""

import os

from hypothesis import settings

settings.register_profile("same", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True, max_examples=1_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


def pytest_terminal_summary(terminalreporter):
    """Show the tables of the tests that passed."""
    reports = terminalreporter.getreports("passed")
    tables = sorted(
        (report.nodeid, text) for report in reports for name, text in report.user_properties if name == "table"
    )
    for nodeid, table in tables:
        terminalreporter.section(nodeid.rpartition("::")[2], sep="-")
        terminalreporter.line(table)
    rows = sorted({tuple(row) for report in reports for name, row in report.user_properties if name == "row"})
    for title in dict.fromkeys(title for title, _ in rows):
        terminalreporter.section(title, sep="-")
        for _, line in [row for row in rows if row[0] == title]:
            terminalreporter.line(line)
