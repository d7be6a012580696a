import perdure
import pykka
import pytest

from .conversation.support import go, scene


class Counter(perdure.Actor):
    """Counts what it is told."""

    def __init__(self, begin):
        self.count = begin

    def on_receive(self, message):
        self.count += message
        return self.count


def test_an_application_starts_actors_of_its_own_which_end_with_the_system():
    async def main():
        async with scene() as s:
            ref = s.system.spawn(Counter, 5, id="counter")
            assert isinstance(ref, pykka.ActorRef)
            assert await ref.ask(2, block=False) == 7
            assert "'counter'" in str(s.system.inspect().actors)
        assert not ref.is_alive()
        with pytest.raises(perdure.SessionClosed):
            s.system.spawn(Counter, 5)

    go(main)


def test_threads_ask_an_actor_of_the_loop():
    with perdure.System.background(perdure.MemoryStorage()) as background:
        ref = background.call(lambda system: system.spawn(Counter, 0))
        assert [ref.ask(1, timeout=5) for _ in range(3)] == [1, 2, 3]
