"""What the tests in a real browser share: a daemon of its own process, people in headless Chromium, and their screenshots.

Skipped where Chromium or Playwright is missing. Screenshots are kept in build/screenshots.
"""

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import pytest

playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

ROOT = Path(__file__).parents[3]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
SHOTS = ROOT / "build" / "screenshots"
WAIT_MS = 30_000

in_browser = [
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed"),
    pytest.mark.timeout(240),
]


class Daemon:
    """``perdure serve`` on the example's room, which may be killed and started again at the same address."""

    def __init__(self, folder, *options, app="examples.room.app:setup", **environment):
        self.folder = folder
        self.options = ["--app", app, *options]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start(**environment)

    def start(self, **environment):
        command = [sys.executable, "-m", "perdure", "serve", str(self.folder / "room.db"), *self.options]
        command += ["--port", str(self.port), "--token-file", str(self.folder / "token")]
        environment = os.environ | {"ROOM_MODEL": ""} | environment
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment)
        self.url = re.search(r"http://\S+", self.process.stdout.readline()).group()

    def ends(self):
        """Wait until it ends by itself; give what it has printed since it listens."""
        said, _ = self.process.communicate(timeout=WAIT_MS / 1000)
        assert self.process.returncode == 0
        return said

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate(timeout=20)

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate(timeout=20)


@contextmanager
def daemon(folder, *options, **given):
    one = Daemon(folder, *options, **given)
    try:
        yield one
    finally:
        if one.process.poll() is None:
            one.stop()


class Person:
    """Somebody in front of the page."""

    def __init__(self, browser, url, name, **looks):
        self.name = name
        self.errors = []
        self.page = browser.new_context(**looks).new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._hears)
        self.page.goto(f"{url}&session=room&name={name}")
        self.page.wait_for_selector("#state[data-state=open]")

    def _hears(self, message):
        if message.type in ("error", "warning") and "ERR_CONNECTION_REFUSED" not in message.text:
            self.errors.append(message.text)

    def leaves(self):
        assert self.errors == []
        self.page.context.close()

    def says(self, text, mode="steer"):
        self.page.check(f"#mode input[value={mode}]")
        self.page.fill("#text", text)
        self.page.press("#text", "Enter")

    def sees(self, selector, text=None):
        """Wait until something is shown, and give it."""
        found = self.page.locator(selector, has_text=text).last
        found.wait_for()
        return found

    def texts(self, selector):
        return self.page.locator(selector).all_inner_texts()

    def waits_until_idle(self):
        self.page.wait_for_selector("body[data-busy=false]", state="attached")

    def keeps(self, picture):
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{picture}.png")


@pytest.fixture(scope="module")
def browser():
    with playwright.sync_playwright() as driver:
        one = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield one
        one.close()
