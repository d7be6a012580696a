"""Rebuilding a document's value from its newest base and the deltas after it."""

from collections.abc import Iterable

from ..chord import Decoder, apply
from ..chord.errors import ChordError
from . import codec
from .errors import StorageCorrupt
from .records import DocumentRecord, StoredDocument

Revision = tuple[bool, int, str]
"""Whether it is a base, the definition's version, and the encoded value or operations."""


def materialise(record: DocumentRecord, newest_first: Iterable[Revision]) -> StoredDocument:
    """Apply the deltas after the newest base to it; reads no further than that base.

    Raises StorageCorrupt when there is no base, when a delta crosses versions, or when one does not fit.
    """
    deltas = []
    for base, version, body in newest_first:
        if base:
            break
        deltas.append((version, body))
    else:
        raise StorageCorrupt(f"document {record.id} has no base")
    value, decoder = codec.decode_value(body), Decoder()
    for delta_version, ops in reversed(deltas):
        if delta_version != version:
            raise StorageCorrupt(f"document {record.id} has a delta of version {delta_version} on version {version}")
        try:
            value = apply(value, decoder.decode(codec.decode_ops(ops)))
        except ChordError as error:
            raise StorageCorrupt(f"document {record.id} has a delta that does not fit: {error}") from error
    if not isinstance(value, dict):
        raise StorageCorrupt(f"document {record.id} is no JSON object any more")
    return StoredDocument(record=record, version=version, value=value, deltas_since_base=len(deltas))
