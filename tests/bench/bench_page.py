"""What the page costs in headless Chromium: 2,000 entries in the transcript, and an answer that is streaming below them.

Prints the time from the address to the last entry, and for each commit that is drawn the time of the page's own script with
the layout it asks for, and the main thread's share of all it does. Needs Chromium and Playwright.
"""

import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

import perdure
from perdure.gateway import serve
from playwright.sync_api import sync_playwright

sys.path.append(str(Path(__file__).parents[2]))
from examples.room.app import setup

ENTRIES = 2_000
AT_ONCE = 50
TEXT = "the harbour is a place where ships lie. " * 3
TOKEN = "a token for this bench only"
DRAWS = """
window.draws = [];
const next = window.requestAnimationFrame.bind(window);
window.requestAnimationFrame = (draw) => next((now) => {
  const began = performance.now();
  draw(now);
  document.body.offsetHeight;
  window.draws.push(performance.now() - began);
});"""


async def fill(system: perdure.System, agent: perdure.Agent) -> None:
    root = await (await system.session("room")).root(agent=agent)
    for first in range(0, ENTRIES, AT_ONCE):
        numbers = range(first, first + AT_ONCE)
        said = [{"role": "user", "content": f"Note {n}: {TEXT}", "timestamp": n} for n in numbers]
        await asyncio.gather(*(root.write("bench.note", model=[one]) for one in said))


def look(url: str) -> None:
    """Open the page, say something, and print what that has cost."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.add_init_script(DRAWS)
        began = time.perf_counter()
        page.goto(url)
        page.wait_for_selector(f"#transcript > *:nth-child({ENTRIES})", state="attached")
        print(f"{ENTRIES:,} entries are there after {time.perf_counter() - began:.2f} s")
        measuring = page.context.new_cdp_session(page)
        measuring.send("Performance.enable", {"timeDomain": "threadTicks"})
        page.evaluate("draws.length = 0")
        before = figures(measuring)
        page.fill("#text", "Hello")
        page.press("#text", "Enter")
        page.wait_for_selector("article.live")
        page.wait_for_selector("article.live", state="detached")
        after = figures(measuring)
        report(sorted(page.evaluate("draws")), {name: after[name] - before[name] for name in after})
        browser.close()


def figures(measuring) -> dict[str, float]:  # type: ignore[no-untyped-def]
    return {one["name"]: one["value"] for one in measuring.send("Performance.getMetrics")["metrics"]}


def report(draws: list[float], spent: dict[str, float]) -> None:
    print(f"{len(draws)} draws: median {draws[len(draws) // 2]:.1f} ms, p95 {draws[int(len(draws) * 0.95)]:.1f} ms")
    for name in ("ScriptDuration", "LayoutDuration", "RecalcStyleDuration", "TaskDuration"):
        print(f"  {name:<20} {spent[name] * 1000 / len(draws):6.2f} ms per draw (main thread)")


async def main() -> None:
    given = setup()
    agent = given.pop("agent")
    with tempfile.TemporaryDirectory() as folder:
        async with perdure.System.open(Path(folder) / "room.db", **given) as system:
            await fill(system, agent)
            listening: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            ready = lambda host, port: listening.set_result(port)
            serving = asyncio.ensure_future(serve(system, token=TOKEN, agent=agent, ready=ready))
            await asyncio.wait({serving, listening}, return_when=asyncio.FIRST_COMPLETED)
            address = f"http://127.0.0.1:{listening.result()}/#session=room&name=Ada&token={TOKEN}"
            await asyncio.to_thread(look, address)
            serving.cancel()
            await asyncio.gather(serving, return_exceptions=True)


if __name__ == "__main__":
    asyncio.run(main())
