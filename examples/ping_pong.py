"""Two tasks in two sessions play ping-pong by durable messages. Kill it anywhere and run it again: the game goes on."""

import asyncio

import perdure

BALLS = 100
Opponent = tuple[str, int]  # a session's key and a task's id
Game: perdure.Doc[dict[str, int]] = perdure.Doc("pingpong.game", scope="session")


class Player(perdure.Task[Opponent | None, int], name="pingpong.player"):
    """Serves to its opponent, if it has one, and strikes every ball back to whoever played it."""

    class Play(perdure.Phase):
        strokes: int = 0

    class Serve(perdure.Phase):
        pass

    def initial(self, opponent: Opponent | None) -> perdure.Phase:
        return self.Serve() if opponent else self.Play()

    async def serve(self, run: perdure.Run[Opponent], state: Serve) -> None:
        session, task = run.input
        async with run.commit() as tx:
            await tx.tell(task, 1, session=session)
            await tx.wait(then=self.Play(strokes=1), mail=True)

    async def play(self, run: perdure.Run[Opponent | None], state: Play) -> None:
        strokes = state.strokes
        async with run.commit() as tx:  # takes a ball, strikes it and counts it: all of it happens, or nothing
            for letter in await tx.receive(limit=1):
                if letter.sender is not None and letter.body < BALLS:
                    await tx.tell(letter.sender, letter.body + 1)
                    strokes += 1
                if letter.body >= BALLS - 1:
                    tx.complete(strokes)
                    return
            await tx.wait(then=self.Play(strokes=strokes), mail=True)  # parked: no memory is held


async def player(
    system: perdure.System, key: str, opponent: perdure.TaskRef[int] | None = None
) -> perdure.TaskRef[int]:
    """Give the player of a session: the same one in every run of this program."""
    root = await (await system.session(key)).root()
    async with root.commit() as tx:
        game = await tx.doc(Game)
        if "player" not in game:
            game["player"] = (await tx.create_task(Player, opponent and (opponent.session, opponent.id))).id
        return perdure.TaskRef(system.services, key, game["player"], int)


async def main() -> None:
    extension = perdure.Extension(name="pingpong", tasks=[Player])
    async with perdure.System.open("pingpong.db", extensions=[extension]) as system:
        pong = await player(system, "pong")
        ping = await player(system, "ping", pong)
        print(f"ping struck {await ping.result()}, pong struck {await pong.result()}")


asyncio.run(main())
