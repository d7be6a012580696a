import configparser
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager

from .support import EXAMPLES

DAEMON = EXAMPLES / "daemon" / "daemon.py"
UNIT = EXAMPLES / "daemon" / "perdure-watch.service"


@contextmanager
def running(tmp_path, **environment):
    """The daemon, once it is ready."""
    command = [sys.executable, DAEMON, tmp_path / "watch.db", tmp_path / "inbox"]
    (tmp_path / "inbox").mkdir(exist_ok=True)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment})
    try:
        until(process, "ready")
        yield process
    finally:
        process.kill()
        process.communicate()


def until(process, text):
    """Read what the daemon prints until a line with a text; give all of it."""
    lines = []
    for line in process.stdout:
        lines.append(line)
        if text in line:
            return lines
    raise AssertionError(f"{text!r} did not come: {lines}")


def schedules(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "perdure", "inspect", tmp_path / "watch.db", "watch"],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.count("perdure.schedule")


def test_the_daemon_works_stops_when_it_is_told_to_and_goes_on_when_it_is_started_again(tmp_path):
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "letter").touch()
    for _ in range(2):
        with running(tmp_path) as process:
            process.send_signal(signal.SIGTERM)
            rest, _ = process.communicate(timeout=30)
            assert rest.endswith("stopped\n")
            assert process.returncode == 0
    with running(tmp_path) as process:
        process.kill()
        process.wait()
    assert schedules(tmp_path) == 1


def test_the_daemon_says_what_it_sees(tmp_path):
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "letter").touch()
    with running(tmp_path) as process:
        until(process, "I see: letter")


def test_systemd_is_told_when_the_daemon_is_ready_and_that_it_is_alive_and_when_it_stops(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(20)
        with running(tmp_path, NOTIFY_SOCKET=str(tmp_path / "notify"), WATCHDOG_USEC="20000") as process:
            said = {heard.recv(100).decode() for _ in range(4)}
            assert said == {"READY=1", "WATCHDOG=1"}
            process.send_signal(signal.SIGTERM)
            while "STOPPING=1" not in said:
                said.add(heard.recv(100).decode())


def test_the_unit_says_what_the_daemon_does():
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str
    unit.read(UNIT)
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["Restart"] == "always"
    assert int(service["WatchdogSec"]) == 120
    assert "examples/daemon/daemon.py" in service["ExecStart"]
    assert int(service["TimeoutStopSec"]) > 10
