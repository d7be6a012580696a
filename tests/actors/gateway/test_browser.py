"""The room in a real browser: two people in headless Chromium, and a daemon that is killed while it answers."""

import pytest

from .browsing import Person, browser, daemon, in_browser

pytestmark = in_browser
__all__ = ["browser"]


@pytest.fixture
def room(browser, tmp_path):
    """A daemon, and two people in its room: Ada at a desk, Bob with a small telephone at night."""
    with daemon(tmp_path) as one:
        ada = Person(browser, one.url, "Ada", viewport={"width": 1280, "height": 800})
        bob = Person(browser, one.url, "Bob", viewport={"width": 360, "height": 740}, color_scheme="dark")
        yield one, ada, bob
        for person in (ada, bob):
            person.leaves()


def test_two_people_see_each_other_and_the_same_answer_while_it_is_written(room):
    _, ada, bob = room
    assert ada.sees("#people li", "Bob").is_visible()
    assert bob.sees("#people li", "Ada").is_visible()
    ada.says("Good morning")
    shown = [one.sees("article.live", "This is sentence 2").inner_text() for one in (ada, bob)]
    assert all("You said: Good morning" in text for text in shown)
    ada.keeps("streaming")
    for one in (ada, bob):
        one.waits_until_idle()
    assert ada.texts("#transcript .prose") == bob.texts("#transcript .prose")
    assert bob.sees("article.user", "Good morning").locator("header b").inner_text() == "Ada"


def test_a_fork_begins_at_a_message_and_leaves_the_rest_behind(room):
    _, ada, bob = room
    ada.says("First")
    ada.sees("article.assistant footer")
    ada.says("Second")
    ada.sees("article.user", "Second")
    ada.waits_until_idle()
    ada.page.locator("article.user", has_text="First").get_by_role("button", name="Fork from here").click()
    assert ada.sees("#talk-title", "Fork").is_visible()
    ada.sees("article.user", "First")
    assert ada.texts("article.user .prose") == ["First"]
    ada.says("Another way")
    assert ada.sees("article.assistant", "You said: Another way").is_visible()
    ada.keeps("fork")
    bob.page.click("#places [data-show=conversations]")
    bob.sees("#list button", "Fork")
    bob.keeps("conversations-360")


def test_a_steer_joins_the_run_and_an_approval_lets_a_call_go_on(room):
    _, ada, bob = room
    ada.says("inspect harbour")
    ada.sees(".call[data-state=running]", "inspect")
    bob.says("deploy afterwards")
    ada.sees("#inbox li", "deploy afterwards")
    ada.keeps("steer-queued")
    ada.sees(".approval")
    ada.keeps("approval")
    bob.page.locator(".approval").get_by_role("button", name="Approve").click()
    ada.sees(".call[data-state=done] .output", "1.2.3 is out")
    ada.waits_until_idle()
    assert len(ada.texts(".call")) == 2
    ada.keeps("timeline")
    bob.page.click("#places [data-show=timeline]")
    bob.sees("#timeline .bar[data-state=done]")
    bob.keeps("timeline-360")


def test_a_subagents_conversation_is_opened_from_its_call(room):
    _, ada, bob = room
    ada.says("ask a colleague")
    ada.sees("#tree .task[data-status=waiting]")
    ada.keeps("tree")
    ada.sees(".call .child").click()
    assert ada.sees("#talk-title", "Subagent").is_visible()
    assert ada.sees("article.user", "inspect the lighthouse").is_visible()
    ada.sees(".call[data-state=done]", "inspect")
    ada.keeps("subagent")
    ada.page.locator("#whence button").click()
    assert ada.sees("#talk-title", "Main conversation").is_visible()
    bob.page.click("#places [data-show=tree]")
    bob.keeps("tree-360")


def test_a_submission_whose_socket_is_lost_is_executed_once(room):
    _, ada, bob = room
    ada.page.fill("#text", "only once")
    ada.page.evaluate("document.querySelector('#send').click(); perdure.client.drop()")
    ada.page.wait_for_selector("#state:not([data-state=open])")
    ada.page.evaluate(
        "document.querySelector('#text').value = 'and once more'; document.querySelector('#send').click()"
    )
    for one in (ada, bob):
        one.sees("article.assistant", "You said: and once more")
        one.waits_until_idle()
        assert one.texts("article.user .prose") == ["only once", "and once more"]


def test_a_daemon_that_is_killed_while_it_answers_goes_on_and_both_pages_with_it(room):
    daemon, ada, bob = room
    ada.says("inspect tower")
    ada.sees(".call[data-state=running]", "inspect")
    daemon.kill()
    for one in (ada, bob):
        one.sees("#state", "connection lost")
    ada.keeps("killed")
    daemon.start()
    for one in (ada, bob):
        one.sees(".call[data-state=done]", "four parts, all in order")
        one.waits_until_idle()
        assert one.texts("article.user .prose") == ["inspect tower"]
    ada.says("Still there?")
    bob.sees("article.live", "This is sentence 3")
    daemon.kill()
    daemon.start()
    for one in (ada, bob):
        one.page.wait_for_selector("#state[data-state=open]")
        one.sees("article.assistant footer")
        one.waits_until_idle()
        assert "sentence 12" in one.texts("article.assistant:not(.live)")[-1]
    assert ada.texts("#transcript .prose") == bob.texts("#transcript .prose")
    ada.keeps("after-kills")
