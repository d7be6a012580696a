"""Supervisors: failing starts, budgets, escalation, shutdown, and children that come and go."""

import asyncio
import contextlib
import itertools

import pytest
from perdure.actors.runtime import (
    Actor,
    ActorCrashed,
    ActorDead,
    ActorExists,
    ActorSystem,
    Backoff,
    ChildSpec,
    RestartIntensityExceeded,
    Supervisor,
    UnknownChild,
    VirtualClock,
)
from perdure.chord.errors import PerdureError


class Child(Actor):
    def __init__(self, story=None):
        self.story = story if story is not None else []

    def on_start(self):
        self.story.append(f"start {self.id}")

    def on_receive(self, message):
        if isinstance(message, BaseException):
            raise message
        return message

    def on_stop(self):
        self.story.append(f"stop {self.id}")


class SlowToStop(Child):
    async def on_stop(self):
        for _ in range(3):
            await asyncio.sleep(0)
        super().on_stop()


class NeverStops(Child):
    async def on_stop(self):
        await asyncio.Event().wait()


class Watching(Supervisor):
    def __init__(self, heard, **options):
        super().__init__(**options)
        self.heard = heard

    def on_child_started(self, child_id, ref):
        self.heard.append(("started", child_id, ref))

    def on_child_ended(self, child_id, reason):
        self.heard.append(("ended", child_id, reason.kind))


async def turns(count=30):
    for _ in range(count):
        await asyncio.sleep(0)


async def settle(clock):
    await turns()
    while clock.jump():
        await turns()


def fails_times(times, error=ValueError):
    """A factory whose first ``times`` actors cannot be made."""
    made = []

    def make(*args):
        made.append(args)
        if len(made) <= times:
            raise error("no")
        return Child(*args)

    return make, made


# -- starting ------------------------------------------------------------------------------------------------------------


async def test_children_are_up_before_the_supervisor_is():
    class Later(Supervisor):
        async def on_start(self):
            assert all(ref.is_alive() for ref in self.children().values())
            story.append("start supervisor")

    async with ActorSystem() as system:
        story = []
        specs = [ChildSpec(name, Child, (story,)) for name in "ab"]
        assert list(await system.spawn(Later, children=specs).proxy().children()) == ["a", "b"]
        assert story == ["start a", "start b", "start supervisor"]


async def test_a_child_added_later_is_at_the_end_and_gets_the_arguments():
    class Keyword(Child):
        def __init__(self, story, *, name):
            super().__init__(story)
            self.name = name

    async with ActorSystem() as system:
        supervisor = system.spawn(Supervisor, children=[ChildSpec("a", Child)])
        ref = await supervisor.proxy().start_child(ChildSpec("z", Keyword, ([],), {"name": "Zoe"}))
        assert await ref.proxy().name == "Zoe"
        assert list(await supervisor.proxy().children()) == ["a", "z"]
        assert system.ref("z") is ref


async def test_spawning_under_a_supervisor_makes_a_permanent_child():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor)
        await turns()
        ref = system.spawn(Child, id="c", supervisor=supervisor)
        await ref.stop(block=False)
        await settle(clock)
        assert system.ref("c").is_alive()
        with pytest.raises(TypeError, match="supervisor"):
            system.spawn(Child, supervisor=system.ref("c"))


async def test_ids_are_unique_among_live_actors_and_children_that_will_come_back():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor, children=[ChildSpec("a", Child)])
        await turns()
        system.spawn(Child, id="top")
        for name in ("a", "top"):
            with pytest.raises(ActorExists, match=name):
                await supervisor.proxy().start_child(ChildSpec(name, Child))
        system.ref("a").tell(ValueError("bad"))
        await turns()
        assert await supervisor.proxy().children() == {"a": None}
        with pytest.raises(ActorExists):
            await supervisor.proxy().start_child(ChildSpec("a", Child))


async def test_a_child_whose_id_was_taken_meanwhile_is_tried_again():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        system.spawn(Supervisor, children=[ChildSpec("a", Child)])
        await turns()
        system.ref("a").tell(ValueError("bad"))
        await turns()
        squatter = system.spawn(Child, id="a")
        clock.jump()
        await turns()
        assert system.ref("a") is squatter
        await squatter.stop(block=False)
        await settle(clock)
        assert system.ref("a") is not squatter
        assert system.ref("a").is_alive()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"strategy": "all_for_one"}, "strategy"),
        ({"children": [ChildSpec("a", Child), ChildSpec("a", Child)]}, "differ"),
        ({"intensity": 10, "period_s": 1.0}, "period_s"),
    ],
)
async def test_bad_options_are_refused_where_it_is_spawned(options, message):
    async with ActorSystem() as system:
        with pytest.raises(ValueError, match=message):
            system.spawn(Supervisor, **options)


def test_bad_child_specs_are_refused():
    with pytest.raises(ValueError, match="restart"):
        ChildSpec("a", Child, restart="sometimes")
    with pytest.raises(ValueError, match="shutdown_s"):
        ChildSpec("a", Child, shutdown_s=-1)


# -- failing starts --------------------------------------------------------------------------------------------------------


async def test_a_constructor_that_fails_once_is_tried_again(logs):
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        make, made = fails_times(1)
        supervisor = system.spawn(Supervisor)
        await turns()
        ref = await supervisor.proxy().start_child(ChildSpec("a", make, ([],)))
        assert not ref.is_alive()
        with pytest.raises(ActorDead):
            await ref.ask(1, block=False)
        await settle(clock)
        assert len(made) == 2
        assert await system.ref("a").ask("hello", block=False) == "hello"
        assert [log["event"] for log in logs] == ["actor_crashed", "child_restarting"]


async def test_a_second_start_that_fails_does_not_hurt_the_supervisor():
    """B038: the first start works, the second raises in the constructor."""
    clock, made = VirtualClock(), []

    class Once(Child):
        def __init__(self):
            super().__init__()
            made.append(self)
            if len(made) in (2, 3):
                raise RuntimeError("second start")

    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor, children=[ChildSpec("a", Once)])
        await turns()
        system.ref("a").tell(ValueError("bad"))
        await settle(clock)
        assert len(made) == 4
        assert supervisor.is_alive()
        assert system.ref("a").is_alive()
        assert system.tree()[0]["children"][0]["restarts"] == 3


async def test_an_expected_error_at_start_counts_like_any_other():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        make, made = fails_times(2, PerdureError)
        system.spawn(Supervisor, children=[ChildSpec("a", make)])
        await settle(clock)
        assert len(made) == 3
        assert system.ref("a").is_alive()


async def test_a_factory_that_makes_no_actor_is_a_failed_start():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor, intensity=1, children=[ChildSpec("a", lambda: "not an actor")])
        await settle(clock)
        ended = await supervisor.when_ended()
        assert isinstance(ended.cause, RestartIntensityExceeded)
        assert isinstance(ended.cause.cause, TypeError)


async def test_mail_that_waited_for_a_failed_start_is_handled_once_after_the_next():
    """B041: the message that woke a cold actor is not lost when its first recovery fails."""

    class Cold(Child):
        async def on_start(self):
            await asyncio.sleep(0)
            tries.append(self)
            if len(tries) < 3:
                raise ConnectionError("first read fails")

        def on_receive(self, message):
            handled.append(message)
            return message

    clock, tries, handled = VirtualClock(), [], []
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor)
        await turns()
        ref = supervisor._actor_weakref().start_child(ChildSpec("cold", Cold))
        asked = ref.ask("prompt", block=False)
        ref.tell("told")
        await turns()
        assert not asked.done()
        assert not ref.is_alive()
        await settle(clock)
        assert await asked == "prompt"
        assert handled == ["prompt", "told"]
        assert system.dead_letters == 0


@pytest.mark.parametrize("end", ["gives up", "removes", "stops", "temporary"])
async def test_mail_of_a_failed_start_is_answered_when_there_is_no_next(end):
    class Never(Child):
        async def on_start(self):
            raise ConnectionError

    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor, intensity=2)
        await turns()
        restart = "temporary" if end == "temporary" else "permanent"
        ref = supervisor._actor_weakref().start_child(ChildSpec("never", Never, restart=restart))
        asked, stopped = ref.ask("anyone?", block=False), ref.stop(block=False)
        ref.tell("told")
        await turns()
        assert await stopped is True
        if end == "gives up":
            await settle(clock)
        elif end == "removes":
            await supervisor.proxy().stop_child("never")
        elif end == "stops":
            await supervisor.stop(block=False)
        with pytest.raises(ActorDead, match="never"):
            await asked
        assert system.dead_letters == 1


# -- how often and how long apart ------------------------------------------------------------------------------------------


async def test_a_child_that_dies_at_every_start_is_restarted_exactly_as_often_as_allowed(logs):
    """B037: growing, jittered waits, then an end with a reason, then silence."""
    clock, times = VirtualClock(), []

    class DiesAtStart(Child):
        def on_start(self):
            times.append(clock.monotonic())
            raise RuntimeError("at start")

    randoms = iter([0.0, 0.5, 0.0, 0.9, 0.0])
    async with ActorSystem(clock=clock, random=lambda: next(randoms)) as system:
        supervisor = system.spawn(
            Supervisor,
            intensity=5,
            period_s=60,
            backoff=Backoff(first_s=1.0, factor=2.0, max_s=8.0, jitter=0.1),
            children=[ChildSpec("doomed", DiesAtStart)],
            id="supervisor",
        )
        await settle(clock)
        waits = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert waits == pytest.approx([1.0, 2.1, 4.0, 8.72, 8.0])
        ended = await supervisor.when_ended()
        assert ended.kind == "crashed"
        assert isinstance(ended.cause, RestartIntensityExceeded)
        assert (ended.cause.supervisor, ended.cause.child, ended.cause.restarts) == ("supervisor", "doomed", 5)
        assert str(ended.cause).startswith("supervisor gave up on doomed: more than 5 restarts within 60 s")
        assert isinstance(ended.cause.__cause__, RuntimeError)
        assert clock.next_due() is None
        assert system.live_actors == 0
        assert [log["event"] for log in logs].count("supervisor_escalated") == 1
        assert [log["attempt"] for log in logs if log["event"] == "child_restarting"] == [1, 2, 3, 4, 5]


async def test_old_restarts_drop_out_of_the_window_and_the_backoff_begins_anew():
    clock = VirtualClock()
    async with ActorSystem(clock=clock, random=lambda: 0.0) as system:
        supervisor = system.spawn(
            Supervisor,
            intensity=2,
            period_s=10,
            backoff=Backoff(first_s=1, max_s=4),
            children=[ChildSpec("a", Child)],
        )
        await turns()
        for _ in range(10):
            system.ref("a").tell(ValueError("now and then"))
            await turns()
            assert clock.next_due() - clock.now() == 1_000
            clock.advance(1)
            await turns()
            clock.advance(10.5)
        assert supervisor.is_alive()
        assert system.tree()[0]["children"][0]["restarts"] == 10


async def test_the_budget_is_shared_by_all_children():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor, intensity=2, children=[ChildSpec(name, Child) for name in "abc"])
        await turns()
        for name in "abc":
            system.ref(name).tell(ValueError("bad"))
        await settle(clock)
        assert (await supervisor.when_ended()).cause.child == "c"


async def test_a_backoff_of_nothing_restarts_at_once():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        system.spawn(Supervisor, backoff=Backoff(first_s=0, max_s=0), children=[ChildSpec("a", Child)])
        await turns()
        ref = system.ref("a")
        ref.tell(ValueError("bad"))
        await turns()
        assert clock.next_due() is None
        assert system.ref("a").is_alive()
        assert system.ref("a") is not ref


# -- escalation ------------------------------------------------------------------------------------------------------------


async def test_a_supervisor_that_gives_up_stops_its_children_in_reverse_and_its_own_supervisor_decides():
    clock, story = VirtualClock(), []
    async with ActorSystem(clock=clock) as system:
        inner = ChildSpec(
            "inner",
            Supervisor,
            kwargs={
                "strategy": "rest_for_one",
                "intensity": 0,
                "children": [ChildSpec(name, Child, (story,)) for name in "abc"],
            },
            shutdown_s=None,
        )
        outer = system.spawn(Supervisor, children=[inner], id="outer")
        await turns()
        first = system.ref("inner")
        story.clear()
        system.ref("b").tell(ValueError("bad"))
        await settle(clock)
        assert story == ["stop c", "stop a", "start a", "start b", "start c"]
        assert (await first.when_ended()).cause.child == "b"
        assert system.ref("inner").is_alive()
        assert outer.is_alive()


async def test_an_escalation_to_the_root_is_told_once_and_fifty_healthy_sessions_never_notice(logs):
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        healthy = system.spawn(Supervisor, id="healthy", children=[ChildSpec(f"s{n}", Child) for n in range(50)])
        sick_child = ChildSpec("sick", Child)
        sick = system.spawn(Supervisor, id="ward", intensity=1, children=[sick_child])
        await turns()
        before = await healthy.proxy().children()
        for _ in range(2):
            system.ref("sick").tell(ValueError("bad"))
            await settle(clock)
        assert (await sick.when_ended()).kind == "crashed"
        assert [log["supervisor"] for log in logs if log["event"] == "supervisor_escalated"] == ["ward"]
        assert [log["actor"] for log in logs if log["event"] == "actor_crashed"] == ["sick", "sick"]
        assert await healthy.proxy().children() == before
        for name, ref in before.items():
            assert await ref.ask(name, block=False) == name


async def test_a_supervisor_that_gives_up_in_the_middle_of_a_handler_crashes_it():
    class Handling(Supervisor):
        async def on_receive(self, message):
            await asyncio.Event().wait()

    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Handling, intensity=0, children=[ChildSpec("a", Child)])
        await turns()
        asked = supervisor.ask("x", block=False)
        await turns()
        system.ref("a").tell(ValueError("bad"))
        with pytest.raises(ActorCrashed) as crash:
            await asked
        assert isinstance(crash.value.cause, RestartIntensityExceeded)


async def test_a_supervisor_that_gives_up_while_it_starts_has_not_started():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        make, _ = fails_times(100)
        supervisor = system.spawn(Supervisor, intensity=2, children=[ChildSpec("a", make), ChildSpec("b", Child)])
        asked = supervisor.proxy().children()
        await settle(clock)
        with pytest.raises(ActorDead):
            await asked
        assert isinstance((await supervisor.when_ended()).cause, RestartIntensityExceeded)
        assert system.live_actors == 0


async def test_restarts_go_on_while_a_handler_of_the_supervisor_takes_long():
    class Slow(Supervisor):
        async def on_receive(self, message):
            await gate.wait()

    gate, clock = asyncio.Event(), VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Slow, children=[ChildSpec("a", Child)])
        await turns()
        asked = supervisor.ask("x", block=False)
        await turns()
        first = system.ref("a")
        first.tell(ValueError("bad"))
        await settle(clock)
        assert not asked.done()
        assert system.ref("a") is not first
        assert await system.ref("a").ask("hello", block=False) == "hello"
        gate.set()
        await asked


# -- hooks -----------------------------------------------------------------------------------------------------------------


async def test_the_supervisor_hears_of_starts_and_ends_with_the_new_refs():
    clock, heard = VirtualClock(), []
    async with ActorSystem(clock=clock) as system:
        system.spawn(Watching, heard, children=[ChildSpec("a", Child)])
        await turns()
        first = system.ref("a")
        first.tell(ValueError("bad"))
        await settle(clock)
        second = system.ref("a")
        system.kill(second)
        await settle(clock)
        assert heard == [
            ("started", "a", first),
            ("ended", "a", "crashed"),
            ("started", "a", second),
            ("ended", "a", "killed"),
            ("started", "a", system.ref("a")),
        ]


@pytest.mark.parametrize("hook", ["on_child_started", "on_child_ended"])
async def test_a_hook_that_raises_is_the_supervisors_own_crash(hook):
    def bad(self, *args):
        raise PerdureError("in a hook")

    kind = type("Clumsy", (Supervisor,), {hook: bad})
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(kind)
        await turns()
        ref = await supervisor.proxy().start_child(ChildSpec("a", Child))
        if hook == "on_child_ended":
            ref.tell(ValueError("bad"))
        ended = await supervisor.when_ended()
        assert (ended.kind, str(ended.cause)) == ("crashed", "in a hook")
        assert system.live_actors == 0


# -- stopping ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["one_for_all", "rest_for_one"])
async def test_children_stop_one_after_the_other_in_reverse_order(strategy):
    async with ActorSystem() as system:
        story = []
        kinds = {"a": Child, "b": SlowToStop, "c": SlowToStop}
        supervisor = system.spawn(
            Supervisor, strategy=strategy, children=[ChildSpec(n, kind, (story,)) for n, kind in kinds.items()]
        )
        await supervisor.stop(block=False)
        assert story == ["start a", "start b", "start c", "stop c", "stop b", "stop a"]


async def test_independent_children_stop_side_by_side():
    stopping, all_here = [], asyncio.Barrier(3)

    class Meeting(Child):
        async def on_stop(self):
            stopping.append(self.id)
            await all_here.wait()

    async with ActorSystem() as system:
        supervisor = system.spawn(Supervisor, children=[ChildSpec(name, Meeting) for name in "abc"])
        await supervisor.stop(block=False)
        assert stopping == ["c", "b", "a"]


@pytest.mark.parametrize("strategy", ["one_for_one", "one_for_all", "rest_for_one"])
@pytest.mark.parametrize("order", [("stop", "kill"), ("kill", "stop")])
async def test_a_child_that_ends_just_when_its_supervisor_begins_to_stop_leaves_no_other_child_alive(strategy, order):
    """Its end is heard of between the decision to stop all that live and the first of these stops."""
    async with ActorSystem() as system:
        boss = system.spawn(Supervisor, strategy=strategy, children=[ChildSpec(one, Child) for one in "abc"])
        await turns()
        for step in order:
            if step == "stop":
                boss.stop(block=False)
            else:
                system.kill(system.ref("b"))
        async with asyncio.timeout(10):
            await boss.when_ended()
        assert [system.ref(one) for one in "abc"] == [None, None, None]


async def test_the_supervisors_own_on_stop_runs_when_its_children_have_ended():
    class Last(Supervisor):
        def on_stop(self):
            story.append("stop supervisor")

    async with ActorSystem() as system:
        story = []
        await system.spawn(Last, children=[ChildSpec("a", SlowToStop, (story,))]).stop(block=False)
        assert story == ["start a", "stop a", "stop supervisor"]


async def test_a_child_that_does_not_stop_in_time_is_killed(logs):
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor, children=[ChildSpec("a", NeverStops, shutdown_s=2.0)])
        await turns()
        ended = system.ref("a").when_ended()
        stopped = supervisor.stop(block=False)
        await turns()
        clock.advance(1.9)
        await turns()
        assert not ended.done()
        clock.advance(0.2)
        assert (await ended).kind == "killed"
        assert await stopped
        assert [(log["event"], log["why"]) for log in logs] == [("actor_killed", "it did not stop within 2 s")]


async def test_a_shutdown_time_of_nothing_kills_at_once():
    async with ActorSystem() as system:
        story = []
        supervisor = system.spawn(Supervisor, children=[ChildSpec("a", Child, (story,), shutdown_s=0)])
        await turns()
        ended = system.ref("a").when_ended()
        await supervisor.stop(block=False)
        assert (await ended).kind == "killed"
        assert story == ["start a"]


async def test_no_shutdown_time_waits_for_ever():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor, children=[ChildSpec("a", NeverStops, shutdown_s=None)])
        await turns()
        stopped = supervisor.stop(block=False)
        await turns()
        clock.advance(1e6)
        await turns()
        assert not stopped.done()
        system.kill(system.ref("a"))
        assert await stopped


async def test_a_supervisor_that_ends_restarts_nothing_and_starts_nothing():
    clock = VirtualClock()

    class Late(NeverStops):
        async def on_stop(self):
            await gate.wait()
            raise ValueError("while stopping")

    gate = asyncio.Event()
    async with ActorSystem(clock=clock) as system:
        supervisor = system.spawn(Supervisor, children=[ChildSpec("a", Late), ChildSpec("b", Child)])
        await turns()
        system.ref("b").tell(ValueError("about to come back"))
        await turns()
        stopped = supervisor.stop(block=False)
        await turns()
        with pytest.raises(ActorDead, match="ending"):
            supervisor._actor_weakref().start_child(ChildSpec("c", Child))
        gate.set()
        assert await stopped
        await settle(clock)
        assert system.live_actors == 0


async def test_a_child_can_be_stopped_for_good():
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        story = []
        supervisor = system.spawn(Supervisor, children=[ChildSpec(name, SlowToStop, (story,)) for name in "ab"])
        await turns()
        await supervisor.proxy().stop_child("a")
        assert story[-1] == "stop a"
        await settle(clock)
        assert list(await supervisor.proxy().children()) == ["b"]
        with pytest.raises(UnknownChild, match="has no child 'a'"):
            await supervisor.proxy().stop_child("a")
        await supervisor.proxy().start_child(ChildSpec("a", Child))
        assert list(await supervisor.proxy().children()) == ["b", "a"]


async def test_stopping_a_child_that_waits_for_its_restart_ends_the_wait():
    """B058: after the stop no further try is made."""
    clock = VirtualClock()
    async with ActorSystem(clock=clock) as system:
        make, made = fails_times(100)
        supervisor = system.spawn(Supervisor)
        await turns()
        await supervisor.proxy().start_child(ChildSpec("a", make))
        await turns()
        assert clock.next_due() is not None
        assert system.tree()[0]["children"] == [
            {"id": "a", "class": "make", "state": "restarting", "restarts": 0, "mailbox": 0, "children": []}
        ]
        await supervisor.proxy().stop_child("a")
        assert clock.next_due() is None
        await settle(clock)
        assert len(made) == 1
        assert await supervisor.proxy().children() == {}


async def test_a_child_added_in_the_turn_of_the_stop_is_refused_or_stopped():
    """B050: whoever comes late never runs on."""
    for late in range(8):
        async with ActorSystem() as system:
            supervisor = system.spawn(Supervisor, children=[ChildSpec("a", SlowToStop)])
            await turns()
            actor = supervisor._actor_weakref()
            stopped = supervisor.stop(block=False)
            for _ in range(late):
                await asyncio.sleep(0)
            with contextlib.suppress(ActorDead):
                actor.start_child(ChildSpec("late", Child))
            await stopped
            assert system.live_actors == 0


async def test_ended_children_that_do_not_come_back_leave_nothing_behind():
    async with ActorSystem() as system:
        supervisor = system.spawn(Supervisor)
        await turns()
        actor = supervisor._actor_weakref()
        for number in range(1_000):
            await actor.start_child(ChildSpec(f"t{number}", Child, restart="temporary")).stop(block=False)
        await turns()
        assert actor.children() == {}
        assert system.live_actors == 1
