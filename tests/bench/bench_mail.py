"""Durable messages per second, and how long a ball takes there and back, on a SQLite file.

    python tests/bench/bench_mail.py [--messages 5000] [--rounds 300] [--durability power]

"flood": a task sends all messages, 50 in a commit; another receives whatever is there in each of its commits. "rally": one
message that two tasks send to each other, so that nothing can be grouped: every step waits for the disk. The receiver is in
the sender's session, or in another one. Both with the median of three.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import perdure

BURST = 50


class Player(perdure.Task[dict[str, Any], int], name="bench.player"):
    """Sends ``count`` messages to ``to`` (a session and a task), if it is given, and receives ``count`` if not.

    With ``rally`` it answers each message, and the one with ``to`` serves.
    """

    class Play(perdure.Phase):
        sent: int = 0
        received: int = 0

    async def play(self, run: perdure.Run[dict[str, Any]], state: Play) -> None:
        count, to, rally = run.input["count"], run.input.get("to"), run.input["rally"]
        async with run.commit() as tx:
            letters = await tx.receive()
            received = state.received + len(letters)
            sent = state.sent
            for letter in letters if rally else ():
                if letter.sender is not None and max(sent, received) < count:
                    await tx.tell(letter.sender, sent)
                    sent += 1
            while to and sent < (1 if rally else min(count, state.sent + BURST)):
                await tx.tell(to[1], sent, session=to[0])
                sent += 1
            after = self.Play(sent=sent, received=received)
            if max(sent, received) >= count:
                tx.complete(received)
            elif to and not rally:
                tx.goto(after)
            else:
                await tx.wait(then=after, mail=True)


async def play(folder: Path, durability: Any, keys: tuple[str, str], count: int, *, rally: bool) -> float:
    """Give the seconds from the first message to the end of the receiver."""
    extension = perdure.Extension(name="bench", tasks=[Player])
    async with perdure.System.open(folder / "s.db", extensions=[extension], durability=durability) as system:
        roots = [await (await system.session(key)).root() for key in keys]
        async with roots[1].commit() as tx:
            receiver = await tx.create_task(Player, {"count": count, "rally": rally})
        began = time.perf_counter()
        async with roots[0].commit() as tx:
            await tx.create_task(Player, {"count": count, "rally": rally, "to": [keys[1], receiver.id]})
        await receiver.result()
        return time.perf_counter() - began


def median(durability: str, keys: tuple[str, str], count: int, *, rally: bool) -> float:
    def once() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return asyncio.run(play(Path(folder), durability, keys, count, rally=rally))

    return statistics.median(once() for _ in range(3))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--durability", choices=("power", "process"), default="power")
    options = parser.parse_args()
    print(f"{'durability ' + options.durability:<24} {'flood (messages/s)':>20} {'rally (ms a round trip)':>24}")
    for name, keys in (("same session", ("a", "a")), ("another session", ("a", "b"))):
        flood_s = median(options.durability, keys, options.messages, rally=False)
        rally_s = median(options.durability, keys, options.rounds, rally=True)
        print(f"{name:<24} {options.messages / flood_s:>20,.0f} {1_000 * rally_s / options.rounds:>24.2f}")


if __name__ == "__main__":
    main()
