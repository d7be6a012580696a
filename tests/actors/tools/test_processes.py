"""Processes that are held, told apart and killed: real ones."""

import os
import signal
import subprocess
import sys

import perdure
import pytest
from msgspec.structs import replace
from perdure.actors.tools import processes

from ..conversation.support import go
from .processes import alive, pid_in, until

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")


def start(command, token="t", **options):
    """Start a shell command; whoever calls this ends it."""
    return processes.start(["/bin/sh", "-c", command], env=dict(os.environ), token=token, **options)


def finish(process):
    processes.kill_group(process.pid)
    processes.kill_bearers("t")
    process.wait()
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()


def identity(process, token="t"):
    return perdure.ProcessId(process.pid, processes.started_at(process.pid), token)


# --- holding


def test_a_held_program_does_nothing_until_it_is_released(tmp_path):
    process = start("echo $$ > begun; cat; sleep 100", cwd=tmp_path, held=True)
    try:
        held = processes.started_at(process.pid)
        assert not (tmp_path / "begun").exists()
        processes.release(process)
        assert go(lambda: until(lambda: pid_in(tmp_path / "begun"))) == process.pid
        assert processes.started_at(process.pid) == held
    finally:
        finish(process)


def test_a_held_program_whose_holder_dies_ends_without_having_begun(tmp_path):
    process = start("touch begun", cwd=tmp_path, held=True)
    process.stdin.close()
    assert process.wait(10) != 0
    assert not (tmp_path / "begun").exists()
    finish(process)


def test_releasing_what_has_been_killed_meanwhile_does_nothing(tmp_path):
    process = start("touch begun", cwd=tmp_path, held=True)
    processes.kill_group(process.pid)
    process.wait()
    processes.release(process)
    assert not (tmp_path / "begun").exists()
    finish(process)


# --- telling apart


def test_a_process_has_one_start_and_an_ended_one_none(tmp_path):
    process = start("sleep 100", cwd=tmp_path, held=False)
    try:
        assert (
            processes.started_at(process.pid) == processes.started_at(process.pid) != processes.started_at(os.getpid())
        )
    finally:
        finish(process)
    assert processes.started_at(process.pid) is None


def test_a_process_of_the_same_pid_and_another_start_is_spared(tmp_path):
    """B098: a reused pid."""
    process = start("sleep 100", cwd=tmp_path, token="another", held=False)
    try:
        assert not processes.end(replace(identity(process), started="some other boot:17"))
        assert alive(process.pid)
    finally:
        finish(process)


# --- ending


def test_ending_a_process_ends_its_group(tmp_path):
    """B098"""
    process = start("sleep 1000 | cat & echo $! > child; wait", cwd=tmp_path, held=False)
    child = go(lambda: until(lambda: pid_in(tmp_path / "child")))
    assert processes.group_lives(process.pid)
    assert processes.end(identity(process))
    assert process.wait(10) == -signal.SIGKILL
    go(lambda: until(lambda: not alive(child)))
    assert not processes.group_lives(process.pid)
    assert not processes.end(perdure.ProcessId(process.pid, "x", "t"))
    finish(process)


@LINUX
def test_what_has_left_the_group_or_survived_its_leader_is_found_by_its_token(tmp_path):
    """B097, B098"""
    process = start("setsid sh -c 'echo $$ > far; sleep 1000' & sleep 1000 & echo $! > near", cwd=tmp_path, held=False)
    stray = [go(lambda name=name: until(lambda: pid_in(tmp_path / name))) for name in ("far", "near")]
    noted = perdure.ProcessId(process.pid, "whatever", "t")
    process.wait()
    assert all(map(alive, stray))
    assert processes.end(noted)
    go(lambda: until(lambda: not any(map(alive, stray))))
    assert not processes.end(noted)
    finish(process)


@LINUX
def test_killing_by_token_spares_everybody_else_and_oneself(tmp_path, monkeypatch):
    other = start("sleep 1000", cwd=tmp_path, token="other", held=False)
    code = "from perdure.actors.tools.processes import kill_bearers; print(kill_bearers('t'))"
    env = {**os.environ, processes.TOKEN: "t"}
    done = subprocess.run([sys.executable, "-c", code], env=env, check=True, capture_output=True, text=True)
    assert done.stdout == "False\n"
    assert alive(other.pid)
    finish(other)
