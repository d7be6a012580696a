"""Loss of power at every operation of a JSONL store with ``fsync``: nothing acknowledged is lost, nothing is torn."""

import asyncio
import random

from perdure.storage.conformance_rig import ENDED, Rig, base, conversation, document, entry, set_n, task
from perdure.storage.errors import StorageError
from perdure.storage.memory import MemoryStorage
from perdure.storage.records import DocumentRetire, SessionScope

from .jsonl_disk import SimulatedDisk, losses
from .jsonl_support import catch_up, expected_states, opened, snapshot, tell


def tell_watched(root, *, fsync=True):
    """Tell the story on a simulated disk that keeps its moments."""
    disk = SimulatedDisk(root)
    disk.watch()

    async def run():
        async with opened(root, files=disk, fsync=fsync) as rig:
            async for _ in tell(rig.storage):
                disk.acknowledged += 1

    asyncio.run(run())
    disk.note_moment()
    return disk


def open_on(root, disk):
    """Open the store on a disk, and give what it holds."""

    async def run():
        async with opened(root, files=disk, fsync=True) as rig:
            return snapshot(rig.storage)

    return asyncio.run(run())


def test_no_loss_of_power_loses_what_was_acknowledged(tmp_path):
    expected = expected_states()
    disk = tell_watched(tmp_path)
    for number, (acknowledged, tree) in enumerate(disk.moments):
        for survives in losses(number, 6):
            left = disk.after_loss(tree, survives)
            assert open_on(tmp_path, left) in expected[acknowledged:][:2], number


def test_what_an_open_store_shows_survives_the_next_loss_of_power(tmp_path):  # P1
    """Also when power is lost again at any operation of the recovery, and when the first store did not flush."""
    expected = expected_states()
    for fsync in (True, False):
        disk = tell_watched(tmp_path, fsync=fsync)
        for number, (acknowledged, tree) in enumerate(disk.moments[:-30:5] + disk.moments[-30:]):
            recovering = SimulatedDisk(tmp_path, tree)  # the process dies, the machine does not
            recovering.watch()
            shown = open_on(tmp_path, recovering)
            assert shown in expected[acknowledged:][:2]
            assert all(open_on(tmp_path, disk.after_loss(recovering.tree, lost)) == shown for lost in losses(number, 3))
            for step, (_, again) in enumerate(recovering.moments if fsync else ()):
                left = disk.after_loss(again, losses(f"{number}/{step}", 1)[-1])
                assert open_on(tmp_path, left) in expected[acknowledged:][:2]


def test_without_fsync_the_death_of_the_process_loses_nothing(tmp_path):
    expected = expected_states()
    disk = tell_watched(tmp_path, fsync=False)
    for acknowledged, tree in disk.moments:
        assert open_on(tmp_path, SimulatedDisk(tmp_path, tree)) in expected[acknowledged:][:2]


# --- many lives


async def random_batch(storage, key, chance):
    """Make a batch that a session can take as it stands."""
    rig = Rig(storage, reopen=False, key=key)
    await catch_up(rig)
    if rig.seq == 0:
        return rig.batch(conversation(rig.id()))
    found = await storage.find_document(key, "doc", SessionScope())
    live = await storage.live_tasks(key)
    choices = [
        lambda: entry(rig.id()),
        lambda: task(rig.id()),
        lambda: task(
            chance.choice(live).id if live else rig.id(), chance.choice([ENDED, live[0].state]) if live else ENDED
        ),
    ]
    if found is None:
        choices += [lambda: document(rig.id(), {"n": 0})]
    else:
        choices += [
            lambda: set_n(found.id, rig.seq),
            lambda: base(found.id, {"n": rig.seq}),
            lambda: DocumentRetire(id=found.id),
        ]
    return rig.batch(*(make() for make in chance.sample(choices, chance.randrange(3))))


async def random_change(storage, chance):
    """Make a change of up to three sessions, or sometimes the end of one."""
    keys = chance.sample("abc", chance.randrange(1, 4))
    if chance.random() < 0.03:
        return lambda storage: storage.delete_session(keys[0])
    group = [await random_batch(storage, key, chance) for key in keys]
    return lambda storage: storage.write(group)


async def live_and_die(root, disk, model, unsure, chance):
    """Open a store, check it against the model and a change of unknown outcome, and change it until the power goes.

    Gives the change that was being made then.
    """
    async with opened(root, files=disk, fsync=True) as rig:
        if snapshot(rig.storage) != snapshot(model):
            await unsure(model)
            assert snapshot(rig.storage) == snapshot(model)
        while True:
            change = await random_change(rig.storage, chance)
            try:
                await change(rig.storage)
            except StorageError:
                return change
            await change(model)


def test_a_store_outlives_many_losses_of_power(tmp_path):  # B016
    chance = random.Random(20)

    async def run():
        model = MemoryStorage(clock=lambda: 7)
        await model.open()
        disk, unsure = SimulatedDisk(tmp_path), None
        for _ in range(150):
            disk.operations_left = chance.randrange(80)
            try:
                unsure = await live_and_die(tmp_path, disk, model, unsure, chance)
            except StorageError as error:
                if type(error) is not StorageError:  # but nothing is corrupt: the power went during the opening
                    raise
            disk = disk.after_loss(disk.tree, chance.choice(losses(chance.random(), 4)))
        return max(tables[0].seq for tables in snapshot(model).values())

    assert asyncio.run(run()) > 30
