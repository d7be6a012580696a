"""The night shift: agents audit a source tree while their process is killed again and again.

    python examples/night_shift.py                       audit this Python's standard library
    python examples/night_shift.py some/dir --kills 5    audit another tree, with more crashes
    python examples/night_shift.py --model anthropic/... the same on a real model (its key in the environment)

A daemon runs a director, who splits the tree over three auditors working in parallel; they read files and file tickets
in a ledger that perdure knows nothing of. A launcher kills the daemon with SIGKILL in the middle of its work and starts
it again on the same SQLite file, until the report is there. Then it checks that nothing was lost and nothing done twice.
Read on in night_shift/__init__.py.
"""

import sys

from night_shift.launcher import main

if __name__ == "__main__":
    sys.exit(main())
