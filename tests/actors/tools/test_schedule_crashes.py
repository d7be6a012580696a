"""Schedules whose store, and with it everything, crashes at each commit in turn, on either side of it."""

import perdure
import pytest
from perdure.actors.models import plain_text

from ..conversation.support import Faults, go, history, problems, scene
from .test_schedules import MINUTE, START, inputs

MINUTES = 2


def brain(request):
    return f"noted: {plain_text(request.messages[-1].content)}"


async def insist(call):
    """Do something again until it is not a crash's fault that it fails; all of it is harmless to repeat."""
    while True:
        try:
            return await call()
        except (perdure.SessionFailed, perdure.StorageClosed):
            continue


def schedulings(root):
    """What is scheduled; adding the same by the same name is harmless to repeat."""
    return [
        lambda: perdure.add_schedule(root, "Look.", cron="* * * * *", catch_up="all", name="m"),
        lambda: perdure.add_schedule(root, "New?", at=START + MINUTE, look_up=True, name="l"),
    ]


async def life(storage, *, setup=None, done=0, now=START):
    """Schedule what is not done, and let time pass; give what the conversation was told, and how much was written until when."""
    clock = perdure.VirtualClock(now, autojump=True)
    async with scene(brain, extensions=[perdure.schedules()], clock=clock, storage=storage) as s:
        if setup is not None:
            setup(storage)
        before = storage.writes
        for add in schedulings(s.root)[done:]:
            await insist(add)
        await clock.sleep_until(START + MINUTES * MINUTE + 50_000)
        await insist(s.root.wait_for_idle)
        told = inputs(await insist(lambda: history(s.root)))
        [left] = await insist(lambda: perdure.list_schedules(s.session))
        assert left.fired == MINUTES
        assert left.next_at == START + (MINUTES + 1) * MINUTE
        assert problems((await s.root.context()).messages) == []
        return told, before, storage.writes


def expected():
    ticks = [f"[Scheduled: m, due 2026-03-28T11:0{n}:00+00:00]\nLook." for n in range(1, MINUTES + 1)]
    found = "[Looked up as scheduled: l, due 2026-03-28T11:01:00+00:00]\nnoted: New?"
    return sorted([*ticks, found])


@pytest.mark.parametrize("when", ["before", "after"])
def test_no_due_time_is_lost_or_acted_on_twice_whichever_commit_is_the_last(when):
    """B070, B071: before, at and after the commit that acts on a due time."""

    async def main():
        told, before, after = await life(Faults(perdure.MemoryStorage()))
        assert sorted(told) == expected()
        assert after - before > 15
        for write in range(before + 1, after + 1):
            told, *_ = await life(
                Faults(perdure.MemoryStorage()), setup=lambda storage, w=write: storage.crash(w, when)
            )
            assert sorted(told) == expected(), (write, when)

    go(main, within=55)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_that_ends_for_good_at_a_commit_is_followed_by_one_that_goes_on(when):
    """B071: what was due meanwhile is caught up with, what was acted on is not acted on again."""

    async def main():
        _, before, after = await life(Faults(perdure.MemoryStorage()))
        for write in range(before + 1, after + 1, 2):
            inner = perdure.MemoryStorage()
            done, now = await cut_off(Faults(inner), write, when)
            told, *_ = await life(Faults(inner), done=done, now=now)
            assert sorted(told) == expected(), (write, when)

    go(main, within=55)


async def cut_off(storage, write, when):
    """Live until a commit, and no longer; give how much was scheduled for sure, and when it ended."""
    clock = perdure.VirtualClock(START, autojump=True)
    reached, done = [], 0

    async def stop():
        reached.append(1)
        raise perdure.StorageCorrupt("the end, as a test asked")

    storage.call(write, when, stop)
    async with scene(brain, extensions=[perdure.schedules()], clock=clock, storage=storage) as s:
        try:
            for add in schedulings(s.root):
                await add()
                done += 1
            while not reached:
                await clock.sleep(1)
        except perdure.PerdureError:
            assert reached
    return done, clock.now()
