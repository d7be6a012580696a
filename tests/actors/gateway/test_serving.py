"""A daemon of its own: it sleeps while nothing is due, and comes back from the file alone."""

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import time

import perdure
import pytest
from hypothesis import given
from hypothesis import strategies as st
from perdure.actors.gateway import serving
from perdure.gateway import serve

from .support import MODEL, TOKEN, WITHIN_S, Door, Page, echo, go, opened, said, served

HOUR_MS = 3_600_000


class Alarm(perdure.Task[int, None], name="tests.alarm", version=1):
    """Sleeps until a time, then says so in its conversation."""

    class Sleep(perdure.Phase):
        """Before."""

    class Rise(perdure.Phase):
        """After."""

    async def sleep(self, run, state: Sleep):
        await run.wait(then=self.Rise(), until=run.input)

    async def rise(self, run, state: Rise):
        async with run.commit() as tx:
            await tx.append("tests.rang", {"at": run.input})
            tx.complete()


KIT = perdure.Extension(name="alarms", tasks=[Alarm])


async def set_alarm(session, conversation, at):
    async with session.commit() as tx:
        await tx.create_task(Alarm, at, conversation_id=conversation)


def rang(view):
    return [entry["data"]["at"] for entry in view["entries"] if entry["kind"] == "tests.rang"]


# --- sessions sleep while sockets stay


def test_a_session_leaves_memory_while_people_watch_it_and_wakes_for_a_deadline_and_for_a_message():
    async def main():
        clock = perdure.VirtualClock()
        settings = perdure.Settings(idle_after_s=60.0)
        async with opened(clock=clock, settings=settings) as system, served(system) as door, door.page() as page:
            system.registry.install(KIT)
            await page.command("open")
            view = await page.attach("conversation", conversation=1)
            subjects = [await page.attach(what) for what in ("conversations", "tasks", "presence")]
            due = clock.now() + HOUR_MS
            await set_alarm(await system.session("s"), 1, due)
            await page.until(lambda: page.values[subjects[1]])
            await asleep(system, clock)
            assert door.house.inside == 1
            clock.advance(3_700)
            await page.until(lambda: rang(page.values[view]) == [due])
            await asleep(system, clock)
            await page.command("submit", conversation=1, content="still there?")
            await page.until(lambda: said(page.values[view])[-1:] == ["re: still there?"])
            assert page.ended == {}

    go(main)


async def asleep(system, clock):
    """Let time pass until no session is in memory."""
    async with asyncio.timeout(WITHIN_S):
        while system.inspect().figures:
            clock.advance(30.0)
            await asyncio.sleep(0.01)


# --- the process sleeps


async def one_life(path, clock, during=None, **options):
    """Serve a file until nothing is left to do; give how that ended."""
    listening = asyncio.get_running_loop().create_future()
    model = perdure.ScriptedModel(echo)

    def ready(host, port):
        listening.set_result(port)

    async def live():
        async with perdure.System.open(path, models=[model], extensions=[KIT], clock=clock) as system:
            agent = perdure.Agent(model=MODEL)
            return await serve(
                system, token=TOKEN, agent=agent, clock=clock, exit_when_idle_s=0.2, ready=ready, **options
            )

    serving_ = asyncio.ensure_future(live())
    await asyncio.wait([serving_, listening], return_when=asyncio.FIRST_COMPLETED)
    if during is not None:
        await during(Visitor(listening.result()))
    return await serving_


class Visitor(Door):
    """Somebody who only knows the port."""

    def __init__(self, port):
        self.port, self.host = port, f"127.0.0.1:{port}"
        self.url = f"http://{self.host}"


def test_the_process_ends_when_nothing_is_due_and_the_next_one_goes_on_from_the_file_alone(tmp_path):
    """B071: the deadline that was left names the time at which the next process finds the alarm due."""

    async def main():
        path, clock = tmp_path / "agents.db", perdure.VirtualClock()
        due = clock.now() + HOUR_MS

        async def ask(door):
            async with door.page() as page:
                await page.command("open")
                view = await page.attach("conversation", conversation=1)
                await page.command("submit", conversation=1, content="wake me")
                await page.until(lambda: said(page.values[view])[-1:] == ["re: wake me"])

        served_ = await one_life(path, clock, ask)
        assert served_ == serving.Served(next_deadline=None, idle=True)
        async with opened(storage=perdure.SqliteStorage(path), clock=clock) as system:
            system.registry.install(KIT)
            await set_alarm(await system.session("s"), 1, due)
        served_ = await one_life(path, clock)
        assert served_ == serving.Served(next_deadline=due, idle=True)
        file = tmp_path / "agents.db.deadline"
        serving.leave_deadline(file, served_)
        assert json.loads(file.read_text()) == {"nextDeadline": due, "at": "2023-11-14 23:13:20 UTC"}

        async def look(door):
            async with door.page() as page:
                view = await page.attach("conversation", conversation=1)
                await page.until(lambda: rang(page.values[view]) == [due])
                assert said(page.values[view])[:2] == ["wake me", "re: wake me"]

        later = perdure.VirtualClock(json.loads(file.read_text())["nextDeadline"])
        assert await one_life(path, later, look) == serving.Served(next_deadline=None, idle=True)

    go(main)


@given(st.none() | st.integers(0, 10**13), st.integers(0, 10**13), st.floats(0, 1e6))
def test_a_process_ends_only_when_the_next_deadline_is_far_enough(deadline, now, idle_s):
    ends = serving.may_end(deadline, now, idle_s)
    assert ends == (deadline is None or deadline - now > idle_s * 1000)
    if deadline is not None and deadline <= now:
        assert not ends


# --- the command


APP = """
import perdure

def setup():
    model = perdure.ScriptedModel(lambda request: "tick " * 60, tokens_per_second=40)
    return {"models": [model], "agent": perdure.Agent(model="scripted/model")}
"""


def start(folder, *options):
    """Start the command in a folder; give its process, its port and its token."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "perdure", "serve", "agents.db", "--app", "room:setup", *options]
    process = subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    line = process.stdout.readline()
    address, _, token = line.strip().rpartition("/#token=")
    return process, int(address.rpartition(":")[2]), token


def end(process):
    process.kill()
    process.wait(WITHIN_S)
    process.stdout.close()


def test_a_daemon_that_is_killed_in_mid_answer_goes_on_and_a_command_sent_again_runs_once(tmp_path):
    """B043, B164: kill -9 while it streams; the same port, the same token, and the run ends by itself."""
    (tmp_path / "room.py").write_text(APP)

    async def main():
        first, port, token = start(tmp_path, "--port", "0", "--token-file", "token")
        try:
            async with Visitor(port).connect() as bare:
                page = await introduced(bare, token)
                await page.command("open", request_id="o")
                view = await page.attach("conversation", conversation=1)
                sent = await page.command("submit", conversation=1, content="go", request_id="once")
                await page.until(lambda: "tick" in json.dumps(page.values[view]["docs"]["pi.live"]))
                first.send_signal(signal.SIGKILL)
                await page.closed()
        finally:
            end(first)
        second, again, same = start(tmp_path, "--port", str(port), "--token-file", "token")
        try:
            assert (again, same) == (port, token)
            async with Visitor(port).connect() as bare:
                page = await introduced(bare, token)
                view = await page.attach("conversation", conversation=1)
                assert await page.command("submit", conversation=1, content="go", request_id="once") == sent
                await page.until(lambda: said(page.values[view])[-1] == "tick " * 60)
                assert said(page.values[view]).count("go") == 1
                page.stop()
        finally:
            end(second)

    go(main)
    assert stat.S_IMODE((tmp_path / "token").stat().st_mode) == 0o600


async def introduced(bare, token):
    page = Page(bare)
    await page.send(type="hello", token=token)
    await page.frame("welcome")
    return page


def test_the_command_ends_when_idle_and_says_when_it_must_run_again(tmp_path):
    (tmp_path / "room.py").write_text(APP)
    began = time.monotonic()
    process, _, token = start(tmp_path, "--port", "0", "--exit-when-idle", "--idle-after", "0.1")
    try:
        assert process.stdout.read() == "perdure: idle, next deadline: none\n"
        assert process.wait(WITHIN_S) == 0
        assert len(token) >= 40
        assert json.loads((tmp_path / "agents.db.deadline").read_text()) == {"nextDeadline": None, "at": None}
        assert time.monotonic() - began < WITHIN_S
    finally:
        end(process)


@pytest.mark.parametrize(
    ("options", "code", "says"),
    [
        (["--app", "nowhere:setup"], 2, "cannot be loaded"),
        (["--app", "room"], 2, "module:factory"),
        (["--app", "room:wrong"], 2, "not int"),
        (["--app", "room:setup", "--host", "0.0.0.0"], 1, "--allow-host"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(tmp_path, options, code, says):
    (tmp_path / "room.py").write_text(APP + "\ndef wrong():\n    return 7\n")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "perdure", "serve", "agents.db", *options]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, check=False, text=True, timeout=50
    )
    assert done.returncode == code
    assert done.stderr.startswith("perdure: ")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
