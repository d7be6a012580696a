"""The process that test_mail_kill9.py kills: a life opens the store, and kills actors of its own until the work is done."""

import asyncio
import random

import lives
import mail

PAUSE_S = 0.02
"""Between deaths inside of a life, on average."""


class Life:
    """One opening of the store, up to the end of the work or to its own sudden end."""

    def __init__(self, order):
        self.order = order
        self.dice = random.Random(order["seed"])

    async def run(self):
        async with mail.open_system(mail.make_storage(self.order["backend"], self.order["store"])) as system:
            death = asyncio.ensure_future(self._kill_actors(system))
            await mail.finished(system)
            death.cancel()

    async def _kill_actors(self, system):
        while True:
            await asyncio.sleep(self.dice.expovariate(1 / PAUSE_S))
            victims = [*self._tasks(system), self.dice.choice([f"session:{key}" for key in mail.SESSIONS])]
            system.kill(self.dice.choice(victims))

    def _tasks(self, system):
        """The tasks' actors, as if each session had one running: one that is parked has none."""
        tasks = [f"task:{key}/{one.id}" for key, some in system.inspect().sessions.items() for one in some]
        return [one for one in tasks for _ in range(4)]


if __name__ == "__main__":
    lives.main(Life)
