"""A small always-on program: an agent that looks at a directory every minute and says what has changed.

    python examples/daemon/daemon.py watch.db /srv/inbox

It tells systemd when it is ready and, for as long as its store answers, that it is alive (see perdure-watch.service).
SIGTERM lets what runs come to its end; whatever ends it otherwise, the next start goes on, and catches up with what was due
meanwhile.
"""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path

import perdure
from perdure.models import (
    AssistantMessage,
    ModelRequest,
    ToolCall,
    UserMessage,
    answer_text,
    call,
    from_json,
    plain_text,
)

GRACE_S = 10.0
EVERY = "* * * * *"  # cron text: every minute


def brain(request: ModelRequest) -> str | ToolCall:  # plays the model; a real one is "anthropic/..."
    last = request.messages[-1]
    return call("look") if isinstance(last, UserMessage) else f"I see: {plain_text(last.content)}"


def watch(directory: Path) -> perdure.Extension:
    @perdure.tool(replay="safe")
    def look() -> str:
        """List the directory."""
        return ", ".join(sorted(one.name for one in directory.iterdir())) or "nothing"

    return perdure.Extension(name="watch", tools=[look])


def notify(state: str) -> None:
    """Tell systemd something, if it is there."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out:
            out.sendto(state.encode(), f"\0{address[1:]}" if address.startswith("@") else address)


async def stay_alive(system: perdure.System) -> None:
    """Tell systemd, twice as often as it wants to know, that the loop turns and the store answers."""
    interval_s = int(os.environ.get("WATCHDOG_USEC", "60000000")) / 2e6
    while True:
        await system.next_deadline()
        notify("WATCHDOG=1")
        await asyncio.sleep(interval_s)


async def tell(root: perdure.Conversation) -> None:
    """Print what the agent says, over all lives of its session."""
    while True:
        try:
            async with await root.watch_events() as events:
                async for event in events:
                    if text := answer_of(event):
                        print(text, flush=True)
        except perdure.SessionFailed:
            continue


def answer_of(event: perdure.events.AgentEvent) -> str:
    if not isinstance(event, perdure.events.MessageEnd) or event.entry is None or not event.entry.model:
        return ""
    message = from_json(event.entry.model[0])
    return answer_text(message) if isinstance(message, AssistantMessage) else ""


async def main(file: str, directory: str) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    extensions = [perdure.schedules(), watch(Path(directory))]
    system = perdure.System.open(file, models=[perdure.ScriptedModel(brain)], extensions=extensions)
    async with system:
        root = await (await system.session("watch")).root(agent=perdure.Agent(model="scripted/model"))
        await perdure.add_schedule(root, "Look again.", cron=EVERY, name="every minute")  # harmless to repeat
        await root.submit("What is there?", request_id="first look")
        beside = [asyncio.create_task(stay_alive(system)), asyncio.create_task(tell(root))]
        notify("READY=1")
        print("ready", flush=True)
        await stop.wait()
        notify("STOPPING=1")
        await system.close(grace_s=GRACE_S)
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
    print("stopped", flush=True)


asyncio.run(main(*sys.argv[1:]))
