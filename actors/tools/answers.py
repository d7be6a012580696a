"""What a submission was answered, in words, read inside a commit."""

from typing import Any

from ...storage.records import EntryRecord, SubmissionRecord
from ..models import answer_text, from_json
from ..task.tx import Tx


async def answer_said(tx: Tx, record: SubmissionRecord) -> str:
    """Give the answer of a settled input, or why there is none."""
    entry: EntryRecord | None = None if record.answer is None else await tx.entry(record.answer)
    if entry is None or not entry.model:
        return f"(no answer: {record.reason})"
    message: Any = from_json(entry.model[0])
    return answer_text(message) or "(an answer without text)"
