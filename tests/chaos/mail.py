"""Two tasks in two sessions that send each other numbered messages, and what must hold of it however it was interrupted.

Each writes down what it hears as an entry of its session's root conversation, in the commit that consumes the message: so
the transcripts tell what was handled, how often, and in which order.
"""

import perdure

SESSIONS = ("ann", "bob")
HEARD = "heard"


class Correspondent(perdure.Task[dict, int], name="chaos.correspondent"):
    """Sends ``count`` numbers to its peer, a few in a commit, and ends when it has heard as many.

    Whoever does not know its peer begins when it hears of it.
    """

    class Turn(perdure.Phase):
        sent: int = 0
        heard: int = 0
        peer: tuple[str, int] | None = None

    def initial(self, input):
        return self.Turn(peer=input.get("peer"))

    async def turn(self, run, state):
        count, burst = run.input["count"], run.input["burst"]
        async with run.commit() as tx:
            letters = await tx.receive(limit=2 * burst)
            for letter in letters:
                await tx.append(HEARD, letter.body)
            peer = state.peer or next(((one.sender.session, one.sender.id) for one in letters), None)
            last = min(count, state.sent + burst) if peer else state.sent
            for number in range(state.sent, last):
                await tx.tell(peer[1], number, session=peer[0])
            after = self.Turn(sent=last, heard=state.heard + len(letters), peer=peer)
            if last == after.heard == count:
                tx.complete(after.heard)
            elif state.sent < last < count:
                tx.goto(after)
            else:
                await tx.wait(then=after, mail=True)


EXTENSION = perdure.Extension(name="mail", tasks=[Correspondent])


def make_storage(backend, path):
    """A store of a process that may be killed."""
    return perdure.JsonlStorage(path) if backend == "jsonl" else perdure.SqliteStorage(path, durability="process")


def open_system(store, **options):
    """A system in which sessions leave memory as soon as they have nothing to do."""
    settings = perdure.Settings(idle_after_s=0.005)
    return perdure.System.open(store, extensions=[EXTENSION], settings=settings, **options)


async def begin(system, count, burst=3):
    """Create both tasks; the second one knows the first."""
    peer = None
    for key in reversed(SESSIONS):
        root = await (await system.session(key)).root()
        async with root.commit() as tx:
            task = await tx.create_task(Correspondent, {"count": count, "burst": burst, "peer": peer})
        peer = (key, task.id)


async def finished(system):
    """Return when both tasks have ended, whatever dies meanwhile."""
    for key in SESSIONS:
        while True:
            try:
                await _all_settled(await system.session(key))
                break
            except perdure.SessionFailed:
                continue


async def _all_settled(session):
    for task in await session.tasks():
        await (await session.task(task.id)).settled()


async def transcripts(storage):
    """What each session has heard so far, in order. The storage is open."""
    heard = {}
    for key in SESSIONS:
        query, cursor, entries = perdure.EntryQuery(conversation_id=1, order="ascending"), None, []
        while True:
            page = await storage.scan_entries(key, query, 1_000, cursor)
            entries += page.items
            cursor = page.next
            if cursor is None:
                break
        heard[key] = [entry.data for entry in entries if entry.kind == HEARD]
    return heard


async def check_intact(storage):
    """At any moment: what was handled is a beginning of what is sent, each once, in order; what is not is on its way."""
    for key, heard in (await transcripts(storage)).items():
        assert heard == list(range(len(heard))), f"{key} heard {heard}"
    assert await storage.dead_letters() == {}


async def check_finished(storage, count):
    """In the end: every message was handled once, in order, and nothing is left of any."""
    for key, heard in (await transcripts(storage)).items():
        assert heard == list(range(count)), f"{key} heard {heard}"
        assert (await storage.scan_messages(key, perdure.MessageQuery(), 10)).items == []
        assert await storage.live_tasks(key) == []
    assert await storage.dead_letters() == {}
