"""Commands of the local environment: real shells and processes."""

import asyncio
import math
import os
import shlex
import time

import perdure
import pytest
from perdure.actors.tools import commands, processes

from ..conversation.support import go
from .processes import alive, pid_in, until


@pytest.fixture
def env(tmp_path):
    return perdure.LocalEnvironment(tmp_path, temp=tmp_path)


class Heard:
    """Takes output."""

    def __init__(self):
        self.chunks = []

    def __call__(self, stream, text):
        self.chunks.append((stream, text))

    def text(self, stream=None):
        return "".join(text for name, text in self.chunks if stream in (None, name))


def failing(code, work):
    with pytest.raises(perdure.CommandError) as caught:
        go(lambda: work)
    assert caught.value.code == code
    return caught.value


def output(environment, command, **options):
    """Run to the end, give the result and what was heard."""
    heard = Heard()
    result = go(lambda: environment.run(command, on_output=heard, **options))
    return result, heard


# --- what a command is started with


def test_a_command_runs_in_a_directory_with_more_variables_and_any_exit_code_is_a_result(env, tmp_path):
    """EN-29"""
    (tmp_path / "d").mkdir()
    result, heard = output(env, 'pwd; echo "$MORE"; exit 7', cwd="d", env={"MORE": "more"})
    assert result == perdure.CommandResult(exit_code=7)
    assert heard.text() == f"{os.path.realpath(tmp_path / 'd')}\nmore\n"


def test_a_base_variable_is_kept_shadowed_or_replaced(tmp_path):
    """EN-30"""
    env = perdure.LocalEnvironment(tmp_path, env={"A": "base", "B": "base", "C": "base"})
    _, heard = output(env, 'echo "$A|$B|$C"', env={"B": "", "C": "own"})
    assert heard.text() == "base||own\n"


def test_without_inheritance_only_the_calls_own_variables_remain(tmp_path):
    """EN-31: beside the token by which what a command starts is found."""
    env = perdure.LocalEnvironment(tmp_path, env={"BASE": "base"})
    _, heard = output(env, ["/usr/bin/env"], env={"OWN": "own"}, inherit_env=False)
    names = {line.partition("=")[0] for line in heard.text().splitlines()}
    assert names == {"OWN", processes.TOKEN}


def test_commands_inherit_no_secrets_unless_told_to(tmp_path, monkeypatch):
    """B184: children do not inherit keys by default."""
    for name in ("ANTHROPIC_API_KEY", "DATABASE_URL", "SOME_SETTING"):
        monkeypatch.setenv(name, "planted-4711")
    _, heard = output(perdure.LocalEnvironment(tmp_path), "env")
    assert "planted-4711" not in heard.text()
    assert f"PATH={os.environ['PATH']}" in heard.text()
    _, heard = output(perdure.LocalEnvironment(tmp_path, inherit=["SOME_*"]), ["/usr/bin/env"])
    assert heard.text().count("planted-4711") == 1
    _, heard = output(perdure.LocalEnvironment(tmp_path, inherit=None), "env")
    assert heard.text().count("planted-4711") == 3


def test_a_list_runs_its_program_directly_and_each_chunk_names_its_stream(env):
    """EN-53"""
    result, heard = output(env, ["printf", "%s|", "a b", "$HOME", ";"])
    assert (result.exit_code, heard.text()) == (0, "a b|$HOME|;|")
    assert {stream for stream, _ in heard.chunks} == {"stdout"}


def test_what_cannot_be_started_is_an_error_by_code(env, tmp_path):
    """EN-37, EN-42, EN-53"""
    (tmp_path / "text").write_text("no program")
    missing = failing("spawn_error", env.run("touch made", cwd="no"))
    assert str(missing).startswith("Working directory does not exist")
    failing("spawn_error", env.run([]))
    failing("spawn_error", env.run(["no-such-program"]))
    failing("spawn_error", env.run([str(tmp_path / "text")]))
    failing("shell_unavailable", perdure.LocalEnvironment(tmp_path, shell="/no/shell").run("true"))
    failing("spawn_error", perdure.LocalEnvironment(tmp_path, shell=str(tmp_path / "text")).run("true"))
    failing("spawn_error", env.run("a\0b"))
    failing("spawn_error", env.run("echo \ud800"))
    failing("spawn_error", env.run("true", env={"A=B": "x"}))
    failing("spawn_error", env.run(["true", "x" * 5_000_000]))


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, 2_147_484, True, "1"])
def test_a_time_limit_that_is_none_starts_nothing(env, tmp_path, timeout):
    """EN-40"""
    assert "Invalid timeout" in str(failing("invalid", env.run("touch made", timeout_s=timeout)))
    assert os.listdir(tmp_path) == []


# --- output


def test_both_streams_come_as_they_are_written(env):
    """EN-35"""
    result, heard = output(env, "echo out; echo err >&2")
    assert result == perdure.CommandResult(exit_code=0)
    assert (heard.text("stdout"), heard.text("stderr")) == ("out\n", "err\n")


def test_output_is_heard_while_the_command_runs(env, tmp_path):
    async def main():
        heard = Heard()
        running = asyncio.ensure_future(env.run("echo first; while [ ! -e go ]; do sleep 0.01; done", on_output=heard))
        await until(lambda: heard.text() == "first\n")
        assert not running.done()
        (tmp_path / "go").touch()
        assert (await running).exit_code == 0

    go(main)


def test_a_character_that_is_split_between_writes_comes_whole(env, tmp_path):
    """EN-36: with one decoder for each stream."""

    async def main():
        heard = Heard()
        wait = "while [ ! -e %s ]; do sleep 0.01; done"
        command = f"printf 'a\\360\\237'; printf 'b\\303' >&2; {wait % 'go'}; printf '\\230\\200'; printf '\\251' >&2"
        running = asyncio.ensure_future(env.run(command, on_output=heard))
        await until(lambda: len(heard.chunks) == 2)
        (tmp_path / "go").touch()
        await running
        assert (heard.text("stdout"), heard.text("stderr")) == ("a😀", "bé")

    go(main)


def test_bytes_that_are_no_text_are_replaced_and_half_a_character_at_the_end_too(env):
    """B104: bytes of a command."""
    _, heard = output(env, r"printf 'a\377b\355\240\200\360\237'")
    assert heard.text() == "a\ufffdb\ufffd\ufffd\ufffd\ufffd"
    heard.text().encode()


def test_a_byte_order_mark_is_dropped_only_at_the_very_start(env):
    """EN-57"""
    _, heard = output(env, r"printf '\357\273\277a\357\273\277b'")
    assert heard.text() == "a\ufeffb"


def test_a_raising_callback_kills_the_command_and_hears_no_more(env, tmp_path):
    """EN-41"""
    calls = []

    def hear(stream, text):
        calls.append(text)
        raise ValueError("no ears")

    error = failing(
        "callback_error", env.run("echo $$ > pid; echo one; sleep 0.1; echo two; sleep 100", on_output=hear)
    )
    assert str(error) == "no ears"
    assert calls == ["one\n"]
    assert not alive(pid_in(tmp_path / "pid"))


# --- output in a file


def spilled(path):
    with open(path, "rb") as file:
        return file.read()


def test_short_output_is_not_spilled(env, tmp_path):
    """EN-45"""
    limits = perdure.SpillLimits(max_bytes=6, max_lines=2)
    result, _ = output(env, "printf 'a\\nb\\ncc'", spill=limits)
    assert result.spill is None
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("limits", [perdure.SpillLimits(max_bytes=3), perdure.SpillLimits(max_lines=0)])
def test_long_output_is_spilled_byte_by_byte_while_its_text_is_heard(env, tmp_path, limits):
    """EN-46, EN-52: a file of that name, for this user only."""
    result, heard = output(env, r"printf 'f\200\000o\n'", spill=limits)
    assert spilled(result.spill) == b"f\x80\x00o\n"
    assert heard.text() == "f\ufffd\x00o\n"
    assert os.path.basename(result.spill).startswith("pi-output-")
    assert result.spill.endswith(".log")
    assert os.stat(result.spill).st_mode & 0o777 == 0o600
    assert os.path.dirname(result.spill) == str(tmp_path)


def test_a_new_file_takes_away_those_that_are_old_and_nothing_else(env, tmp_path):
    now = time.time()
    for name, age in {"pi-output-old.log": 61, "pi-output-new.log": 30, "other.log": 61, "pi-output-x": 61}.items():
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (now - age, now - age))
    (tmp_path / "pi-output-folder.log").mkdir()
    (tmp_path / "pi-output-link.log").symlink_to(tmp_path / "other.log")
    os.utime(tmp_path / "pi-output-folder.log", (0, 0))
    os.utime(tmp_path / "pi-output-link.log", (0, 0), follow_symlinks=False)
    result, _ = output(env, "echo much", spill=perdure.SpillLimits(max_bytes=1, keep_s=60.0))
    kept = {"pi-output-new.log", "other.log", "pi-output-x", "pi-output-folder.log", "pi-output-link.log"}
    assert set(os.listdir(tmp_path)) == kept | {os.path.basename(result.spill)}
    (tmp_path / "pi-output-old.log").touch()
    os.utime(tmp_path / "pi-output-old.log", (0, 0))
    output(env, "echo much", spill=perdure.SpillLimits(max_bytes=1, keep_s=None))
    assert (tmp_path / "pi-output-old.log").exists()


def test_a_command_that_ran_out_of_time_tells_where_its_output_is(tmp_path):
    """EN-39, EN-47"""
    clock = perdure.VirtualClock()
    env, heard = perdure.LocalEnvironment(tmp_path, temp=tmp_path, clock=clock), Heard()

    async def main():
        command = env.run(
            "printf 12345; sleep 100", timeout_s=60, spill=perdure.SpillLimits(max_bytes=1), on_output=heard
        )
        running = asyncio.ensure_future(command)
        await until(lambda: heard.text() == "12345")
        clock.advance(60)
        await running

    error = failing("timeout", main())
    assert str(error) == "Command timed out after 60 seconds"
    assert spilled(error.spill) == b"12345"
    assert heard.text() == "12345"


def test_output_that_cannot_be_spilled_fails_the_call(tmp_path):
    """EN-48"""
    env = perdure.LocalEnvironment(tmp_path, temp=tmp_path / "no")
    error = failing("unknown", env.run("echo too long; sleep 100", spill=perdure.SpillLimits(max_bytes=1)))
    assert str(error).startswith("Failed to preserve complete shell output")


def test_much_output_is_spilled_whole(env):
    """EN-49"""
    result, heard = output(env, "head -c 500000 /dev/zero | tr '\\0' x", spill=perdure.SpillLimits())
    assert spilled(result.spill) == b"x" * 500_000
    assert heard.text() == "x" * 500_000


def test_a_command_that_writes_without_end_is_slowed_down_to_what_is_taken(env, tmp_path, monkeypatch):
    """EN-52: nothing piles up in memory while a spill is slow."""

    async def main():
        may_go = asyncio.Event()
        in_thread = commands.in_thread

        async def slow(work, *args):
            await may_go.wait()
            return await in_thread(work, *args)

        monkeypatch.setattr("perdure.actors.tools.spill.in_thread", slow)
        command = "for i in $(seq 200); do head -c 65536 /dev/zero; echo $i > written; done"
        running = asyncio.ensure_future(env.run(command, spill=perdure.SpillLimits(max_bytes=1)))
        await until(lambda: pid_in(tmp_path / "written"))
        blocked = await stands_still(lambda: pid_in(tmp_path / "written"))
        assert blocked < 20
        may_go.set()
        assert len(spilled((await running).spill)) == 200 * 65_536

    go(main)


async def stands_still(value, seconds=0.2):
    """Give a value once it has not changed for a while."""
    while True:
        before = value()
        await asyncio.sleep(seconds)
        if value() == before:
            return before


# --- the end


def test_a_child_that_keeps_the_pipes_does_not_keep_the_call(env, tmp_path):
    """EN-33, B097"""
    for start in ("setsid", "nohup"):
        began = time.monotonic()
        result, heard = output(
            env, f"{start} sh -c 'echo $$ > pid; exec sleep 300' & until [ -s pid ]; do :; done; echo hi"
        )
        assert time.monotonic() - began < 2
        assert heard.text("stdout") == "hi\n"
        assert result == perdure.CommandResult(exit_code=0, left_running=True)
        child = pid_in(tmp_path / "pid")
        assert alive(child)
        go(env.close)
        go(lambda child=child: until(lambda: not alive(child)))
        (tmp_path / "pid").unlink()


def test_a_child_that_keeps_talking_does_not_keep_the_call_either_and_may_go_on(env, tmp_path, monkeypatch):
    """EN-33, B097: output re-arms the wait for more of it, though not for ever."""
    monkeypatch.setattr(commands, "QUIET_S", 1.0)  # a busy machine is slow to talk

    async def main():
        heard = Heard()
        command = "(echo $BASHPID > pid; while :; do echo x; sleep 0.02; echo y > going; done) & echo hi"
        result = await env.run(command, on_output=heard)
        assert result.left_running
        assert heard.text().count("x") > 5
        told = len(heard.chunks)
        (tmp_path / "going").unlink()
        await until((tmp_path / "going").exists)  # it writes to a pipe that somebody still reads
        assert len(heard.chunks) == told
        await env.close()
        await until(lambda: not alive(pid_in(tmp_path / "pid")))

    go(main)


def test_output_that_comes_after_the_end_is_heard_while_it_comes(env, monkeypatch):
    """EN-33"""
    monkeypatch.setattr(commands, "QUIET_S", 1.0)
    monkeypatch.setattr(commands, "PATIENCE_S", 30.0)
    _, heard = output(env, "(for i in 1 2 3 4 5; do sleep 0.3; echo $i; done) & exit 0")
    assert heard.text() == "1\n2\n3\n4\n5\n"


def test_no_output_is_heard_after_the_call(env):
    """EN-51"""

    async def main():
        heard = Heard()
        await env.run("(sleep 0.3; echo late; touch said) & echo hi", on_output=heard)
        assert heard.text() == "hi\n"
        await until(lambda: os.path.exists(os.path.join(env.cwd, "said")))
        await asyncio.sleep(0.05)
        assert heard.text() == "hi\n"

    go(main)


TREE = "echo $$ > leader; (setsid sh -c 'echo $$ > far; exec sleep 1000' &); (sh -c 'echo $$ > near; exec sleep 1000' | cat) & "
"""A command with a child in its group and one outside."""


async def started_tree(tmp_path):
    return [await until(lambda name=name: pid_in(tmp_path / name)) for name in ("leader", "near", "far")]


async def all_dead(pids):
    await until(lambda: not any(map(alive, pids)))


def test_a_cancelled_command_dies_with_everything_that_it_started(env, tmp_path):
    """EN-43, EN-52, B098"""

    async def main():
        running = asyncio.ensure_future(env.run(TREE + "wait"))
        pids = await started_tree(tmp_path)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await all_dead(pids)

    go(main)


def test_a_command_that_runs_out_of_time_dies_with_everything_that_it_started(tmp_path):
    """EN-39, B098"""

    async def main():
        clock = perdure.VirtualClock()
        running = asyncio.ensure_future(perdure.LocalEnvironment(tmp_path, clock=clock).run(TREE + "wait", timeout_s=9))
        pids = await started_tree(tmp_path)
        clock.advance(9)
        with pytest.raises(perdure.CommandError, match="timed out after 9 seconds"):
            await running
        await all_dead(pids)

    go(main)


def test_a_time_limit_of_a_hundredth_of_a_second_is_one(env):
    """EN-39"""
    failing("timeout", env.run("sleep 100", timeout_s=0.01))


def test_closing_kills_running_commands_and_their_calls_end_as_results(env, tmp_path):
    """EN-34"""

    async def main():
        running = asyncio.ensure_future(env.run(TREE + "wait"))
        pids = await started_tree(tmp_path)
        began = time.monotonic()
        await env.close()
        assert await running == perdure.CommandResult(exit_code=-9)
        assert time.monotonic() - began < 3
        await all_dead(pids)

    go(main)


def test_a_raising_callback_counts_more_than_the_time_limit_and_that_more_than_a_failed_spill(tmp_path, monkeypatch):
    """EN-51: a cancel, which asyncio allows nobody to swallow, counts more than all."""

    async def ending(**failed):
        env = perdure.LocalEnvironment(tmp_path)
        running = commands.Command.start(
            ["/bin/sh", "-c", "exit 3"],
            cwd=env.cwd,
            env={},
            held=False,
            clock=perdure.SystemClock(),
            on_output=None,
            spill=None,
        )
        running.__dict__.update(failed)
        try:
            return (await running.result(1.0, None)).exit_code
        except perdure.CommandError as error:
            return error.code

    async def main():
        callback = {"_callback_error": ValueError("x")}
        time_limit = {"_timed_out": True}
        spill = {"_spill_error": OSError("x")}
        assert await ending(**callback, **time_limit, **spill) == "callback_error"
        assert await ending(**time_limit, **spill) == "timeout"
        assert await ending(**spill) == "unknown"
        assert await ending() == 3

    go(main)


def test_a_silent_command_is_left_alone_until_its_time_is_over(tmp_path):
    """B100: on a clock that is moved by hand."""

    async def main():
        clock = perdure.VirtualClock()
        env = perdure.LocalEnvironment(tmp_path, clock=clock)
        running = asyncio.ensure_future(env.run("echo $$ > pid; sleep 1000", timeout_s=900))
        pid = await until(lambda: pid_in(tmp_path / "pid"))
        clock.advance(899)
        assert alive(pid)
        assert not running.done()
        clock.advance(2)
        with pytest.raises(perdure.CommandError, match="after 900 seconds"):
            await running
        await all_dead([pid])

    go(main)


# --- what is noted down


def test_a_command_begins_when_its_process_has_been_noted_down(env, tmp_path):
    """B092, B098"""

    async def main():
        noted = []

        async def started(process):
            assert alive(process.pid)
            assert processes.started_at(process.pid) == process.started
            assert os.listdir(tmp_path) == []
            noted.append(process)

        result = await env.run("echo $$ > pid; cat", started=started)
        assert result.exit_code == 0  # and there is nothing to read from
        assert pid_in(tmp_path / "pid") == noted[0].pid

    go(main)


def test_a_command_that_cannot_be_noted_down_does_not_begin(env, tmp_path):
    """B092"""

    async def main():
        pids = []

        async def started(process):
            pids.append(process.pid)
            raise RuntimeError("disk full")

        with pytest.raises(RuntimeError, match="disk full"):
            await env.run("touch begun", started=started)
        await all_dead(pids)
        assert os.listdir(tmp_path) == []

    go(main)


def test_a_command_of_an_earlier_life_is_ended(env, tmp_path):
    """B098"""

    async def main():
        noted = []

        async def started(process):
            noted.append(process)

        running = asyncio.ensure_future(env.run(TREE + "wait", started=started))
        pids = await started_tree(tmp_path)
        other = perdure.LocalEnvironment("/")
        assert await other.end(noted[0])
        await all_dead(pids)
        assert not await other.end(noted[0])
        assert (await running).exit_code == -9

    go(main)


def test_many_commands_run_at_once(env):
    async def main():
        heard = [Heard() for _ in range(30)]
        await asyncio.gather(*(env.run(f"echo {i}", on_output=one) for i, one in enumerate(heard)))
        assert [one.text() for one in heard] == [f"{i}\n" for i in range(30)]

    go(main)


def test_commands_run_on_the_loop_of_a_background_thread(tmp_path):
    def brain(request):
        return "ok"

    with perdure.System.background(perdure.MemoryStorage(), models=[perdure.ScriptedModel(brain)]) as system:
        heard = Heard()
        env = perdure.LocalEnvironment(tmp_path)
        result = system.call(lambda _: env.run("echo hi; sleep 0.05; exit 3", on_output=heard))
        assert (result.exit_code, heard.text()) == (3, "hi\n")


def test_quoting_is_the_shells(env):
    _, heard = output(env, f"printf %s {shlex.quote('a b; $c')}")
    assert heard.text() == "a b; $c"
