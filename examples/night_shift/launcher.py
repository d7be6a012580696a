"""The launcher: runs the daemon, kills it in mid-work, runs it again, and judges what comes of it."""

import argparse
import asyncio
import random
import shutil
import sys
import sysconfig
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGKILL

import msgspec
from perdure.models import from_env

from . import daemon
from .daemon import SCRIPTED, Options, Snapshot
from .judge import Crash, Shift, autopsy, checks, read_transcripts
from .screen import Screen, open_screen
from .summary import print_checks, print_costs, print_report

ENTRY = Path(__file__).parent.with_suffix(".py")
PACE = 150.0
KILLS = 3
TURN_TOKENS = 40
"""About the length of a turn: a kill comes up to so many tokens after its mark."""
USUAL_ENTRIES = 120
"""How much work a real model's shift is taken to be, for want of an undisturbed one."""
SILENCE_S = 120.0
"""A daemon that tells nothing new for so long has failed."""
MAX_LINE = 2**22


class DaemonFailed(Exception):
    """The daemon has ended without a report, and it was not the launcher's doing."""


# --- the command


def main() -> int:
    """Run the demo, or be the daemon. Returns the exit status."""
    given = arguments()
    home = None if given.store else Path(tempfile.mkdtemp(prefix="night-shift-"))
    store = home / "night-shift.db" if home else given.store.absolute()
    options = Options(tree=given.directory.resolve(), store=store, model=given.model, pace=given.pace)
    if given.daemon:
        daemon.run(options)
        return 0
    status = launch(options, given.kills, given.seed, open_screen(plain=given.plain))
    if home and status == 0:
        shutil.rmtree(home)
    else:
        print(f"The store is {store}")
    return status


def launch(options: Options, kills: int, seed: int | None, screen: Screen) -> int:
    """Run the night to whatever end. Returns the exit status."""
    try:
        return asyncio.run(night(options, kills, seed, screen))
    except KeyboardInterrupt:
        print("Stopped in mid-shift. Give the store with --store, and the shift goes on.")
        return 130
    except DaemonFailed as failure:
        print(f"{failure} Its log is {options.log}", file=sys.stderr)
        return 1


def arguments() -> argparse.Namespace:
    """Read the command line; what cannot work is refused here."""
    parser = argparse.ArgumentParser(prog="night_shift.py", description="Agents that survive kill -9.")
    library = Path(sysconfig.get_path("stdlib"))
    parser.add_argument("directory", type=Path, nargs="?", default=library, help="the source tree to audit")
    parser.add_argument("--kills", type=int, default=KILLS, help="how often to kill the daemon (default: %(default)s)")
    parser.add_argument("--seed", type=int, help="choose the same moments again")
    parser.add_argument("--store", type=Path, help="a SQLite file, which is kept; an unfinished shift in it goes on")
    parser.add_argument("--model", default=SCRIPTED, help="a real model, such as anthropic/<id>")
    parser.add_argument("--pace", type=float, default=PACE, help="tokens a second (default: %(default)s)")
    parser.add_argument("--plain", action="store_true", help="print lines instead of a live display")
    parser.add_argument("--daemon", action="store_true", help="be the daemon that the launcher starts")
    given = parser.parse_args()
    if not given.directory.is_dir():
        parser.error(f"{given.directory} is no directory")
    if given.store and not given.store.absolute().parent.is_dir():
        parser.error(f"there is no directory for {given.store}")
    if given.model != SCRIPTED and from_env().get(given.model) is None:
        parser.error(f"the environment has no key for {given.model}")
    return given


# --- the night


async def night(options: Options, kills: int, seed: int | None, screen: Screen) -> int:
    """Run the shift undisturbed, then with crashes; compare. Returns the exit status."""
    seed = random.SystemRandom().randrange(10_000) if seed is None else seed
    with screen:
        calm = await undisturbed(options, screen) if options.model == SCRIPTED else None
        entries = calm.entries if calm else USUAL_ENTRIES
        screen.begin(options.ledger, entries)
        screen.say(f"The night shift audits {options.tree}; {kills} kills are to come, by seed {seed}")
        shift = await run_shift(options, kill_marks(entries, kills, random.Random(seed)), screen)
    transcripts = await read_transcripts(options)
    found = checks(transcripts, shift, calm)
    print_report(shift.report)
    print_costs(shift, transcripts, entries)
    print_checks(found)
    return 0 if all(not check.problems for check in found) else 1


async def undisturbed(options: Options, screen: Screen) -> Shift:
    """Run the same shift without crashes and without a pace, in a store that is thrown away."""
    with tempfile.TemporaryDirectory() as home:
        screen.say("First the shift as it should be: undisturbed, and as fast as it can")
        return await run_shift(msgspec.structs.replace(options, store=Path(home) / "calm.db", pace=0), [], screen)


class Mark(msgspec.Struct, frozen=True):
    """When to kill: so many tokens' time after so many entries."""

    entries: int
    tokens: float


def kill_marks(entries: int, kills: int, chance: random.Random) -> list[Mark]:
    """Choose a random moment in each stretch of the work, leaving out how it begins and how it ends."""
    first, stretch = entries * 0.08, entries * 0.67 / max(kills, 1)
    return [
        Mark(round(first + stretch * (number + chance.random())), chance.random() * TURN_TOKENS)
        for number in range(kills)
    ]


async def run_shift(options: Options, marks: list[Mark], screen: Screen) -> Shift:
    """Run life after life, until one reaches the end."""
    crashes: list[Crash] = []
    for mark in [*marks, None]:
        life = await live(options, mark, screen)
        if crashes:
            crashes[-1].opened_s, crashes[-1].back_s = life.opened_s, life.ready - crashes[-1].died
        if not life.killed:
            break
        crashes.append(Crash(died=life.ended, entries=life.entries, found=await autopsy(options)))
        screen.say(f"kill -9 {life.pid}: {crashes[-1].found}")
    if life.report is None:
        raise DaemonFailed("The daemon was killed once more than planned.")
    screen.say(f"The report is there, after {life.entries} entries")
    return Shift(life.report, life.entries, options.ledger.tickets(), crashes)


# --- one life of the daemon


class Life(msgspec.Struct):
    """When a daemon said its first word and when it ended, in seconds, and how far it came."""

    pid: int
    ready: float = 0
    ended: float = 0
    killed: bool = False
    entries: int = 0
    opened_s: float = 0
    report: str | None = None


async def live(options: Options, mark: Mark | None, screen: Screen) -> Life:
    """Run the daemon to its end, or until it is killed. Raises DaemonFailed."""
    async with started(options) as process:
        life = Life(process.pid)
        killer: asyncio.TimerHandle | None = None
        async for said in snapshots(process):
            if not life.ready:
                life.ready = time.monotonic()
                screen.say(f"Daemon {process.pid} is at work, the system open in {said.opened_s * 1_000:.0f} ms")
            life.entries, life.opened_s, life.report = said.entries, said.opened_s, said.report
            screen.show(said)
            if mark and killer is None and said.entries >= mark.entries:
                killer = asyncio.get_running_loop().call_later(options.seconds(mark.tokens), kill, process)
        status = await process.wait()
        screen.show(None)
        life.ended = time.monotonic()
        life.killed = status == -SIGKILL and life.report is None
    if killer is not None:
        killer.cancel()
    if status not in (0, -SIGKILL):
        raise DaemonFailed(f"The daemon has ended with status {status}.")
    return life


@asynccontextmanager
async def started(options: Options) -> AsyncIterator[Process]:
    """Run the daemon's process; at the end of the block it is dead, whatever happens. Ctrl-C reaches the launcher only."""
    given = ["--store", options.store, "--model", options.model, "--pace", options.pace, options.tree]
    command = [sys.executable, ENTRY, "--daemon", *given]
    with options.log.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *map(str, command), stdout=PIPE, stderr=log, limit=MAX_LINE, start_new_session=True
        )
    try:
        yield process
    finally:
        kill(process)
        await process.wait()


def kill(process: Process) -> None:
    """Send SIGKILL, unless it is over."""
    if process.returncode is None:
        process.kill()


async def snapshots(process: Process) -> AsyncIterator[Snapshot]:
    """What the daemon tells, until its end. A line that its death has cut off is left out."""
    assert process.stdout is not None
    try:
        while (line := await asyncio.wait_for(process.stdout.readline(), SILENCE_S)).endswith(b"\n"):
            yield msgspec.json.decode(line, type=Snapshot)
    except TimeoutError:
        raise DaemonFailed(f"The daemon has told nothing new for {SILENCE_S:.0f} s.") from None
