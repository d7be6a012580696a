"""The JSON form of records, which a backend keeps in place of the caller's objects: so it shares no state with them."""

from typing import Any

import msgspec

from .errors import StorageRejected
from .records import (
    Base,
    ConversationRecord,
    Delta,
    DocumentRecord,
    EntryRecord,
    Json,
    JsonObject,
    MessageRecord,
    SubmissionRecord,
    TaskRecord,
)

decode_conversation = msgspec.json.Decoder(ConversationRecord).decode
decode_entry = msgspec.json.Decoder(EntryRecord).decode
decode_task = msgspec.json.Decoder(TaskRecord).decode
decode_submission = msgspec.json.Decoder(SubmissionRecord).decode
decode_message = msgspec.json.Decoder(MessageRecord).decode
decode_document = msgspec.json.Decoder(DocumentRecord).decode
decode_value = msgspec.json.Decoder(JsonObject).decode
decode_ops = msgspec.json.Decoder(list[Any]).decode

_encode = msgspec.json.Encoder().encode


def encode(value: Json) -> str:
    """Encode a record or value. Raises StorageRejected for one that is not storable JSON, half surrogates included."""
    try:
        return _encode(value).decode()
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise StorageRejected(f"not storable as JSON: {error}") from error


def encode_content(content: Base | Delta) -> str:
    """Encode what a revision stores: a base's value, or a delta's operations."""
    return encode(content.value if isinstance(content, Base) else content.ops)


def decode_content(base: bool, version: int, body: str) -> Base | Delta:
    """Decode what a revision stores."""
    return Base(version=version, value=decode_value(body)) if base else Delta(version=version, ops=decode_ops(body))
