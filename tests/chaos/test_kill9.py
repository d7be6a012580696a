"""A process that is killed with SIGKILL at random instants, and the store that it leaves behind.

Each store is opened again and killed again until a life is left in peace. Whatever any of its lives published must be
in the store after every kill, and the work must end done, with no unsafe call executed twice.
"""

import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from select import select

import msgspec
import perdure
import pytest
from perdure.actors.models import AssistantMessage, plain_text

from . import scenario
from .scenario import was_interrupted

KILLS = 25
"""Of each durability."""
KILLS_PER_STORE = 3
PARTS = 9
"""The first kills of the stores are spread evenly over so many parts of a run."""
SEED = 20_260_730
STATES = ("queued", "placed", "done")


class Worker:
    """The process that forks lives (see worker.py)."""

    def __init__(self, process):
        self._process = process

    def begin(self, place):
        """Begin a life; returns when it has begun. One at a time."""
        order = msgspec.json.encode(place).decode()
        print(order, file=self._process.stdin, flush=True)
        self._pid = int(self._process.stdout.readline())

    def finish(self):
        """Wait for the life's end in peace."""
        assert self._status() == 0

    def kill_after(self, seconds):
        """Kill the life; False if it was faster and ended by itself."""
        if not select([self._process.stdout], [], [], seconds)[0]:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
        status = self._status()
        assert status in (0, -signal.SIGKILL)
        return status != 0

    def _status(self):
        return int(self._process.stdout.readline())


@contextmanager
def worker(folder, script="worker.py"):
    command = [sys.executable, str(Path(__file__).with_name(script))]
    with (
        (folder / "stderr").open("w") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        yield Worker(process)
        process.stdin.close()
        assert process.wait(10) == 0
    assert (folder / "stderr").read_text() == ""


class Place(msgspec.Struct):
    """One store, and where its lives write down what they saw and did."""

    durability: str
    store: str
    diary: str
    ledger: str

    @classmethod
    def make(cls, folder, name, durability):
        return cls(durability, *(str(folder / f"{durability}-{name}.{kind}") for kind in ("db", "diary", "ledger")))

    def published(self):
        """What the lives so far have written down."""
        return [json.loads(line) for line in lines(self.diary)]

    def filed(self):
        return lines(self.ledger)

    def read(self):
        """Read the store as its next owner."""

        async def read():
            storage = perdure.SqliteStorage(self.store)
            await storage.open()
            try:
                return await scenario.read_stored(storage)
            finally:
                await storage.close()

        return asyncio.run(read())


def lines(path):
    """The whole lines of a file that may not exist."""
    text = Path(path).read_text() if Path(path).exists() else ""
    return text[: text.rfind("\n") + 1].splitlines()


# --- what must hold after every kill


def check_intact(place):
    """B016: the file is sound."""
    if Path(place.store).exists():
        with closing(sqlite3.connect(place.store)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def check_published(stored, published):
    """Everything that any life published is in the store, and nothing was published in a state of before."""
    shown = {}
    for event in published:
        if event["event"] == "view":
            check_view(stored, event["view"], shown)
        elif event["event"] == "submission":
            check_submission(stored, event, shown)


def check_view(stored, view, shown):
    """The entries are the beginning of the stored ones, no fewer than before; the partial output is in what follows."""
    conversation, count = view["conversation"]["id"], len(view["entries"])
    entries = stored.entries[conversation]
    assert view["entries"] == msgspec.to_builtins(entries[:count])
    assert count >= shown.get(conversation, 0), "a view went back"
    shown[conversation] = count
    live = view["docs"]["pi.live"]
    partial = said(live.get("generation", {}).get("message"))
    assert said_next(stored, conversation, count).startswith(partial), "what was streamed is lost"
    for slot in live.get("tools", ()):
        if slot["name"] == "file_ticket":
            assert slot.get("output", "") in output_of(stored, conversation, slot), "output of a tool is lost"


def said(message):
    """The text of a stored message, or of none."""
    return "".join(block.get("text", "") for block in message["content"]) if message else ""


def said_next(stored, conversation, count):
    """What the model said in a conversation after its first entries, or is about to have said."""
    for message in scenario.messages(stored.entries[conversation][count:]):
        if isinstance(message, AssistantMessage):
            return plain_text(message.content)
    return said(stored.live[conversation].get("generation", {}).get("message"))


def output_of(stored, conversation, slot):
    """What the store has of a call's output: where it is shown, or in the result; a call that ended has its own words."""
    for entry in stored.entries[conversation]:
        if entry.by_task_id == slot["taskId"]:
            (result,) = scenario.messages([entry])
            return plain_text(result.content) if was_interrupted(result) else slot.get("output", "")
    slots = stored.live[conversation].get("tools", ())
    return next(one.get("output", "") for one in slots if one["callId"] == slot["callId"])


def check_submission(stored, event, shown):
    record = stored.submissions[event["id"]]
    state = STATES.index(event["status"])
    assert shown.get("submission", 0) <= state <= STATES.index(record.status), "a submission went back"
    shown["submission"] = state
    if event["answer"] is not None:
        answer = [entry for entry in stored.entries[1] if entry.id == record.answer]
        assert event["answer"] == plain_text(scenario.messages(answer)[0].content)


# --- the kills


class Tally(msgspec.Struct):
    """What the kills of one durability did."""

    durability: str
    kills: int = 0
    stores: int = 0
    reopenings: list[float] = []
    reruns: int = 0
    interrupted: int = 0

    def row(self):
        mean = sum(self.reopenings) / len(self.reopenings)
        return f"{self.durability:<10} {self.kills:>5} {self.stores:>6} {mean:>14.0f} {self.reruns:>12} {self.interrupted:>18}"


HEADER = f"{'durability':<10} {'kills':>5} {'stores':>6} {'reopening (ms)':>14} {'safe re-runs':>12} {'interrupted unsafe':>18}"


def undisturbed(worker, folder, durability):
    """How long a life takes from its first instruction to its end, in seconds."""
    took = []
    for number in range(2):
        place = Place.make(folder, f"undisturbed-{number}", durability)
        begun = time.perf_counter()
        worker.begin(place)
        worker.finish()
        took.append(time.perf_counter() - begun)
        assert scenario.check_finished(place.read(), place.filed()) == 0
    return min(took)


def kill_and_finish(worker, place, instants, tally):
    """Kill lives on one store, each so many seconds after its beginning, then leave one in peace."""
    for instant in instants:
        worker.begin(place)
        if not worker.kill_after(instant):
            break
        tally.kills += 1
        check_intact(place)
        check_published(place.read(), place.published())
    else:
        worker.begin(place)
        worker.finish()
    finish(place, tally)


def finish(place, tally):
    stored, published = place.read(), place.published()
    tally.interrupted += scenario.check_finished(stored, place.filed())
    check_published(stored, published)
    (*_, last) = [event for event in published if event["event"] == "submission"]
    assert last["answer"] == scenario.expected_answer(scenario.check_tickets(stored, place.filed()))
    looked = [event["key"] for event in published if event["event"] == "looked"]
    tally.reruns += len(looked) - len(set(looked))
    tally.reopenings += [event["ms"] for event in published if event["event"] == "opened"][1:]
    tally.stores += 1


def kill_all(worker, folder, durability):
    """Kill as often as is asked for, at instants that are spread over the whole of a run."""
    run_s = undisturbed(worker, folder, durability)
    tally, dice = Tally(durability), random.Random(f"{SEED}-{durability}")
    parts = [part / PARTS for part in range(PARTS)]
    dice.shuffle(parts)
    while tally.kills < KILLS:
        first = run_s * (parts[tally.stores % PARTS] + dice.random() / PARTS)
        later = [dice.uniform(0, 0.7 * run_s) for _ in range(min(KILLS_PER_STORE, KILLS - tally.kills) - 1)]
        kill_and_finish(worker, Place.make(folder, tally.stores, durability), [first, *later], tally)
    return tally


@pytest.mark.timeout(200)
def test_killed_at_any_instant_the_work_ends_done_and_nothing_published_is_lost(tmp_path, record_property):
    """B002, B004, B016, B043, B062, B089, B091, TO-01, TO-05."""
    with worker(tmp_path) as forks:
        tallies = [kill_all(forks, tmp_path, durability) for durability in ("power", "process")]
    record_property("table", "\n".join([HEADER, *(tally.row() for tally in tallies)]))
    assert sum(tally.kills for tally in tallies) >= 50
    assert sum(tally.reruns for tally in tallies) > 0, "no kill hit a safe tool"
    assert sum(tally.interrupted for tally in tallies) > 0, "no kill hit an unsafe tool"
