"""A disk whose flushes cost what they cost on common hardware, for benchmarks on machines whose disk flushes for nothing.

A flush takes 0.5 to 5 ms on most consumer SSDs and network disks, and under 0.1 ms where a host caches writes. The shim adds
a fixed time to every fsync and fdatasync of the process, so both sides of a comparison pay it.
"""

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

SHIM = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static int flush(const char *name, int fd) {
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
    usleep(ADDED_US);
    return real(fd);
}
int fsync(int fd) { return flush("fsync", fd); }
int fdatasync(int fd) { return flush("fdatasync", fd); }
"""


def rerun_with_slow_disk(added_ms: float, folder: Path) -> int:
    """Run this program again, every flush of it taking ``added_ms`` longer; gives its exit status. Needs ``cc``."""
    source, library = folder / "shim.c", folder / "shim.so"
    source.write_text(SHIM)
    flags = ["-shared", "-fPIC", f"-DADDED_US={round(added_ms * 1_000)}"]
    subprocess.run(["cc", *flags, "-o", library, source, "-ldl"], check=True)
    return subprocess.run(
        [sys.executable, *sys.argv], env={**os.environ, "LD_PRELOAD": str(library)}, check=False
    ).returncode


def flush_ms(folder: Path) -> float:
    """Median time of flushing 4 KiB, in ms."""
    times = []
    file = os.open(folder / "flush.bin", os.O_CREAT | os.O_WRONLY)
    for _ in range(200):
        os.write(file, b"x" * 4096)
        began = time.perf_counter()
        os.fdatasync(file)
        times.append(time.perf_counter() - began)
    os.close(file)
    return statistics.median(times) * 1e3
