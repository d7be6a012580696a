"""What follows from changes to tasks, against the model; the named cases; wait cycles; and what it costs."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from perdure.storage.records import Completing, Quorum, Running, Terminal, Waiting
from perdure.supervisors.forest import Forest, closes_cycle
from perdure.supervisors.settlement import reserved, settle, turn

from .model import NOW, OUTCOMES, POLICIES, World, marked, task, waiting, with_state

CHAIN = 20_000
COMPLETED, FAILED = OUTCOMES[:2]


def parts(forest):
    """Everything that a forest keeps, without what it needs to undo."""
    ownership = forest.ownership
    return {
        "records": dict(forest._records),
        "waiters": {awaited: set(waiters) for awaited, waiters in forest._waiters.items()},
        "awaited": dict(forest._awaited),
        "reached": dict(forest._reached),
        "completed": set(forest._completed),
        "unawaited": set(forest._unawaited),
        "over": set(forest._over),
        "intents": set(forest._intents),
        "active": set(forest._active),
        "deadlines": dict(forest._deadlines._when),
        "parent": dict(ownership._parent),
        "background": dict(ownership._background),
        "below": {node: set(below) for node, below in ownership._below.items()},
        "roots": set(ownership._roots),
        "live": set(ownership._live),
    }


class Bench:
    """A forest beside its model, changed in blocks as a session's commits change it."""

    def __init__(self):
        self.forest = Forest()
        self.world = World()
        self.touched = {}
        self.ended = []
        self.ids = 0
        self.conversation()
        self.keep()

    # --- what a block may do

    def conversation(self, owner=None):
        self.ids += 1
        self.world.owners[self.ids] = owner
        if owner is not None:
            self.know(owner)
        self.forest.ownership.add_conversation(self.ids, owner)
        return self.ids

    def task(self, conversation=1, owner=None, *, background=False, state=None):
        self.ids += 1
        if owner is not None:
            conversation = self.world.tasks[owner].conversation_id
        self.know(owner if owner is not None else conversation)
        self.put(task(self.ids, conversation, owner, background=background, state=state))
        return self.ids

    def know(self, node):
        ownership = self.forest.ownership
        for one in reversed([one for one in (node, *self.world.above(node)) if one not in ownership]):
            if one in self.world.tasks:
                ownership.add_task(one, self.world.parent(one), background=self.world.is_background(one), live=False)
            else:
                ownership.add_conversation(one, self.world.owners[one])

    def put(self, record):
        self.world.tasks[record.id] = record
        self.forest.put(record)
        self.touched[record.id] = None

    def state(self, tid, state):
        self.put(with_state(self.world.tasks[tid], state))

    def finish(self, tid, outcome=COMPLETED):
        self.state(tid, Completing(outcome=outcome))

    def mark(self, tid):
        self.put(marked(self.world.tasks[tid]))

    def wait(self, tid, on, policy="allSettled", until=None):
        self.state(tid, waiting(on, policy, until))
        self.ended += [self.world.tasks[one] for one in on if one not in self.world.live()]

    # --- how a block ends

    def settle(self):
        done = settle(self.forest, list(self.touched), NOW, self.ended)
        self.world.settle()
        self.touched.clear()
        self.ended.clear()
        return done

    def keep(self):
        done = self.settle()
        self.forest.checkpoint()
        return done

    # --- what must be so

    def check(self):
        forest, world = self.forest, self.world
        assert {record.id: record for record in forest} == {tid: world.tasks[tid] for tid in world.live()}
        assert len(forest) == len(world.live())
        for tid in world.live():
            assert turn(forest, world.tasks[tid], NOW) == world.turn(tid)
            assert forest.below_intent(tid) == world.below_intent(tid)
            waiters = [w for w in world.live() if isinstance(s := world.tasks[w].state, Waiting) and tid in s.on]
            assert forest.waiters(tid) == sorted(waiters)

    def step(self, kind, a, b, c):
        """Do one thing that a commit block could do, chosen by numbers; nothing when it would be refused."""
        world = self.world
        live = sorted(world.live())
        able = [tid for tid in live if not isinstance(world.tasks[tid].state, Completing)]
        owners = [tid for tid in able if not world.tasks[tid].abort_requested]
        conversations = sorted(world.owners)
        if kind == 0:
            self.conversation(owners[a % len(owners)] if owners and b % 4 else None)
        elif kind in (1, 2) or not able:
            self.task(conversations[a % len(conversations)], background=b % 3 == 0)
        elif kind in (3, 4) and owners:
            self.task(owner=owners[a % len(owners)])
        elif kind in (5, 6, 7):
            self.finish(able[a % len(able)], OUTCOMES[b % 5] if b < 8 else COMPLETED)
        elif kind == 8:
            self.mark(live[a % len(live)])
        elif kind in (9, 10):
            self.wait_for_some(able[a % len(able)], b, c)
        else:
            self.state(able[a % len(able)], Running(checkpoint={"phase": "run"}))

    def wait_for_some(self, tid, b, c):
        policy = POLICIES[b % len(POLICIES)]
        fail_fast = policy == "failFast"
        others = [
            one for one in self.world.tasks if one != tid and not (fail_fast and self.world.tasks[one].owner != tid)
        ]
        on = sorted({others[(b + k * c) % len(others)] for k in range(3)}) if others else []
        if isinstance(policy, Quorum) and policy.quorum > len(on):
            policy = "firstCompleted"
        self.wait(tid, on, policy, until=[None, NOW - 1, NOW + 1][c % 3])


# A step is four numbers that choose among what is possible at that moment, so that any list of them is a history.
step = st.tuples(*[st.integers(0, 11)] * 4)
blocks = st.lists(st.tuples(st.lists(step, max_size=4), st.booleans()), max_size=14)


@settings(max_examples=250, deadline=None)
@given(blocks)
def test_every_block_has_the_consequences_that_the_whole_tree_recomputed_has(history):
    bench = Bench()
    for steps, _ in history:
        for numbers in steps:
            bench.step(*numbers)
        before, turns = bench.world.copy(), {tid: bench.world.turn(tid) for tid in bench.world.live()}
        done = bench.settle()
        check_settlement(bench, before, done)
        bench.forest.checkpoint()
        bench.check()
        check_candidates(bench, turns, done)


def check_settlement(bench, before, done):
    world = bench.world
    changed = {tid: record for tid, record in world.tasks.items() if before.tasks[tid] != record}
    assert done.changed == changed
    ended = [record.id for record in done.ended]
    assert set(ended) == before.live() - world.live()
    assert len(ended) == len(set(ended))
    assert [record == world.tasks[record.id] for record in done.ended].count(False) == 0
    assert sorted(done.marked) == sorted(
        tid for tid in changed if changed[tid].abort_requested != before.tasks[tid].abort_requested
    )
    for at, tid in enumerate(ended):
        assert not set(ended[at:]) & {one for one in ended if tid in world.ordinary_ancestors(one)}
    for tid, record in world.tasks.items():
        if isinstance(record.state, Terminal):
            assert not any(world.tasks[one].owner == tid for one in world.live())
    check_withdrawn(before, world, done)


def check_withdrawn(before, after, done):
    """Withdrawn are the conversations below owners that are cancelled now; all that have work of those cancelled anew."""
    cancelled = before.copy()
    for tid in done.marked:
        cancelled.tasks[tid] = marked(cancelled.tasks[tid])
    below = {node for node in cancelled.owners if cancelled.below_intent(node)}
    assert set(done.withdrawn) <= below
    anew = {tid for tid in done.marked if cancelled.has_intent(tid)}
    for conversation in below & cancelled.listed():
        if anew & set(cancelled.ordinary_ancestors(conversation)):
            assert conversation in done.withdrawn


def check_candidates(bench, turns, done):
    for tid in bench.world.live():
        if bench.world.turn(tid) is not None and turns.get(tid) is None:
            assert tid in done.candidates


@settings(max_examples=200, deadline=None)
@given(blocks)
def test_a_refused_block_leaves_everything_exactly_as_it_was(history):
    bench = Bench()
    for steps, kept in history:
        before, world, ids = parts(bench.forest), bench.world.copy(), bench.ids
        for numbers in steps:
            bench.step(*numbers)
        bench.settle()
        if kept:
            bench.forest.checkpoint()
        else:
            bench.forest.rollback()
            bench.world, bench.ids = world, ids
            assert parts(bench.forest) == before
        bench.check()


@settings(max_examples=100, deadline=None)
@given(blocks, st.randoms(use_true_random=False))
def test_nothing_is_left_in_memory_when_all_tasks_have_ended(history, random):
    bench = Bench()
    for steps, _ in history:
        for numbers in steps:
            bench.step(*numbers)
        bench.keep()
    while bench.world.live():
        able = [tid for tid in sorted(bench.world.live()) if not isinstance(bench.world.tasks[tid].state, Completing)]
        bench.finish(random.choice(able), random.choice(OUTCOMES))
        bench.keep()
    assert not any(parts(bench.forest).values())
    assert bench.forest.wake() is None
    assert bench.forest._deadlines._queue == []
    assert bench.forest._before == {}
    assert bench.forest.ownership._undo == []


# --- named cases


def tree(*specs):
    """A bench with tasks made of ``(owner, state)`` or ``(owner, state, conversation, background)``; ids start at 2."""
    bench = Bench()
    for owner, state, *rest in specs:
        conversation, background = rest or (1, False)
        bench.task(conversation, owner, background=background, state=state)
    bench.keep()
    return bench


RUNNING = Running(checkpoint={"phase": "run"})
HELD = Completing(outcome=COMPLETED)


def outcome(bench, tid):
    return bench.world.tasks[tid].state.outcome


def test_an_outcome_is_held_while_owned_work_lives_and_ends_in_the_commit_that_drains_it():
    """SC-19, SC-17."""
    bench = tree((None, RUNNING), (2, RUNNING), (None, RUNNING))
    bench.wait(4, [2])
    bench.finish(2)
    assert bench.keep().ended == []
    assert bench.world.tasks[2].state == HELD
    assert turn(bench.forest, bench.world.tasks[4], NOW) is None
    bench.finish(3)
    done = bench.keep()
    assert [record.id for record in done.ended] == [3, 2]
    assert 4 in done.candidates
    assert turn(bench.forest, bench.world.tasks[4], NOW) == "run"


def test_all_settled_marks_nobody():
    """SC-07."""
    bench = tree((None, RUNNING), *[(2, RUNNING)] * 5)
    bench.wait(2, range(3, 8))
    bench.keep()
    for child, how in zip(range(3, 8), OUTCOMES, strict=True):
        bench.finish(child, how)
        assert bench.keep().marked == []
    assert turn(bench.forest, bench.forest.get(2), NOW) == "run"


@pytest.mark.parametrize("how", OUTCOMES[1:])
def test_fail_fast_marks_the_others_in_the_list_and_nobody_else(how):
    """SC-08, SC-10: not the one that failed, not the parent, not a child that is not in the list."""
    bench = tree((None, RUNNING), *[(2, RUNNING)] * 5)
    bench.wait(2, [3, 4, 5, 6], "failFast")
    bench.keep()
    bench.finish(4, how)
    assert sorted(bench.keep().marked) == [3, 5, 6]


def test_fail_fast_answers_a_failure_that_is_still_held():
    """SC-09: and when the others have ended, the one that holds the failure gets no mark for theirs."""
    bench = tree((None, RUNNING), (2, RUNNING), (2, RUNNING), (3, RUNNING))
    bench.wait(2, [3, 4], "failFast")
    bench.keep()
    bench.finish(3, FAILED)
    assert sorted(bench.keep().marked) == [4, 5]
    bench.finish(4, OUTCOMES[2])
    bench.keep()
    assert bench.world.tasks[3].state == Completing(outcome=FAILED)
    assert not bench.world.tasks[3].abort_requested
    assert turn(bench.forest, bench.forest.get(2), NOW) is None
    bench.finish(5, OUTCOMES[2])
    bench.keep()
    assert turn(bench.forest, bench.forest.get(2), NOW) == "run"


@pytest.mark.parametrize("state", [Completing(outcome=FAILED), Terminal(outcome=FAILED)])
def test_a_fail_fast_wait_that_begins_after_the_failure_marks_at_once(state):
    bench = Bench()
    parent = bench.task(state=RUNNING)
    failed, live = bench.task(owner=parent, state=RUNNING), bench.task(owner=parent, state=RUNNING)
    if isinstance(state, Completing):
        bench.task(owner=failed, state=RUNNING)
    bench.finish(failed, FAILED)
    bench.keep()
    assert type(bench.world.tasks[failed].state) is type(state)
    bench.wait(parent, [failed, live], "failFast")
    assert bench.keep().marked == [live]


def test_a_held_failure_cancels_the_work_below_and_a_held_success_does_not():
    """SC-21."""
    bench = tree((None, RUNNING), (2, RUNNING), (None, RUNNING), (4, RUNNING))
    bench.finish(2, FAILED)
    bench.finish(4, COMPLETED)
    assert bench.keep().marked == [3]


def test_a_mark_on_a_held_success_cancels_the_work_below_and_keeps_the_outcome():
    """SC-22, SC-23: its abort handler never gets a turn."""
    bench = tree((None, RUNNING), (2, RUNNING))
    bench.finish(2, COMPLETED)
    bench.keep()
    bench.mark(2)
    assert bench.keep().marked == [3]
    assert turn(bench.forest, bench.forest.get(2), NOW) is None
    bench.finish(3, OUTCOMES[2])
    bench.keep()
    assert outcome(bench, 2) == COMPLETED
    assert bench.world.tasks[2].abort_requested


def test_abort_handlers_get_their_turns_leaf_first():
    """SC-25."""
    bench = tree((None, RUNNING), (2, RUNNING), (3, RUNNING))
    bench.mark(2)
    assert bench.keep().marked == [3, 4]
    turns = []
    while bench.world.live():
        (ready,) = [tid for tid in bench.world.live() if turn(bench.forest, bench.forest.get(tid), NOW) == "abort"]
        turns.append(ready)
        bench.finish(ready, OUTCOMES[2])
        bench.keep()
    assert turns == [4, 3, 2]


def test_a_mark_crosses_task_edges_and_owned_conversations():
    """SC-29: and what is queued in the conversations that it crosses is withdrawn."""
    bench = Bench()
    a = bench.task(state=RUNNING)
    b = bench.task(owner=a, state=RUNNING)
    conversation = bench.conversation(owner=b)
    x = bench.task(conversation, state=RUNNING)
    bench.keep()
    bench.mark(a)
    done = bench.keep()
    assert sorted(done.marked) == [b, x]
    assert list(done.withdrawn) == [conversation]
    assert [turn(bench.forest, bench.forest.get(tid), NOW) for tid in (a, b, x)] == [None, None, "abort"]


def test_a_terminal_owner_cancels_nothing():
    """SC-31."""
    bench = Bench()
    agent = bench.task(state=RUNNING)
    conversation = bench.conversation(owner=agent)
    bench.finish(agent, OUTCOMES[2])
    bench.keep()
    late = bench.task(conversation)
    assert bench.keep().marked == []
    assert turn(bench.forest, bench.forest.get(late), NOW) == "run"


def test_a_mark_stops_at_a_background_task_and_reaches_foreground_work_beside_it():
    """SC-33, SC-34."""
    bench = Bench()
    owner = bench.task(state=RUNNING)
    conversation = bench.conversation(owner=owner)
    background = bench.task(conversation, background=True, state=RUNNING)
    below = bench.task(owner=background, state=RUNNING)
    bench.keep()
    bench.mark(owner)
    assert bench.keep().marked == []
    assert turn(bench.forest, bench.forest.get(owner), NOW) == "abort"
    beside, under = bench.task(conversation), bench.task(owner=background)
    assert bench.keep().marked == [beside]
    assert turn(bench.forest, bench.forest.get(under), NOW) == "run"
    bench.mark(background)
    assert sorted(bench.keep().marked) == [below, under]


def test_work_that_appears_below_a_cancelled_owner_never_runs():
    """SC-38, B050: it is marked in the commit that creates it."""
    bench = Bench()
    owner = bench.task(state=RUNNING)
    conversation = bench.conversation(owner=owner)
    bench.mark(owner)
    bench.keep()
    late = bench.task(conversation)
    assert turn(bench.forest, bench.forest.get(late), NOW) is None
    assert bench.keep().marked == [late]
    assert turn(bench.forest, bench.forest.get(late), NOW) == "abort"


def test_an_ended_background_ancestor_is_still_a_boundary():
    """SC-46."""
    bench = Bench()
    owner = bench.task(state=RUNNING)
    conversation = bench.conversation(owner=owner)
    background = bench.task(conversation, background=True, state=RUNNING)
    inner = bench.conversation(owner=background)
    bench.finish(background)
    bench.keep()
    work = bench.task(inner)
    bench.keep()
    bench.mark(owner)
    assert bench.keep().marked == []
    assert not bench.forest.ownership.has_work(owner)
    assert turn(bench.forest, bench.forest.get(work), NOW) == "run"


def test_what_a_pass_does_is_the_same_in_every_order_of_the_changes():
    for order in ([2, 3, 4], [4, 3, 2]):
        bench = tree((None, RUNNING), (2, RUNNING), (2, RUNNING))
        bench.mark(2)
        bench.finish(3)
        bench.finish(4, FAILED)
        bench.touched = dict.fromkeys(order)
        done = bench.keep()
        assert (done.marked, sorted(record.id for record in done.ended)) == ([3], [3, 4])


def test_a_task_is_stamped_with_the_times_of_its_first_run_and_of_its_end():
    """TS-35."""
    pending = task(2)
    running = reserved(pending, 5)
    assert (running.started_at, running.state) == (5, RUNNING)
    assert reserved(with_state(running, waiting([])), 9).started_at == 5
    assert reserved(running, 9) is running


# --- time


def test_a_session_must_be_awake_for_its_earliest_deadline_and_at_once_for_runnable_work():
    bench = tree((None, waiting([], until=70)), (None, waiting([], until=50)))
    assert (bench.forest.wake(), bench.forest.deadline()) == (50, 50)
    bench.task()
    assert (bench.forest.wake(), bench.forest.deadline()) == (0, 50)


def test_a_deadline_is_taken_once_and_does_not_hide_a_later_one():
    bench = tree((None, waiting([3], until=50)), (None, RUNNING), (None, waiting([], until=70)))
    assert bench.forest.take_due(49) == []
    assert bench.forest.take_due(60) == [2]
    assert bench.forest.take_due(60) == []
    assert bench.forest.deadline() == 70


def test_deadlines_that_no_longer_count_do_not_pile_up():
    """P10: behind one early deadline, many later ones come and go."""
    bench = tree((None, waiting([], until=10)))
    for until in range(1_000, 2_000):
        tid = bench.task(state=waiting([], until=until))
        bench.keep()
        bench.finish(tid)
        bench.keep()
    assert len(bench.forest._deadlines._queue) < 100


# --- wait cycles


def test_two_tasks_cannot_wait_for_each_other():
    """SC-14."""
    bench = tree((None, RUNNING), (None, RUNNING))
    assert not closes_cycle(bench.forest, 2, [3])
    bench.wait(2, [3])
    bench.keep()
    assert closes_cycle(bench.forest, 3, [2])
    assert closes_cycle(bench.forest, 3, [3])


def test_a_task_cannot_wait_for_one_that_its_own_end_holds_open():
    """SC-13: whether or not that one waits for it."""
    bench = tree((None, RUNNING), (2, RUNNING), (3, RUNNING))
    assert closes_cycle(bench.forest, 4, [2])
    assert not closes_cycle(bench.forest, 2, [3, 4])
    bench.wait(2, [3])
    bench.keep()
    assert closes_cycle(bench.forest, 3, [2])


@pytest.mark.parametrize("second", ["other waits for the owner", "the child waits for the other"])
def test_a_cycle_through_a_hold_is_found_whichever_wait_comes_second(second):
    """SC-15: held owner -> its child -> other -> held owner."""
    bench = tree((None, RUNNING), (2, RUNNING), (None, RUNNING))
    bench.finish(2)
    bench.keep()
    if second == "other waits for the owner":
        bench.wait(3, [4])
        bench.keep()
        assert closes_cycle(bench.forest, 4, [2])
    else:
        bench.wait(4, [2])
        bench.keep()
        assert closes_cycle(bench.forest, 3, [4])


def test_a_background_task_may_wait_for_the_owner_of_its_conversation():
    """SC-16."""
    bench = Bench()
    owner = bench.task(state=RUNNING)
    conversation = bench.conversation(owner=owner)
    background = bench.task(conversation, background=True, state=RUNNING)
    foreground = bench.task(conversation, state=RUNNING)
    bench.keep()
    assert not closes_cycle(bench.forest, background, [owner])
    assert closes_cycle(bench.forest, foreground, [owner])


@settings(max_examples=150, deadline=None)
@given(blocks, st.tuples(*[st.integers(0, 11)] * 3))
def test_a_wait_is_refused_exactly_when_it_closes_a_cycle(history, choice):
    """Against reachability over all waits and holds; a task's own children are where it may begin by ownership alone."""
    bench = Bench()
    for steps, _ in history:
        for numbers in steps:
            bench.step(*numbers)
        bench.keep()
    live = sorted(bench.world.live())
    if not live:
        return
    waiter, *on = (live[n % len(live)] for n in choice)
    assert closes_cycle(bench.forest, waiter, on) == bench.world.closes_cycle(waiter, on)


# --- cost


def chain_of(length):
    """Each task owns the next; the last one's tid is ``length + 1``."""
    bench = Bench()
    bench.know(1)
    for at in range(length):
        bench.forest.put(task(at + 2, 1, at + 1 if at else None, state=RUNNING))
    bench.forest.checkpoint()
    return bench.forest


def hold(forest, tid, how=COMPLETED):
    forest.put(with_state(forest.get(tid), Completing(outcome=how)))


def count_calls(monkeypatch, cls, name):
    calls = []
    original = getattr(cls, name)

    def counted(self, *args):
        calls.append(None)
        return original(self, *args)

    monkeypatch.setattr(cls, name, counted)
    return calls


def test_a_chain_of_20_000_owned_tasks_settles_in_one_pass(monkeypatch):
    forest = chain_of(CHAIN)
    for tid in range(2, CHAIN + 1):
        hold(forest, tid)
    assert settle(forest, range(2, CHAIN + 1), NOW).ended == []
    puts = count_calls(monkeypatch, Forest, "put")
    looks = count_calls(monkeypatch, Forest, "get")
    hold(forest, CHAIN + 1)
    done = settle(forest, [CHAIN + 1], NOW)
    assert [record.id for record in done.ended] == list(range(CHAIN + 1, 1, -1))
    assert len(forest) == 0
    assert len(puts) == CHAIN + 1
    assert len(looks) <= 3 * CHAIN


def test_a_mark_on_a_chain_of_20_000_owned_tasks_visits_each_a_few_times(monkeypatch):
    forest = chain_of(CHAIN)
    looks = count_calls(monkeypatch, Forest, "get")
    forest.put(marked(forest.get(2)))
    done = settle(forest, [2], NOW)
    assert len(done.marked) == CHAIN - 1
    assert len(looks) <= 6 * CHAIN


def test_a_wait_for_the_top_of_a_chain_of_20_000_is_checked_in_one_walk(monkeypatch):
    forest = chain_of(CHAIN)
    forest.put(task(CHAIN + 5, 1, state=RUNNING))
    looks = count_calls(monkeypatch, Forest, "get")
    assert not closes_cycle(forest, CHAIN + 5, [2])
    assert len(looks) <= 3 * CHAIN


def test_a_fan_of_owned_tasks_that_end_one_by_one_costs_a_step_each(monkeypatch):
    forest = chain_of(1)
    fan = range(10, 2_010)
    for tid in fan:
        forest.put(task(tid, 1, 2, state=RUNNING))
    hold(forest, 2)
    settle(forest, [2, *fan], NOW)
    looks = count_calls(monkeypatch, Forest, "get")
    background = count_calls(monkeypatch, type(forest.ownership), "is_background")
    for tid in fan:
        hold(forest, tid, COMPLETED)
        settle(forest, [tid], NOW)
    assert len(forest) == 0
    assert len(looks) + len(background) <= 20 * len(fan)


def test_a_waiter_for_many_is_looked_at_each_time_at_the_cost_of_one(monkeypatch):
    forest = chain_of(1)
    fan = range(10, 2_010)
    for tid in fan:
        forest.put(task(tid, 1, 2, state=RUNNING))
    forest.put(with_state(forest.get(2), waiting(fan, "failFast")))
    forest.checkpoint()
    looks = count_calls(monkeypatch, Forest, "get")
    for tid in fan:
        assert turn(forest, forest.get(2), NOW) is None
        hold(forest, tid, FAILED)
        assert 2 in settle(forest, [tid], NOW).candidates
        forest.checkpoint()
    assert turn(forest, forest.get(2), NOW) == "run"
    assert len(looks) <= 20 * len(fan)


def test_a_session_with_a_wait_that_is_over_must_be_awake_at_once():
    """Also when nothing runs: the waiter's code may have been missing when its wait ended."""
    bench = tree((None, RUNNING), (None, RUNNING))
    bench.wait(2, [3])
    bench.keep()
    bench.finish(3)
    bench.keep()
    assert not bench.forest._active
    assert bench.forest.wake() == 0


def test_a_failure_that_is_told_twice_marks_once():
    forest = chain_of(2)
    hold(forest, 2, FAILED)
    assert settle(forest, [2, 2], NOW).marked == [3]
    assert settle(forest, [2], NOW).marked == []
