"""A program with schedules, to be killed: ``add`` schedules once, ``run`` carries out what is due until nothing is left."""

import asyncio
import sys

import perdure

COUNT = 24


def brain(request):
    return "noted"


async def main(what, path):
    options = {"models": [perdure.ScriptedModel(brain)], "extensions": [perdure.schedules()]}
    async with perdure.System.open(path, **options) as system:
        root = await (await system.session("s")).root(agent=perdure.Agent(model="scripted/model"))
        if what == "add":
            for number in range(COUNT):
                look_up = number % 4 == 0
                await perdure.add_schedule(root, f"job {number}", after_s=0.5 + 0.25 * number, look_up=look_up)
        print("ready", flush=True)
        while what == "run" and await system.next_deadline() is not None:
            await asyncio.sleep(0.01)
        await root.wait_for_idle(background=what == "run")
        if what == "run":
            for entry in (await root.entries(limit=1_000, order="ascending")).items:
                if entry.model and entry.model[0]["role"] == "user":
                    print(entry.kind, entry.model[0]["content"].replace("\n", " | "), flush=True)


asyncio.run(main(*sys.argv[1:]))
