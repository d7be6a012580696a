"""No process outlives its call, also when the whole program is killed: real daemons, real kills."""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import perdure
import pytest
from perdure.actors.tools.processes import kill_bearers, started_at

from ..conversation.support import go, scene
from .desk import desk, results, said
from .processes import alive, pid_in, until

pytestmark = pytest.mark.timeout(120)  # programs are started, and a busy machine takes long for that
SLEEP = "echo $$ > leader; echo ready; exec sleep 1000"
PIPE = "echo $$ > leader; echo ready; sh -c 'echo $$ > near; exec sleep 1000' | cat"
FAR = "echo $$ > leader; setsid sh -c 'echo $$ > far; exec sleep 1000' & until [ -s far ]; do :; done; echo ready; wait"


@contextmanager
def daemon(folder, command):
    """A daemon that runs the command, once what it said is stored."""
    script = Path(__file__).with_name("orphan_worker.py")
    arguments = [sys.executable, str(script), str(folder / "s.db"), str(folder), command]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "shown\n"
            yield process
        finally:
            process.kill()


def reopened(folder):
    """Open the store as its next owner; give the one result."""

    async def main():
        async with desk(folder, storage=perdure.SqliteStorage(folder / "s.db"), brain=lambda request: "reported") as s:
            await s.root.wait_for_idle()
            [result] = await results(s.root)
            return result

    return go(main, within=100)


def pids_in(folder):
    return [pid_in(folder / name) for name in ("leader", "near", "far") if (folder / name).exists()]


@pytest.mark.parametrize(
    ("command", "number"),
    [(SLEEP, signal.SIGKILL), (PIPE, signal.SIGKILL), (FAR, signal.SIGKILL), (PIPE, signal.SIGTERM)],
    ids=["sleep", "pipe", "setsid", "pipe, SIGTERM"],
)
def test_when_a_daemon_has_died_its_next_life_leaves_no_process_and_an_interrupted_result(tmp_path, command, number):
    """B098, B089, TO-06: with the output so far."""
    with daemon(tmp_path, command) as process:
        process.send_signal(number)
        assert process.wait(10) == -number
    pids = pids_in(tmp_path)
    assert all(map(alive, pids)), "there is nothing to be cleaned up"
    result = reopened(tmp_path)
    assert said(result).startswith("ready\n")
    assert "Tool bash was interrupted and may have partially run" in said(result)
    assert result.is_error
    go(lambda: until(lambda: not any(map(alive, pids))))


def test_no_process_is_left_when_the_next_life_has_no_coding_tools(tmp_path):
    """B098"""
    with daemon(tmp_path, SLEEP) as process:
        process.kill()
        process.wait()
    leader = pid_in(tmp_path / "leader")
    assert alive(leader)

    async def main():
        async with scene(lambda request: "reported", storage=perdure.SqliteStorage(tmp_path / "s.db")) as s:
            await s.root.wait_for_idle()
            [result] = await results(s.root)
            assert "Tool bash was interrupted" in said(result)
        await until(lambda: not alive(leader))

    go(main, within=100)


def test_a_process_that_has_the_pid_of_one_that_is_gone_is_spared(tmp_path):
    """B098: a reused pid, which is where the stored one points to now."""
    with daemon(tmp_path, SLEEP) as process:
        process.kill()
        process.wait()
    leader = pid_in(tmp_path / "leader")
    os.kill(leader, signal.SIGKILL)
    go(lambda: until(lambda: not alive(leader)))
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as other:
        rewrite_pid(tmp_path / "s.db", leader, other.pid)
        assert "was interrupted" in said(reopened(tmp_path))
        assert alive(other.pid)
        other.kill()


def rewrite_pid(store, old, new):
    """Have a stored process be one of another pid, as if that number had come round again."""
    import sqlite3

    with sqlite3.connect(store) as connection:
        tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        changed = 0
        for table in tables:
            for column in [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]:
                update = f"UPDATE {table} SET {column} = replace({column}, ?, ?) WHERE {column} LIKE ?"
                given = (f'"pid":{old},', f'"pid":{new},', f'%"pid":{old},%')
                changed += connection.execute(update, given).rowcount
    connection.close()
    assert changed > 0


def test_a_daemon_that_is_killed_before_the_process_is_noted_down_has_started_nothing(tmp_path):
    """B092, B098: the moment between the start of a process and the commit that knows of it."""
    code = (
        "import asyncio, os, sys, perdure\n"
        "async def started(process):\n"
        "    print(process.pid, process.started, process.token, flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(perdure.LocalEnvironment(sys.argv[1]).run('touch begun; sleep 1000', started=started))\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], check=False, capture_output=True, text=True)
    assert done.returncode == -signal.SIGKILL
    pid, started, token = done.stdout.split()
    go(lambda: until(lambda: started_at(int(pid)) != started))
    assert os.listdir(tmp_path) == []
    assert not kill_bearers(token)
