"""Wrong arguments are errors where they are given; none gets into a record that could not be read back. P11."""

import asyncio

import perdure
import pytest
from perdure import DefinitionError, Doc, Entry, InvalidValue, MemoryStorage, PerdureError, Phase, SqliteStorage, Task
from perdure.storage.errors import StorageRejected
from perdure.storage.records import ContextEdit

from ..task.support import Script, Scripted, home, opened, scripted, start
from .support import Rig, rig

NotesDoc = Doc("test.notes", scope="session", family=True, initial=lambda seed: {})

BLOCKS = {
    "kind is a number": lambda tx: tx.append(5, 1),
    "kind is None": lambda tx: tx.append(None, 1),
    "kind has half a surrogate": lambda tx: tx.append("a\ud800", 1),
    "kind of an Entry is a number": lambda tx: tx.append(Entry(5), 1),
    "head is text": lambda tx: tx.append("note", 1, head="first"),
    "head is negative": lambda tx: tx.append("note", 1, head=-1),
    "head is a flag": lambda tx: tx.append("note", 1, head=True),
    "model is text": lambda tx: tx.append("note", 1, model="hello"),
    "model holds text": lambda tx: tx.append("note", 1, model=["hello"]),
    "model holds a list": lambda tx: tx.append("note", 1, model=[[{"role": "user"}]]),
    "edits hold half an edit": lambda tx: tx.append("note", 1, edits=[{"target": 1}]),
    "edits hold text": lambda tx: tx.append("note", 1, edits=["omit"]),
    "an edit's target is text": lambda tx: tx.append("note", 1, edits=[ContextEdit(target="x", action="omit")]),
    "an edit does what is unknown": lambda tx: tx.append("note", 1, edits=[ContextEdit(target=1, action="burn")]),
    "a conversation id is text": lambda tx: tx.append("note", 1, conversation_id="1"),
    "a key is a number": lambda tx: tx.doc(NotesDoc, key=5),
    "a key has half a surrogate": lambda tx: tx.doc(NotesDoc, key="\udc00"),
    "an owner is text": lambda tx: tx.create_conversation(owner="me"),
    "a task's owner is text": lambda tx: tx.create_task(Scripted, "a", owner="me"),
    "a task is named by text": lambda tx: tx.abort_task("7"),
    "a task is named by None": lambda tx: tx.abort_task(None),
}


@pytest.mark.parametrize("what", BLOCKS)
def test_a_block_refuses_a_wrong_argument_and_may_go_on(what, tmp_path):
    async def main():
        session = await rig(storage=SqliteStorage(tmp_path / "store.db", durability="process"))
        root = await session.root()
        async with session.commit(root) as tx:
            with pytest.raises((InvalidValue, StorageRejected)):
                await BLOCKS[what](tx)
            await tx.append("note", "fine")
        assert [entry.data for entry in session.published[-1].entries] == ["fine"]
        await session.storage.close()
        again = await Rig(SqliteStorage(tmp_path / "store.db", durability="process")).open()
        async with again.commit(root) as tx:
            assert await tx.latest_head_marker(root) is None
        await again.storage.close()

    asyncio.run(main())


def test_edits_are_taken_as_objects_or_as_json_and_copied():
    async def main():
        session = await rig()
        root = await session.root()
        message = {"role": "user", "content": "x"}
        async with session.commit(root) as tx:
            edits = [ContextEdit(target=1, action="replace", messages=[message]), {"target": 2, "action": "omit"}]
            entry = await tx.append("note", edits=edits)
            message["content"] = "changed"
        assert entry.edits == [
            ContextEdit(target=1, action="replace", messages=[{"role": "user", "content": "x"}]),
            ContextEdit(target=2, action="omit"),
        ]

    asyncio.run(main())


@pytest.mark.parametrize(
    "arguments",
    [
        {"kind": 5},
        {"kind": "a\ud800"},
        {"kind": "d", "version": 1.5},
        {"kind": "d", "version": "2"},
        {"kind": "d", "version": True},
    ],
)
def test_a_document_definition_refuses_what_could_not_be_stored(arguments):
    with pytest.raises(InvalidValue):
        Doc(**arguments)


@pytest.mark.parametrize(
    ("name", "version"), [(5, 1), ("", 1), ("a\ud800", 1), ("a", 0), ("a", 1.5), ("a", "1"), ("a", True)]
)
def test_a_task_definition_refuses_what_could_not_be_stored(name, version):
    with pytest.raises(DefinitionError):
        scripted(version, name)


RUNS = {
    "until is a fraction": lambda run: run.wait(then=Scripted.Resume(), until=run.now() + 0.5),
    "until is text": lambda run: run.wait(then=Scripted.Resume(), until="soon"),
    "until is negative": lambda run: run.wait(then=Scripted.Resume(), until=-5),
    "until is beyond everything": lambda run: run.wait(then=Scripted.Resume(), until=2**63),
    "the policy is unknown": lambda run: run.wait(then=Scripted.Resume(), policy="firstOf"),
    "the policy is a list": lambda run: run.wait(then=Scripted.Resume(), policy=["failFast"]),
    "a quorum is text": lambda run: run.wait([run.id], then=Scripted.Resume(), policy=perdure.Quorum("1")),
    "a quorum is of nobody": lambda run: run.wait([run.id], then=Scripted.Resume(), policy=perdure.Quorum(0)),
    "a quorum is of more than there are": lambda run: run.wait(
        [run.id] * 2, then=Scripted.Resume(), policy=perdure.Quorum(2)
    ),
    "a task is waited for by text": lambda run: run.wait(["7"], then=Scripted.Resume()),
    "a failure is an exception": lambda run: run.fail(ValueError("x")),
    "a failure is None": lambda run: run.fail(None),
    "a reason is an exception": lambda run: aborted(run, ValueError("x")),
    "a memo's name is a number": lambda run: run.memo(5, 1),
    "a memo's name has half a surrogate": lambda run: run.memo("\ud800", 1),
    "an outcome is asked for by text": lambda run: run.outcomes(["7"]),
}


async def aborted(run, reason):
    async with run.commit() as tx:
        tx.abort(reason)


@pytest.mark.parametrize("what", RUNS)
def test_a_tasks_code_gets_an_error_for_a_wrong_argument_and_may_go_on(what):
    async def main():
        script, store = Script(), MemoryStorage()

        async def run(run):
            with pytest.raises(PerdureError):
                await RUNS[what](run)
            await run.complete("fine")

        script.on("a", run=run)
        async with opened(store, script) as system:
            _, root = await home(system)
            assert await (await start(root, "a")).result() == "fine"
        async with opened(store, script) as system:
            assert await (await system.session("s")).tasks() == []

    asyncio.run(main())


def test_a_failures_text_is_made_valid():
    async def main():
        script = Script()
        script.on("a", run=lambda run: run.fail("half a \ud800 surrogate"))
        async with opened(MemoryStorage(), script) as system:
            _, root = await home(system)
            record = await (await start(root, "a")).settled()
            assert record.state.outcome.error.message == "half a \ufffd surrogate"

    asyncio.run(main())


def test_a_task_that_starts_in_no_phase_of_its_own_is_refused():
    class Lost(Task[str, str], name="test.lost"):
        class Run(Phase):
            pass

        def initial(self, input):
            return None

        async def run(self, run, state):
            raise AssertionError

    async def main():
        async with opened(MemoryStorage(), Script(), Lost) as system:
            session, root = await home(system)
            with pytest.raises(DefinitionError, match="initial"):
                await start(root, "a", kind=Lost)
            assert await session.tasks() == []

    asyncio.run(main())


def _cyclic():
    value = {}
    value["self"] = value
    return value


def _bottomless():
    value = []
    for _ in range(100_000):
        value = [value]
    return value


@pytest.mark.parametrize(
    "value", [_cyclic(), _bottomless(), object(), {1, object()}], ids=["cycle", "deep", "object", "set"]
)
def test_data_that_has_no_json_form_is_refused_with_an_error_of_this_library_and_nothing_is_stored(value):
    async def main():
        async with perdure.System.open(perdure.MemoryStorage()) as system:
            root = await (await system.session("s")).root()
            with pytest.raises(perdure.PerdureError):
                async with root.commit() as tx:
                    await tx.append("app.note", value)
            return (await root.entries()).items

    assert asyncio.run(main()) == []
