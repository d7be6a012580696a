"""The ownership tree against the model, and what it costs."""

from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.storage.records import Completed, Terminal
from perdure.supervisors.ownership import Ownership

from .model import World, task, with_state

CHAIN = 20_000

# A step is three numbers that choose among what is possible at that moment, so that any list of them is a history.
step = st.tuples(*[st.integers(0, 11)] * 3)
blocks = st.lists(st.tuples(st.lists(step, max_size=8), st.booleans()), max_size=10)


def parts(ownership):
    """Everything that an ownership tree keeps, without what it needs to undo."""
    return {
        "parent": dict(ownership._parent),
        "background": dict(ownership._background),
        "below": {node: set(below) for node, below in ownership._below.items()},
        "roots": set(ownership._roots),
        "live": set(ownership._live),
    }


class Tree:
    """An ownership tree beside its model."""

    def __init__(self):
        self.real = Ownership()
        self.world = World()
        self.ids = 0

    def know(self, node):
        """Make the chain above a node known, as a session does from its records."""
        chain = [one for one in (node, *self.world.above(node)) if one not in self.real]
        for one in reversed(chain):
            if one in self.world.tasks:
                background = self.world.is_background(one)
                self.real.add_task(one, self.world.parent(one), background=background, live=False)
            else:
                self.real.add_conversation(one, self.world.owners[one])

    def add_conversation(self, owner):
        self.ids += 1
        self.world.owners[self.ids] = owner
        if owner is not None:
            self.know(owner)
        self.real.add_conversation(self.ids, owner)

    def add_task(self, parent, *, background):
        self.ids += 1
        owned = parent in self.world.tasks
        conversation = self.world.tasks[parent].conversation_id if owned else parent
        record = task(self.ids, conversation, parent if owned else None, background=background and not owned)
        self.world.tasks[self.ids] = record
        self.know(parent)
        self.real.add_task(self.ids, parent, background=record.background, live=True)

    def end(self, tid):
        self.world.tasks[tid] = with_state(self.world.tasks[tid], Terminal(outcome=Completed()))
        self.real.end(tid)

    def step(self, kind, a, b):
        live = sorted(self.world.live())
        nodes = self.world.nodes()
        if kind < 2 or not nodes:
            self.add_conversation(live[a % len(live)] if live and b % 3 else None)
        elif kind < 7 or not live:
            self.add_task(nodes[a % len(nodes)], background=b % 4 == 0)
        else:
            self.end(live[a % len(live)])

    def check(self):
        real, world = self.real, self.world
        assert {node for node in world.nodes() if node in real} >= world.listed()
        assert {node for node in world.nodes() if real.is_live(node)} == world.live()
        assert set(real.roots()) == {node for node in world.listed() if world.parent(node) is None}
        for node in world.listed():
            assert list(real.ancestors(node)) == world.above(node)
            assert real.is_task(node) == (node in world.tasks)
            assert real.is_background(node) == world.is_background(node)
            assert real.holder(node) == world.holder(node)
            assert set(real.work(node)) == world.work(node)
            assert real.has_work(node) == bool(world.work(node))


@settings(max_examples=120, deadline=None)
@given(blocks)
def test_every_question_has_the_answer_of_the_whole_tree_recomputed(history):
    tree = Tree()
    for steps, _ in history:
        for numbers in steps:
            tree.step(*numbers)
            tree.check()
        tree.real.checkpoint()
        tree.check()


@settings(max_examples=120, deadline=None)
@given(blocks)
def test_a_rolled_back_block_leaves_everything_exactly_as_it_was(history):
    tree = Tree()
    for steps, kept in history:
        before, world = parts(tree.real), tree.world.copy()
        for numbers in steps:
            tree.step(*numbers)
        if kept:
            tree.real.checkpoint()
        else:
            tree.real.rollback()
            tree.world = world
            assert parts(tree.real) == before
        tree.check()


@settings(max_examples=100, deadline=None)
@given(blocks)
def test_only_what_lives_or_has_something_alive_below_is_kept(history):
    tree = Tree()
    for steps, _ in history:
        for numbers in steps:
            tree.step(*numbers)
        tree.real.checkpoint()
        assert {node for node in tree.world.nodes() if node in tree.real} == tree.world.listed()
        assert len(tree.real) == len(tree.world.listed())


@settings(max_examples=100, deadline=None)
@given(blocks, st.randoms(use_true_random=False))
def test_nothing_is_left_in_memory_when_all_work_has_ended(history, random):
    tree = Tree()
    for steps, _ in history:
        for numbers in steps:
            tree.step(*numbers)
        tree.real.checkpoint()
    live = sorted(tree.world.live())
    random.shuffle(live)
    for tid in live:
        tree.end(tid)
    tree.real.checkpoint()
    assert parts(tree.real) == {"parent": {}, "background": {}, "below": {}, "roots": set(), "live": set()}
    assert tree.real._undo == []
    assert tree.real._fresh == []


def chain(length):
    """A conversation, a task in it, and below each task the next."""
    ownership = Ownership()
    ownership.add_conversation(1, None)
    for node in range(2, length + 2):
        ownership.add_task(node, node - 1, background=False, live=True)
    ownership.checkpoint()
    return ownership


def test_a_chain_of_20_000_tasks_is_walked_without_recursion():
    ownership = chain(CHAIN)
    assert sum(1 for _ in ownership.work(1)) == CHAIN
    assert sum(1 for _ in ownership.ancestors(CHAIN + 1)) == CHAIN
    for node in range(2, CHAIN + 2):  # the owners first: all stay listed until the last one ends
        ownership.end(node)
    assert len(ownership) == 0


def test_ending_a_chain_from_its_leaf_touches_each_node_once(monkeypatch):
    ownership = chain(CHAIN)
    looks = 0
    listed = Ownership._listed

    def counted(self, node):
        nonlocal looks
        looks += 1
        return listed(self, node)

    monkeypatch.setattr(Ownership, "_listed", counted)
    for node in range(CHAIN + 1, 1, -1):
        ownership.end(node)
    ownership.checkpoint()
    assert len(ownership) == 0
    assert looks <= 3 * CHAIN


class CountedId(int):
    """An id that counts how often ids are compared."""

    compared = 0

    def __lt__(self, other):
        CountedId.compared += 1
        return int.__lt__(self, other)


def test_asking_whether_there_is_work_does_not_look_at_all_of_it():
    """The question is asked each time that one of many owned tasks ends: a step costs what it touches."""
    ownership = Ownership()
    ownership.add_conversation(1, None)
    ownership.add_task(2, 1, background=False, live=True)
    for node in range(3, 2_003):
        ownership.add_task(CountedId(node), 2, background=False, live=True)
    CountedId.compared = 0
    for node in range(3, 2_003):
        assert ownership.has_work(2)
        ownership.end(node)
    assert not ownership.has_work(2)
    assert CountedId.compared <= 2_000
