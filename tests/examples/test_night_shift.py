"""The demo, run as a user runs it, and the checks that it ends with, on cases that must fail them."""

import asyncio
import os
import pty
import re
import signal
import subprocess

import perdure
import pytest
from msgspec.structs import replace
from night_shift import judge, script
from night_shift.ledger import Ledger, Ticket
from night_shift.rules import RULES
from night_shift.tree import Hit, Tree, hits_as_text, hits_from_text
from perdure.actors.models import AssistantMessage, ToolResultMessage, call, text, to_json
from perdure.actors.models.testing import ProtocolServer
from perdure.actors.models.testing_messages import problems, stream_reply

from .support import command, run

FINDINGS = 36


def lines_of(output, start):
    return [line for line in output.splitlines() if line.startswith(start)]


# --- the demo


def test_a_shift_that_is_killed_twice_ends_as_an_undisturbed_one(tree, tmp_path):
    options = ["--plain", "--kills", "2", "--seed", "7", "--pace", "500", "--store", tmp_path / "shift.db"]
    done = run("night_shift.py", tree, *options)

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("kill -9") == 2
    assert len(lines_of(done.stdout, "ok ")) == 5
    assert f"{FINDINGS} tickets in all." in done.stdout
    assert len(Ledger(tmp_path / "shift.db.tickets.jsonl").tickets()) == FINDINGS


def test_ctrl_c_ends_daemon_and_display_and_the_shift_can_go_on(tree, tmp_path):
    store = ["--store", tmp_path / "shift.db"]
    shown, pid = interrupt_in_mid_shift(tree, *store, "--pace", "200")

    assert b"Stopped in mid-shift." in shown
    assert shown.count(b"\x1b[?1049h") == shown.count(b"\x1b[?1049l") == 1
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)

    done = run("night_shift.py", tree, *store, "--pace", "0", "--kills", "0")
    assert done.returncode == 0, done.stdout


def interrupt_in_mid_shift(*arguments):
    """Run on a terminal; press Ctrl-C once the daemon is at work on tickets. Returns what was shown, and its pid."""
    master, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "160", "LINES": "45"}
    launcher = subprocess.Popen(
        command("night_shift.py", *arguments), stdin=terminal, stdout=terminal, env=environment, start_new_session=True
    )
    os.close(terminal)
    shown = b""
    try:
        while b"1 tickets" not in shown and b"2 tickets" not in shown:
            shown += os.read(master, 65_536)
        launcher.send_signal(signal.SIGINT)
        shown += rest_of(master)
        assert launcher.wait(timeout=10) == 130
    finally:
        launcher.kill()
        launcher.wait()
        os.close(master)
    return shown, int(re.findall(rb"Daemon (\d+) is at work", shown)[-1])


def rest_of(master):
    shown = b""
    try:
        while piece := os.read(master, 65_536):
            shown += piece
    except OSError:  # how a terminal says that nobody has it open any more
        pass
    return shown


def test_what_cannot_work_is_refused_before_anything_is_started(tree):
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ANTHROPIC")}
    cases = {
        ("--model", "anthropic/any"): "no key for anthropic/any",
        ("--store", tree / "no" / "shift.db"): "there is no directory for",
    }
    for options, problem in cases.items():
        done = run("night_shift.py", tree, *options, env=environment)

        assert done.returncode == 2
        assert problem in done.stderr


def test_a_daemon_that_fails_ends_the_night_with_its_log(tree, tmp_path):
    store = tmp_path / "shift.db"
    store.write_bytes(b"this is no database" * 1_000)
    done = run("night_shift.py", tree, "--plain", "--store", store)

    assert done.returncode == 1
    assert f"Its log is {store}.log" in done.stderr
    assert "StorageCorrupt" in (tmp_path / "shift.db.log").read_text()


def test_the_same_daemon_runs_on_a_model_behind_the_messages_protocol(tree, tmp_path):
    """The server plays the script; what it is sent comes from the real SDK."""
    options = ["--plain", "--kills", "1", "--pace", "0", "--model", "anthropic/any"]
    status, said, requests = asyncio.run(shift_at_server([tree, *options]))

    assert status == 0, said
    assert f"{FINDINGS} tickets in all." in said
    assert [problem for request in requests for problem in problems(request.body)] == []


async def shift_at_server(arguments):
    async with ProtocolServer(script=lambda request: play(request.body)) as server:
        environment = {**os.environ, "ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": "none"}
        launcher = await asyncio.create_subprocess_exec(
            *command("night_shift.py", *arguments), env=environment, stdout=subprocess.PIPE
        )
        said, _ = await asyncio.wait_for(launcher.communicate(), 50)
        return launcher.returncode, said.decode(), server.requests


def play(body):
    """Answer a request of the Messages protocol as the script would."""
    blocks = [block for message in body["messages"] for block in message["content"] if isinstance(block, dict)]
    made = {block["id"]: call(block["name"], **block["input"]) for block in blocks if block["type"] == "tool_use"}
    came = [(made[block["tool_use_id"]], result_of(block)) for block in blocks if block["type"] == "tool_result"]
    directs = any(tool["name"] == "subagent" for tool in body["tools"])
    answer = script.direct(came) if directs else script.audit(said_first(body), came)
    wire = [
        to_wire(part, len(blocks) + index) for index, part in enumerate([answer] if isinstance(answer, str) else answer)
    ]
    return stream_reply(*wire, stop_reason="end_turn" if isinstance(answer, str) else "tool_use", size=50)


def said_first(body):
    content = body["messages"][0]["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def result_of(block):
    content = block["content"]
    said = content if isinstance(content, str) else "".join(item["text"] for item in content)
    return ToolResultMessage(tool_call_id="", tool_name="", content=[text(said)], is_error=block.get("is_error", False))


def to_wire(part, number):
    if isinstance(part, str):
        return {"type": "text", "text": part}
    return {"type": "tool_use", "id": f"toolu_{number}", "name": part.name, "input": part.arguments}


# --- the checks

TICKET = Ticket(key="night-shift:7", task=7, rule="eval", path="a.py", line=3, text="eval(code)")


def test_a_ledger_of_single_tickets_passes():
    assert judge.double_tickets([TICKET, replace(TICKET, key="night-shift:8", line=4)]) == []


def test_a_call_that_has_filed_twice_is_found():
    assert judge.double_tickets([TICKET, replace(TICKET, line=4)]) == ["call night-shift:7 has filed 2 tickets"]


def test_a_finding_with_two_tickets_is_found():
    assert judge.double_tickets([TICKET, replace(TICKET, key="night-shift:8")]) == ["eval a.py 3 has 2 tickets"]


def test_tickets_that_an_undisturbed_shift_has_or_has_not_are_found():
    assert judge.other_findings([TICKET], [TICKET]) == []
    assert judge.other_findings([], [TICKET]) == ["eval a.py 3 has no ticket"]
    assert judge.other_findings([TICKET], []) == ["eval a.py 3 should have none"]


def test_a_report_that_differs_is_found():
    assert judge.other_report("a\nb", "a\nb") == []
    assert judge.other_report("a\nc", "a\nb") == ["the reports differ: 'c' instead of 'b'"]
    assert judge.other_report("a", "a\nb") == ["the reports differ: one is longer"]


def assistant(*ids, stop_reason="toolUse"):
    return AssistantMessage(content=[call("grep", one, pattern="x") for one in ids], stop_reason=stop_reason)


def result(id, said="1 hits", *, is_error=False):
    return ToolResultMessage(tool_call_id=id, tool_name="grep", content=[text(said)], is_error=is_error)


def transcript(*messages, data=None, by_task_id=None):
    return [
        perdure.EntryRecord(
            id=number, conversation_id=1, kind="any", model=[to_json(message)], data=data, by_task_id=by_task_id
        )
        for number, message in enumerate(messages, 10)
    ]


def test_calls_that_are_followed_by_their_results_pass_in_any_order():
    entries = transcript(assistant("a", "b"), result("b"), result("a"), assistant("c"), result("c"))

    assert judge.unanswered_calls(entries) == []
    assert [made.id for made in judge.calls(entries)] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("messages", "problem"),
    [
        ([assistant("a"), assistant()], "call a has no result"),
        ([assistant("a", "b"), result("b")], "call a has no result"),
        ([assistant("a"), assistant(), result("a")], "call a has no result"),
        ([assistant("a"), result("a"), result("a")], "a result of grep answers no open call: a"),
        ([result("a")], "a result of grep answers no open call: a"),
    ],
)
def test_a_call_or_a_result_that_stands_alone_is_found(messages, problem):
    assert problem in judge.unanswered_calls(transcript(*messages))


def test_calls_in_a_message_that_a_crash_cut_off_were_never_made():
    cut_off = assistant("a", stop_reason="aborted")

    assert judge.unanswered_calls(transcript(cut_off, assistant("a"), result("a"))) == []
    assert len(judge.calls(transcript(cut_off, assistant("a")))) == 1


@pytest.mark.parametrize(
    ("fate", "code", "broken"),
    [
        ("interrupted", "interrupted", False),
        ("interrupted", None, True),
        ("runs again", "interrupted", True),
        ("runs again", None, False),
    ],
)
def test_a_call_that_did_not_end_as_its_tool_declares_is_found(fate, code, broken):
    data = {"diagnostics": [{"code": code}] if code else []}
    transcripts = {1: transcript(result("a"), data=data, by_task_id=7)}

    assert bool(judge.broken_fates([judge.Victim(7, "grep", fate)], transcripts)) == broken


def test_a_call_that_was_lost_is_found():
    assert judge.broken_fates([judge.Victim(7, "file_ticket", "interrupted")], {1: []}) != []


# --- the scripted model

EVAL = next(rule for rule in RULES if rule.name == "eval")
FINDING = Hit("a.py", 3, "eval(code)")
ABOUT = {"rule": "eval", "path": "a.py", "line": 3}
FILED = call("file_ticket", "1", **ABOUT, text="eval(code)")
LOOKED = call("find_ticket", "2", **ABOUT)
CUT_OFF = result(
    "1", "<harness>\n[error] Tool file_ticket was interrupted and may have partially run\n</harness>", is_error=True
)


def next_tool(*done):
    step = script.next_step(EVAL, FINDING, done)
    return step and step.name


def test_the_model_files_a_finding_once():
    assert next_tool() == "file_ticket"
    assert next_tool((FILED, result("1", "Filed."))) is None


def test_after_an_interrupted_call_the_model_looks_before_it_files_again():
    assert next_tool((FILED, CUT_OFF)) == "find_ticket"
    assert next_tool((FILED, CUT_OFF), (LOOKED, result("2", "It is in the ledger."))) is None
    assert next_tool((FILED, CUT_OFF), (LOOKED, result("2", "There is no such ticket."))) == "file_ticket"
    assert (
        next_tool((FILED, CUT_OFF), (LOOKED, result("2", "There is no such ticket.")), (FILED, CUT_OFF))
        == "find_ticket"
    )


def test_the_model_gives_up_on_a_tool_that_fails():
    with pytest.raises(RuntimeError, match="disk"):
        next_tool((FILED, result("1", "Tool file_ticket failed: the disk is full", is_error=True)))


def test_the_parts_are_ranges_of_about_equal_size_that_cover_the_tree():
    listing = "\n".join(
        f"{name}: 1 files, {size} bytes" for name, size in zip("abcdef", (50, 1, 1, 40, 5, 5), strict=True)
    )

    assert script.split(listing, 3) == [("a", "a"), ("b", "d"), ("e", "f")]
    assert script.split("There is no Python source.", 3) == []


# --- the tree


def test_hits_survive_being_told():
    hits = [Hit("a.py", 1, "except:", ("pass",)), Hit("b/c.py", 20, "", ("", "x: 3"))]

    assert hits_from_text(hits_as_text(hits)) == hits


def test_a_search_stays_within_its_part_and_leaves_tests_out(tree):
    every = [hit.path for hit in Tree(tree).grep(r"eval\(")]
    part = {hit.path for hit in Tree(tree).grep(r"eval\(", "dates", "melons.py")}

    assert "tests/test_code.py" not in every
    assert part == {"dates/code.py", "lemons/code.py", "melons.py"}
    assert sorted(every) == every
