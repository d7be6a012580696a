"""Messages arrive once and in order, however often they are handed over; a wait for mail ends when there is some."""

import hypothesis.strategies as st
import msgspec
from hypothesis import given
from perdure.storage.records import Completed, Completing, MessageRecord, Running, Terminal, Waiting
from perdure.supervisors.forest import Forest, closes_cycle
from perdure.supervisors.mail import arrive, refusal
from perdure.supervisors.settlement import settle, turn

from .model import NOW, OUTCOMES, task, with_state


def message(number, target=1):
    return MessageRecord(id=number, status="outgoing", task_id=target, session="s", body=number)


# --- arrival


class Receiver:
    """A session that receives from one other, with inboxes of a limited size."""

    def __init__(self, room):
        self.room = room
        self.mark = 0
        self.inboxes = {}
        self.handled = []
        self.dead = []

    def take_in(self, bundle, ended):
        fates = {
            one.task_id: "ended" if one.task_id in ended else self.room - len(self.inboxes.get(one.task_id, []))
            for one in bundle
        }
        arrivals = arrive(bundle, self.mark, fates)
        self.mark = arrivals.mark
        for one in arrivals.queued:
            self.inboxes.setdefault(one.task_id, []).append(one.id)
        self.dead += [one.id for one, _ in arrivals.dead]
        return arrivals.handled

    def receive(self):
        for inbox in self.inboxes.values():
            self.handled += inbox
            inbox.clear()


steps = st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.booleans()), max_size=40)


@given(st.lists(st.integers(1, 3), max_size=20), st.integers(1, 3), st.sets(st.integers(1, 3), max_size=2), steps)
def test_however_often_messages_are_handed_over_each_is_dealt_with_once_in_order(targets, room, ended, plan):
    """B062, B064: the sender may forget at any time that they have arrived, but nothing else."""
    outbox = [message(2 * number + 1, target) for number, target in enumerate(targets)]
    receiver = Receiver(room)
    for size, forgets, receives in [*plan, *[(5, False, True)] * 30]:
        handled = receiver.take_in(outbox[:size], ended)
        if not forgets:
            del outbox[:handled]
        if receives:
            receiver.receive()
        assert all(len(inbox) <= room for inbox in receiver.inboxes.values())
    assert outbox == []
    numbered = {2 * number + 1: target for number, target in enumerate(targets)}
    assert receiver.dead == [number for number, target in numbered.items() if target in ended]
    for target in {1, 2, 3} - ended:
        assert [number for number in receiver.handled if numbered[number] == target] == [
            number for number, wanted in numbered.items() if wanted == target
        ]


@given(st.lists(st.integers(1, 9), min_size=1, unique=True).map(sorted), st.integers(0, 9), st.integers(0, 3))
def test_whoever_has_no_room_stops_what_is_behind(numbers, mark, room):
    bundle = [message(number, 1 + number % 2) for number in numbers]
    arrivals = arrive(bundle, mark, {1: room, 2: 1_000})
    waiting = bundle[arrivals.handled :]
    assert all(one.id > arrivals.mark for one in waiting)
    assert not waiting or (waiting[0].task_id == 1 and sum(one.task_id == 1 for one in arrivals.queued) == room)
    assert arrivals.mark == max([mark, *(one.id for one in arrivals.queued)])


def test_a_task_refuses_mail_once_its_outcome_is_decided():
    """B065: there is no code left that could receive it."""
    live = task(1)
    assert refusal(live) is None
    assert refusal(with_state(live, waiting_for_mail())) is None
    assert refusal(None) == "unknown_task"
    for outcome in OUTCOMES:
        assert refusal(with_state(live, Completing(outcome=outcome))) == "ended"
        assert refusal(with_state(live, Terminal(outcome=outcome))) == "ended"


# --- waiting


def waiting_for_mail(on=(), until=None):
    return Waiting(checkpoint={"phase": "resume"}, on=list(on), policy="allSettled", until=until, mail=True)


def forest_with(*records):
    forest = Forest()
    forest.ownership.add_conversation(1, None)
    for record in records:
        forest.put(record)
    forest.checkpoint()
    return forest


def may_run(forest, number=1):
    return turn(forest, forest.get(number), NOW) == "run"


def test_a_message_ends_a_wait_whatever_else_is_waited_for():
    forest = forest_with(task(1, state=waiting_for_mail([2], NOW + 5)), task(2))
    assert not may_run(forest)
    assert forest.wake() == 0  # task 2 is pending
    forest.count_mail(1, 1)
    assert may_run(forest)
    assert 1 in settle(forest, [1], NOW).candidates


def test_the_awaited_tasks_the_deadline_and_messages_are_alternatives():
    ended = Terminal(outcome=Completed())
    forest = forest_with(task(1, state=waiting_for_mail([2], NOW + 5)), task(2))
    forest.put(with_state(task(2), ended))
    assert may_run(forest)
    forest = forest_with(task(1, state=waiting_for_mail([2], NOW)), task(2))
    assert may_run(forest)
    forest = forest_with(task(1, state=waiting_for_mail()))
    assert not may_run(forest), "mail alone is waited for, and there is none"
    assert forest.wake() is None


def test_a_session_whose_waiting_task_has_mail_must_be_awake():
    forest = forest_with(task(1, state=waiting_for_mail(until=NOW + 5)))
    assert forest.wake() == NOW + 5
    forest.count_mail(1, 2)
    assert forest.wake() == 0
    forest.count_mail(1, -2)
    assert forest.wake() == NOW + 5
    assert forest.take_due(NOW + 5) == [1]
    assert forest.wake() == 0


def test_mail_does_not_end_a_wait_that_is_not_for_mail():
    forest = forest_with(task(1, state=Waiting(checkpoint={}, on=[2], policy="allSettled")), task(2))
    forest.count_mail(1, 1)
    assert not may_run(forest)


def test_a_wait_for_mail_closes_no_cycle():
    """A message may end it, so those that wait for it may."""
    forest = forest_with(task(1), task(2, state=waiting_for_mail([1])))
    assert not closes_cycle(forest, 1, [2])
    forest = forest_with(task(1), task(2, state=Waiting(checkpoint={}, on=[1], policy="allSettled")))
    assert closes_cycle(forest, 1, [2])


changes = st.lists(
    st.tuples(st.sampled_from(["park", "run", "end", "mail", "mail", "take", "keep", "undo"]), st.integers(1, 4)),
    max_size=40,
)


@given(changes)
def test_what_is_known_of_mail_follows_every_change_and_every_rollback(plan):
    """Beside a model that copies everything at each checkpoint."""
    records = {number: task(number) for number in range(1, 5)}
    mail = dict.fromkeys(records, 0)
    forest = forest_with(*records.values())
    kept = dict(records), dict(mail)
    for what, number in plan:
        record = records.get(number)
        if what == "keep":
            forest.checkpoint()
            kept = dict(records), dict(mail)
        elif what == "undo":
            forest.rollback()
            records, mail = dict(kept[0]), dict(kept[1])
        elif record is not None:
            change = {"mail": 1, "take": -mail[number]}.get(what, 0)
            if change:
                forest.count_mail(number, change)
                mail[number] += change
            state = {
                "park": waiting_for_mail([number % 4 + 1], NOW + number),
                "run": Running(checkpoint={}),
                "end": Terminal(outcome=Completed()),
            }.get(what)
            if state is not None:
                if what == "end":
                    forest.count_mail(number, -mail[number])
                    mail[number] = 0
                records[number] = msgspec.structs.replace(record, state=state)
                forest.put(records[number])
                if what == "end":
                    del records[number]
        assert {one: forest.mail(one) for one in mail} == mail
        over = [
            one.id
            for one in records.values()
            if isinstance(one.state, Waiting) and (mail[one.id] or not {*one.state.on} & {*records})
        ]
        busy = [one.id for one in records.values() if not isinstance(one.state, Waiting)]
        assert (forest.wake() == 0) == bool(over or busy)
        assert sorted(one.id for one in forest if turn(forest, one, NOW) == "run") == sorted([*over, *busy])
