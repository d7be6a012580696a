"""A process that forks lives, for tests that kill them: it imports everything once, so that a life costs its run alone.

It forks a life for each order that it reads, a line of JSON, and answers with the life's pid at its beginning and with its
exit status at its end.
"""

import asyncio
import json
import os
import sys
import traceback

import structlog


class Diary:
    """What a life has seen and done, each line on the disk before the life goes on."""

    def __init__(self, path):
        self._file = open_lines(path)

    def write(self, event, **facts):
        append_line(self._file, json.dumps({"event": event, **facts}))


def open_lines(path):
    """Open a file to append lines to it, without the one that the last life was killed over."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    held = os.pread(file, os.fstat(file).st_size, 0)
    os.ftruncate(file, held.rfind(b"\n") + 1)
    return file


def append_line(file, line):
    os.write(file, line.encode() + b"\n")
    os.fsync(file)


def live(life, order):
    try:
        asyncio.run(life(order).run())
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def main(life):
    """Fork a ``life(order)`` for each order; its coroutine ``run`` is what the life does."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            live(life, json.loads(line))
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
