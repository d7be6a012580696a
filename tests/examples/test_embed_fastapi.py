import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import contextmanager

import pytest

from .support import EXAMPLES


@contextmanager
def served(tmp_path):
    """The application behind a real server; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [
            sys.executable,
            "-m",
            "uvicorn",
            "--app-dir",
            EXAMPLES,
            "--fd",
            str(listening.fileno()),
            "embed_fastapi:app",
        ]
        with subprocess.Popen(
            command, cwd=tmp_path, pass_fds=[listening.fileno()], stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                assert any("startup complete" in line for line in process.stderr)
                yield f"http://127.0.0.1:{listening.getsockname()[1]}"
            finally:
                process.terminate()
                said = process.stderr.read()
    assert "Traceback" not in said
    assert "shutdown complete" in said


def said(address, body):
    request = urllib.request.Request(address, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.load(answer)


def test_the_application_answers_and_a_request_that_is_sent_again_gets_the_same_answer_also_after_a_restart(tmp_path):
    with served(tmp_path) as address:
        first = said(f"{address}/chats/ada", {"text": "hello", "request_id": "r1"})
        assert first["answer"] == "You said: hello"
        assert said(f"{address}/chats/ada", {"text": "hello", "request_id": "r1"}) == first
    with served(tmp_path) as address:
        assert said(f"{address}/chats/ada", {"text": "hello", "request_id": "r1"}) == first
        with pytest.raises(urllib.error.HTTPError, match="422"):
            said(f"{address}/chats/ada", {"text": " "})


def test_the_application_streams_what_happens(tmp_path):
    with served(tmp_path) as address, urllib.request.urlopen(f"{address}/chats/bob/events", timeout=20) as stream:
        events = (json.loads(line.removeprefix(b"data: ")) for line in stream if line.startswith(b"data: "))
        assert next(events)["type"] == "snapshot"
        said(f"{address}/chats/bob", {"text": "hello"})
        types = []
        for event in events:
            types.append(event["type"])
            if event["type"] == "run_end":
                break
        assert types.count("message_end") == 2
