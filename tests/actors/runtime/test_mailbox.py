"""The queue in front of an actor: Pykka's inbox protocol, a bound, and a wake-up that is never lost."""

import contextvars

import pytest
from perdure.actors.runtime.errors import MailboxFull, WouldBlock
from perdure.actors.runtime.mailbox import Letter, Mailbox


class FakeScheduler:
    def __init__(self):
        self.woken = []

    def wake(self, item):
        self.woken.append(item)


class Plain(Mailbox):
    def activate(self):
        raise NotImplementedError

    def bury(self):
        raise NotImplementedError


def mailbox(limit=None):
    scheduler = FakeScheduler()
    return Plain("m", scheduler, contextvars.copy_context(), limit), scheduler


def test_it_keeps_order_behind_pykkas_protocol():
    box, _ = mailbox()
    assert box.empty()
    box.put(Letter(1))
    box.put(Letter(2))
    assert not box.empty()
    assert [box.get().message, box.get().message] == [1, 2]
    with pytest.raises(WouldBlock, match="mailbox of m is empty"):
        box.get()


def test_only_the_message_that_makes_it_non_empty_wakes_the_scheduler():
    box, scheduler = mailbox()
    for number in range(5):
        box.put(Letter(number))
    assert scheduler.woken == [box]


def test_going_idle_with_nothing_left_waits_for_the_next_message():
    box, scheduler = mailbox()
    box.put(Letter(1))
    box.get()
    box.go_on()
    assert not box.scheduled
    box.put(Letter(2))
    assert scheduler.woken == [box, box]


def test_a_message_put_between_the_last_look_and_going_idle_is_seen_at_the_second_look():
    box, scheduler = mailbox()
    box.put(Letter(1))
    box.get()  # the last look: empty
    box.put(Letter("in between"))  # another thread, which sees `scheduled` still set
    assert scheduler.woken == [box]
    box.go_on()
    assert scheduler.woken == [box, box]
    assert box.scheduled


def test_a_bound_counts_waiting_messages():
    box, _ = mailbox(limit=2)
    box.put(Letter(1))
    box.put(Letter(2))
    with pytest.raises(MailboxFull) as full:
        box.put(Letter(3))
    assert full.value.limit == 2
    assert full.value.actor == "m"
    box.get()
    box.put(Letter(3))
