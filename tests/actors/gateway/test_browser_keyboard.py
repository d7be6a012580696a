"""The page by the keyboard and for a screen reader: what is where, where the focus goes, what is told."""

import pytest

from .browsing import WAIT_MS, Person, browser, daemon, in_browser

pytestmark = in_browser
__all__ = ["browser"]

LOW_OUTPUT = """() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync(".output { max-height: 2.5em !important }");
  document.adoptedStyleSheets.push(sheet);
}"""


@pytest.fixture
def room(tmp_path):
    with daemon(tmp_path) as one:
        yield one


def test_the_page_has_landmarks_and_tells_what_is_new_but_not_what_was_there(browser, room):
    ada = Person(browser, room.url, "Ada")
    ada.says("Good morning")
    ada.sees("article.assistant footer")
    ada.page.wait_for_selector("#transcript[aria-live=polite]")
    for role, name in [
        ("banner", None), ("main", "Main conversation"), ("navigation", "Parts of the page"), ("log", "Transcript"),
        ("region", "Conversations"), ("region", "Who owns whom"), ("region", "The last run"),
    ]:  # fmt: skip
        assert ada.page.get_by_role(role, name=name).count() == 1 or role == "navigation", (role, name)
    assert ada.page.title() == "room · perdure"
    seen = ada.page.evaluate_handle(
        """() => { const seen = []; const log = document.querySelector("#transcript");
        new MutationObserver(() => seen.push(log.getAttribute("aria-live"))).observe(log, { childList: true }); return seen; }"""
    )
    ada.page.click("#create")
    ada.page.wait_for_selector("#list button[aria-current]:not(:text-is('Main conversation'))")
    ada.page.get_by_role("button", name="Main conversation").first.click()
    ada.sees("article.assistant footer")
    assert set(seen.json_value()) == {"off"}
    ada.leaves()


def test_the_focus_goes_where_one_went_and_stays_where_one_is(browser, room):
    ada = Person(browser, room.url, "Ada")
    ada.says("deploy")
    ada.page.get_by_role("button", name="Approve").focus()
    ada.page.keyboard.press("Enter")
    ada.sees(".call[data-state=done]", "deploy")
    assert ada.page.evaluate("document.activeElement !== document.body && !!document.activeElement.closest('article')")
    ada.waits_until_idle()
    ada.page.focus("#create")
    ada.page.keyboard.press("Enter")
    ada.page.wait_for_selector("#text:focus")
    ada.page.get_by_role("button", name="Main conversation").first.focus()
    ada.page.keyboard.press("Space")
    ada.page.wait_for_selector("#talk-title:focus")
    ada.sees("#talk-title", "Main conversation")
    ada.leaves()


def test_an_opened_detail_stays_open_and_long_output_stays_at_its_end_while_a_tool_goes_on(browser, room):
    ada = Person(browser, room.url, "Ada", viewport={"width": 1280, "height": 800})
    ada.page.evaluate(LOW_OUTPUT)
    ada.says("inspect the harbour")
    ada.sees(".call .output", "gate")
    ada.page.locator(".call summary").click()
    ada.sees(".call[data-state=done] .output", "four parts")
    assert ada.page.locator(".call details").evaluate("one => one.open")
    output = ada.page.locator(".call .output")
    assert output.evaluate("one => one.scrollHeight - one.scrollTop - one.clientHeight") < 8
    ada.leaves()


def test_escape_leaves_the_dialog_and_one_can_come_in_later(browser, room):
    page = browser.new_page()
    page.set_default_timeout(WAIT_MS)
    page.goto(room.url.split("#")[0])
    page.wait_for_selector("#enter[open]")
    page.keyboard.press("Escape")
    page.wait_for_selector("#enter:not([open])", state="attached")
    page.click("#come-in")
    page.fill("[name=name]", "Ada")
    page.fill("[name=session]", "room")
    page.fill("[name=token]", "wrong wrong wrong wrong")
    page.keyboard.press("Enter")
    page.wait_for_selector("#why:has-text('not known')")
    assert page.evaluate("document.activeElement.closest('dialog') !== null")
    page.fill("[name=token]", room.url.rpartition("=")[2])
    page.keyboard.press("Enter")
    page.wait_for_selector("#state[data-state=open]")
    page.close()
