"""Everything that the page can show, in light, dark and narrow windows: legible, named, and reached by the keyboard."""

import base64
import re
import struct
import time
import zlib

import pytest

from .browsing import Person, browser, daemon, in_browser

pytestmark = in_browser
__all__ = ["browser"]

LOOKS = {
    "light": {"viewport": {"width": 1280, "height": 800}},
    "dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "360": {"viewport": {"width": 360, "height": 740}},
    "360-dark": {"viewport": {"width": 360, "height": 740}, "color_scheme": "dark"},
}
APP = "tests.actors.gateway.parade:setup"
HOUR_MS = 3_600_000
PLACES = ("conversations", "talk", "tree", "timeline")
NAMES_OF_ALL = """() => [...document.querySelectorAll("button, input, textarea, summary, [tabindex='0'], img, section, dialog")]
    .filter((one) => one.checkVisibility({ visibilityProperty: true }))
    .filter((one) => !(one.innerText || one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
        || one.labels?.length || one.hasAttribute("alt")))
    .map((one) => one.outerHTML.slice(0, 120))"""
FAINT = """() => {
  const rgb = (color) => {
    const [red, green, blue, alpha = 1] = color.match(/[\\d.]+/g).map(Number);
    return [red, green, blue, alpha];
  };
  const over = (top, below) => top.slice(0, 3).map((one, at) => one * top[3] + below[at] * (1 - top[3]));
  const light = (color) => color.slice(0, 3).map((one) => one / 255)
    .map((one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4))
    .reduce((sum, one, at) => sum + one * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (one) => {
    if (!one) return [255, 255, 255];
    const mine = rgb(getComputedStyle(one).backgroundColor);
    return mine[3] === 1 ? mine : over(mine, ground(one.parentElement));
  };
  const solid = (one) => (one ? Number(getComputedStyle(one).opacity) * solid(one.parentElement) : 1);
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const one = node.parentElement;
    if (!node.data.trim() || !one.checkVisibility({ visibilityProperty: true, contentVisibilityAuto: true })) continue;
    if (one.closest(":disabled")) continue;
    const style = getComputedStyle(one);
    const below = ground(one);
    const ink = rgb(one instanceof SVGElement ? style.fill : style.color);
    const [first, second] = [light(over([...ink.slice(0, 3), ink[3] * solid(one)], below)), light(below)];
    const contrast = (Math.max(first, second) + 0.05) / (Math.min(first, second) + 0.05);
    if (contrast < 4.5) found.push(`${node.data.trim().slice(0, 40)}: ${contrast.toFixed(2)}`);
  }
  return found;
}"""


def png(width, height):
    """A picture of a gradient, as base64."""
    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in (x % 256, y % 256, 128)) for y in range(height))

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    whole = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")
    return base64.b64encode(whole).decode()


def sends(person, kind, **command):
    """Have the page's own client do what the page has no button for; give the receipt."""
    return person.page.evaluate(
        "command => perdure.client.command(command)", {"type": kind, "session": "room"} | command
    )


def shows_all(browser, one, picture, *, conversation=1):
    """Look at every part of the page in every look: all is legible, and has a name."""
    for look, options in LOOKS.items():
        person = Person(browser, f"{one.url}&conversation={conversation}", "Eve", **options)
        person.sees("#transcript > *")
        person.page.wait_for_selector("#transcript[aria-live=polite]")
        for place in PLACES if look.startswith("360") else ("",):
            if place:
                person.page.click(f"#places [data-show={place}]")
            assert person.page.evaluate(FAINT) == [], (look, place)
            assert person.page.evaluate(NAMES_OF_ALL) == [], (look, place)
            assert person.page.evaluate("document.documentElement.scrollWidth <= innerWidth"), (look, place)
            person.keeps("-".join(filter(None, ("state", picture, look, place))))
        if look.startswith("360"):
            person.page.click("#places [data-show=talk]")
        person.page.set_viewport_size({"width": options["viewport"]["width"], "height": 2_400})
        person.keeps(f"state-{picture}-{look}-whole")
        person.leaves()


@pytest.fixture
def parade(tmp_path):
    with daemon(tmp_path, app=APP) as one:
        yield one


def test_failures_much_output_pictures_and_retries_are_legible_in_every_look(browser, parade):
    ada = Person(browser, parade.url, "Ada", viewport={"width": 1280, "height": 800})
    sends(ada, "submit", conversation=1, content=[
        {"type": "text", "text": "look at this"}, {"type": "image", "data": png(300, 120), "mimeType": "image/png"},
    ])  # fmt: skip
    ada.sees("article.user img")
    for said, seen in [("code", ".prose code"), ("break", ".call[data-state=failed]"), ("list", ".diagnostics")]:
        ada.says(f"{said} it")
        ada.sees(seen)
        ada.waits_until_idle()
    ada.says("fail now")
    ada.sees("article .trouble", "makes no sense")
    shows_all(browser, parade, "failures")
    ada.says("retry it")
    ada.sees("article.live .trouble", "Trying again")
    ada.keeps("state-retry")
    ada.sees("article.assistant", "It works again.")
    ada.leaves()


def test_a_task_without_code_is_shown_as_blocked_and_a_call_as_being_stopped(browser, parade):
    ada = Person(browser, parade.url, "Ada", viewport={"width": 1280, "height": 800})
    ada.says("later, please")
    ada.sees("article.assistant", "Done: Scheduled")
    ada.leaves()
    parade.stop()
    parade.start(STATES_WITHOUT="schedules", WALK_AT=str(int(time.time() * 1000) + HOUR_MS))
    ada = Person(browser, parade.url, "Ada", viewport={"width": 1280, "height": 800})
    ada.sees("#tree .task[data-status=blocked]")
    ada.says("weld it")
    ada.sees(".call[data-state=running] .output", "first seam")
    shows_all(browser, parade, "blocked")
    ada.page.click("#abort")
    ada.sees(".call[data-state=failed]", "aborted")
    ada.waits_until_idle()
    ada.keeps("state-aborted")
    ada.leaves()


def test_a_summary_stands_for_what_came_before(browser, tmp_path):
    with daemon(tmp_path, app=APP, STATES_WINDOW="12000") as one:
        talks_much(browser, one)


def talks_much(browser, parade):
    ada = Person(browser, parade.url, "Ada", viewport={"width": 1280, "height": 800})
    for number in range(4):
        ada.says(f"much of it, {number}")
        ada.sees("article.user", f"much of it, {number}")
        ada.page.wait_for_timeout(100)
        ada.waits_until_idle()
    ada.sees("details.head", "Summary of what came before")
    shows_all(browser, parade, "summary")
    ada.leaves()


def test_an_unsafe_tool_that_a_kill_has_cut_off_is_marked_as_a_crash(browser, parade):
    ada = Person(browser, parade.url, "Ada", viewport={"width": 1280, "height": 800})
    ada.says("weld it")
    ada.sees(".call[data-state=running] .output", "first seam")
    parade.kill()
    ada.sees("#state", "connection lost")
    parade.start()
    ada.sees(".call[data-state=failed] .badge", "interrupted by a crash")
    ada.sees(".call[data-state=failed] .diagnostics [data-severity=error]", "may have partially run")
    ada.waits_until_idle()
    assert "first seam" in ada.sees(".call[data-state=failed] .output").inner_text()
    ada.page.wait_for_selector("#timeline .bar[data-state=crashed]", state="attached")
    ada.page.wait_for_selector("#timeline .mark[data-what=crash]", state="attached")
    assert "interrupted by a crash" in ada.page.get_attribute("#timeline svg", "aria-label")
    shows_all(browser, parade, "crash")
    ada.leaves()


WATCH = """() => {
  window.touched = new Set();
  const name = (one) => one.closest("article")?.className ?? one.closest("[id]")?.id;
  new MutationObserver((all) => all.forEach(({ target }) => {
    const one = target.nodeType === Node.ELEMENT_NODE ? target : target.parentElement;
    if (one && document.querySelector("article.live")) window.touched.add(name(one));
  })).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


def test_an_answer_that_grows_touches_its_card_alone(browser, parade):
    ada = Person(browser, parade.url, "Ada", viewport={"width": 1280, "height": 800})
    for number in range(3):
        ada.says(f"note {number}", mode="write")
        ada.sees("article.note", f"note {number}")
    ada.page.evaluate(WATCH)
    ada.says("much")
    ada.sees("article.assistant footer")
    ada.waits_until_idle()
    touched = set(ada.page.evaluate("[...touched]"))
    assert "assistant live" in touched
    assert touched <= {"assistant live", "transcript", "tree", "timeline", "actors", "usage", "people", "talk"}
    ada.leaves()


def test_many_conversations_are_listed_and_reached(browser, parade):
    ada = Person(browser, parade.url, "Ada", viewport={"width": 1280, "height": 800})
    ada.says("Good morning")
    ada.sees("article.assistant footer")
    first = int(ada.page.locator("article.user").get_attribute("data-entry"))
    for _ in range(40):
        sends(ada, "fork", conversation=1, at=first)
    sends(ada, "create")
    ada.page.wait_for_selector("#list button >> nth=41")
    ada.page.locator("#list button").last.click()
    ada.page.wait_for_selector("#list [aria-current=page]:not(:text-is('Main conversation'))")
    ada.page.locator("#list button").nth(20).click()
    ada.sees("article.user", "Good morning")
    last = int(re.search(r"\d+", ada.page.locator("#list button").last.inner_text()).group())
    bob = Person(browser, f"{parade.url}&conversation={last}", "Bob", viewport={"width": 1280, "height": 800})
    current = bob.sees("#list [aria-current=page]")
    assert current.evaluate("one => one.getBoundingClientRect().bottom <= innerHeight")
    bob.leaves()
    shows_all(browser, parade, "many")
    ada.leaves()
