"""A decision is said in one conversation and found in another; a look-up is done while everybody, and the daemon, is away."""

import json
import re
import time

from .browsing import Person, browser, daemon, in_browser

pytestmark = in_browser
__all__ = ["browser"]

TWO_MINUTES_MS = 120_000


def test_a_decision_is_found_elsewhere_and_a_look_up_is_done_by_a_daemon_that_was_started_at_its_deadline(
    browser, tmp_path
):
    options = ["--exit-when-idle", "--idle-after", "0.5"]
    with daemon(tmp_path, *options, app="tests.actors.gateway.later:setup") as one:
        ada = Person(browser, one.url, "Ada", viewport={"width": 1280, "height": 800})
        ada.says("The harbour shall be painted green.")
        ada.sees("article.assistant", "You said: The harbour")
        decided = int(ada.sees("article.user", "painted green").get_attribute("data-entry"))
        elsewhere = asks_elsewhere(ada, decided)
        asked_at = time.time() * 1000
        ada.says("Look at the harbour in two minutes")
        ada.sees(".call[data-state=done]", "schedule")
        ada.sees("article.assistant", "The result: Scheduled")
        ada.waits_until_idle()
        ada.keeps("walk-through-scheduled")
        ada.leaves()

        said = one.ends()
        left = json.loads((tmp_path / "room.db.deadline").read_text())
        assert said == f"perdure: idle, next deadline: {left['at']}\n"
        assert asked_at + TWO_MINUTES_MS <= left["nextDeadline"] < time.time() * 1000 + TWO_MINUTES_MS

        one.start(WALK_AT=str(left["nextDeadline"]))
        ada = Person(browser, f"{one.url}&conversation={elsewhere}", "Ada", viewport={"width": 1280, "height": 800})
        found = ada.sees("article.note", "Looked up")
        assert re.search(r"harbour: four parts, all in order", found.inner_text())
        assert len(ada.texts("article.note")) == 1
        ada.keeps("walk-through-looked-up")
        found.locator(".child").click()
        ada.sees("article.user", "Look at the harbour")
        ada.sees(".call[data-state=done]", "inspect")
        ada.leaves()
        assert one.ends() == "perdure: idle, next deadline: none\n"


def asks_elsewhere(ada, decided):
    """Ask for the decision in a conversation of its own, and follow the search to what it cites; give the conversation."""
    ada.page.click("#create")
    ada.page.wait_for_selector("#talk-title:not(:text-is('Main conversation'))")
    elsewhere = int(re.search(r"conversation=(\d+)", ada.page.url).group(1))
    ada.says("What did we decide about the harbour?")
    cited = f"[conversation 1, entry {decided}]"
    ada.sees("article.assistant", f"It was said: The harbour shall be painted green. {cited}")
    ada.keeps("walk-through-cited")
    ada.sees(".call .child").click()
    ada.sees("#talk-title", "Subagent")
    ada.sees(".call[data-state=done] .output", cited)
    ada.keeps("walk-through-search")
    ada.page.locator("#whence button").click()
    ada.sees("article.user", "What did we decide")
    ada.sees("article.assistant .prose button", cited).click()
    ada.page.wait_for_selector(f"article.user[data-entry='{decided}']:focus")
    ada.page.locator("#list button", has_text=f"Conversation {elsewhere}").click()
    ada.sees("article.user", "What did we decide")
    return elsewhere
