"""No statement reads more than it returns: every plan goes through an index, and sorts nothing that can grow."""

import re
import sqlite3

import pytest
from perdure.storage import (
    sqlite_conversations,
    sqlite_deletion,
    sqlite_document_reads,
    sqlite_documents,
    sqlite_group,
    sqlite_messages,
    sqlite_reads,
    sqlite_schema,
)
from perdure.storage.sqlite_bulk import SIZES, widen

MODULES = (
    sqlite_reads,
    sqlite_document_reads,
    sqlite_group,
    sqlite_messages,
    sqlite_documents,
    sqlite_deletion,
    sqlite_conversations,
)
SORTED = {"LIVE_IN_SCOPE", "EVER_IN_SCOPE"}
"""One scope's documents are found by address and sorted by id for the page."""


def collect():
    """List every statement of the backend, at every width."""
    found = []
    for module in MODULES:
        for name, value in vars(module).items():
            texts = value.values() if isinstance(value, dict) else [value]
            for text in texts if name.isupper() and not name.startswith("_") else ():
                if isinstance(text, str) and re.match(r"\s*(SELECT|WITH|INSERT|UPDATE|DELETE)\b", text):
                    sizes = (1, *SIZES) if widen(text, 2) != text else (1,)
                    found += [pytest.param(name, widen(text, size), id=name) for size in sizes]
    return found


def explain(sql):
    """Give the steps of a statement's plan."""
    connection = sqlite3.connect(":memory:")
    connection.executescript(sqlite_schema.TABLES)
    numbered = [int(number) for number in re.findall(r"\?(\d+)", sql)]
    parameters = [0] * (max(numbered) if numbered else sql.count("?"))
    steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", parameters)]
    connection.close()
    return steps


def test_there_are_statements_to_look_at():
    assert len(collect()) > 50


@pytest.mark.parametrize(("name", "sql"), collect())
def test_a_statement_goes_through_an_index(name, sql):  # ST-63
    for step in explain(sql):
        small = re.match(r"SCAN (line|\(subquery|(\d+ )?CONSTANT ROW)", step) or "sessions_wake" in step
        assert small or not step.startswith("SCAN"), step
        assert name in SORTED or "TEMP B-TREE" not in step, step


@pytest.mark.parametrize(
    ("sql", "index"),
    [
        (sqlite_reads.ENTRIES["descending"], "entries_conversation"),
        (sqlite_reads.HEAD, "entries_head"),
        (sqlite_reads.OPEN_SUBMISSIONS["ascending"], "submissions_open"),
        (sqlite_reads.SUBMISSION_BY_REQUEST, "submissions_request"),
        (sqlite_reads.CONVERSATIONS_OF_TASK["ascending"], "conversations_owner_task"),
        (sqlite_reads.CONVERSATIONS_OF_CONVERSATION["ascending"], "conversations_owner_conversation"),
        (sqlite_reads.ENDED_TASKS_OF["ascending"], "ended_tasks_conversation"),
        (sqlite_messages.LIVE_MESSAGES, "messages_live"),
        (sqlite_messages.DEAD_LETTERS, "messages_dead"),
        (sqlite_messages.CONSUMED_MESSAGES["ascending"], "messages_consumed"),
        (sqlite_messages.MESSAGE_BY_REQUEST, "messages_request"),
        (sqlite_reads.DUE, "sessions_wake"),
        (sqlite_document_reads.LIVE, "documents_alive"),
        (sqlite_document_reads.RETIRED, "documents_retired"),
    ],
)
def test_a_hot_query_has_an_index_of_its_own(sql, index):  # ST-63
    assert index in " ".join(explain(sql))
