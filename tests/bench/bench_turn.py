"""The cost of one turn in a short and in a long conversation, the whole of it in context.

    python tests/bench/bench_turn.py [--entries 20000] [--kilobytes 0] [--turns 200] [--backend memory]

A turn is an input, its request to a scripted model, and the answer: from ``submit`` until it is settled. "with a tool" is
two requests and a call between them. "rendering" is what an adapter does to make the body of the next request, all but the
encoding as JSON, which the provider's SDK does anew for the whole request. Short and long turns take turns, so that a busy
machine disturbs both alike. Aim: at most 1.2 times as much at the end, and memory that the active range explains.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import perdure
from perdure.models import (
    AssistantMessage,
    ModelRequest,
    ToolResultMessage,
    UserMessage,
    anthropic,
    call,
    openai,
    openai_chat,
    text,
    to_json,
)

SHORT = 100
BLOCK = 20
"""Turns on one conversation before the other one has its turn."""


def brain(request: ModelRequest) -> Any:
    """Answer; or call a tool once, if asked to."""
    last = request.messages[-1]
    return call("read") if isinstance(last, UserMessage) and last.content == "read" else "Well."


async def fill(conversation: perdure.Conversation, entries: int, padding: str) -> None:
    """Bring a conversation to so many entries: questions, calls, results, answers."""
    async with conversation.commit() as tx:
        tx.core.hooks.check_entry.clear()  # written by us, and many
    written = len((await conversation.entries(limit=1_000)).items)
    while written < entries:
        async with conversation.commit() as tx:
            for number in range(written, min(written + 1_000, entries)):
                await tx.append("bench", model=[to_json(message(number, padding))])
            written = min(written + 1_000, entries)


def message(number: int, padding: str) -> Any:
    """Make the message of a number: the four of a turn with a tool, by turns."""
    match number % 4:
        case 0:
            return UserMessage(content=f"question {number}", timestamp=number)
        case 1:
            asked = call("read", f"call-{number}", part=number)
            return AssistantMessage(content=[text("hm"), asked], stop_reason="toolUse", timestamp=number)
        case 2:
            result = text(f"result {number} {padding}")
            return ToolResultMessage(
                tool_call_id=f"call-{number - 1}", tool_name="read", content=[result], timestamp=number
            )
        case _:
            return AssistantMessage(content=[text(f"answer {number}")], timestamp=number)


async def turn(conversation: perdure.Conversation, content: str) -> float:
    began = time.perf_counter()
    await (await conversation.submit(content)).wait()
    return time.perf_counter() - began


async def turns(pair: list[perdure.Conversation], content: str, count: int) -> list[list[float]]:
    """Time turns of two conversations, in alternating blocks."""
    times: list[list[float]] = [[], []]
    for _ in range(0, count, BLOCK):
        for conversation, own in zip(pair, times, strict=True):
            own.extend([await turn(conversation, content) for _ in range(BLOCK)])
    return times


def renderers() -> dict[str, Callable[[ModelRequest], Any]]:
    """Name what makes the body of a request, by protocol."""
    from perdure.actors.models.anthropic_profile import profile_of
    from perdure.actors.models.anthropic_render import render_request
    from perdure.actors.models.chat_render import render_chat_request
    from perdure.actors.models.openai_profile import openai_profile_of
    from perdure.actors.models.responses_render import render_responses_request

    claude, gpt, chat = anthropic("claude-opus-5-5"), openai("gpt-6-sol"), openai_chat("other")
    claude_profile, gpt_profile, chat_profile = (
        profile_of(claude.id),
        openai_profile_of(gpt.id),
        openai_profile_of(chat.id),
    )
    return {
        "rendering, anthropic": lambda request: render_request(request, claude, claude_profile, cache_ttl=None),
        "rendering, responses": lambda request: render_responses_request(request, gpt, gpt_profile),
        "rendering, chat": lambda request: render_chat_request(request, chat, chat_profile),
    }


async def rendering(pair: list[perdure.Conversation], render: Callable[[ModelRequest], Any], count: int) -> Any:
    """Time the rendering of requests, each two entries longer than the one before."""
    times: list[list[float]] = [[], []]
    for number in range(count):
        for conversation, own in zip(pair, times, strict=True):
            async with conversation.commit() as tx:
                await tx.append("bench", model=[to_json(UserMessage(content="more", timestamp=10**15 + number))])
                said = AssistantMessage(content=[text("yes")], timestamp=10**15 + number)
                await tx.append("bench", model=[to_json(said)])
            request = ModelRequest(messages=(await conversation.context()).messages)
            began = time.perf_counter()
            render(request)
            own.append(time.perf_counter() - began)
    return [own[1:] for own in times]


def line(name: str, times: list[list[float]]) -> str:
    """Describe the medians of both conversations, in ms."""
    short, long = (statistics.median(own) * 1e3 for own in times)
    return f"{name:<24}{short:>14.3f}{long:>14.3f}{long / short:>9.2f}x"


async def measure(storage: perdure.Storage, options: argparse.Namespace) -> None:
    @perdure.tool(replay="safe")
    async def read() -> str:
        """Read something."""
        return "read"

    extension = perdure.Extension(name="bench", tools=[read])
    agent = perdure.Agent(model="scripted/model")
    model = perdure.ScriptedModel(brain)
    whole = perdure.Settings(compaction=perdure.CompactionPolicy(enabled=options.kilobytes == 0))
    async with perdure.System.open(storage, models=[model], extensions=[extension], settings=whole) as system:
        session = await system.session("turns")
        pair = [await session.create_conversation(agent=agent) for _ in range(2)]
        for conversation, entries in zip(pair, (SHORT, options.entries), strict=True):
            await fill(conversation, entries, "x" * options.kilobytes * 1_000)
        tracemalloc.start()
        await pair[1].context()
        size = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        for conversation in pair:
            await turn(conversation, "go on")
        print(f"{'median, ms':<24}{'entry ' + str(SHORT):>14}{f'entry {options.entries:,}':>14}{'growth':>10}")
        print(line("a turn", await turns(pair, "go on", options.turns)))
        print(line("a turn with a tool", await turns(pair, "read", options.turns // 2)))
        for name, render in renderers().items():
            print(line(name, await rendering(pair, render, max(20, options.turns // 4))))
        print(f"\nthe active range of {options.entries:,} entries in memory: {size / 1e6:.1f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--entries", type=int, default=20_000)
    parser.add_argument("--kilobytes", type=int, default=0)
    parser.add_argument("--turns", type=int, default=200)
    parser.add_argument("--backend", choices=["memory", "sqlite"], default="memory")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="perdure-bench-") as folder:
        sqlite = options.backend == "sqlite"
        storage = perdure.SqliteStorage(Path(folder) / "turns.db") if sqlite else perdure.MemoryStorage()
        asyncio.run(measure(storage, options))


if __name__ == "__main__":
    sys.exit(main())
