"""JSON documents as operations: change them in drafts, publish the changes, follow them elsewhere.

    values, text      strict JSON, and text as UTF-16 counts it
    apply             operations and what they do
    draft, draft_dict, draft_list, delta, tracker     edit a document, get the next revision and its operations
    wire              the short form of operations on a stream
    watch, replica    follow a document: frames to a consumer, a replicated value
    typed             a value seen as a msgspec.Struct

Each line builds on those above it; nothing here knows of agents, storage or actors.
"""

from .apply import Op, apply, apply_immutable
from .draft import DraftBase
from .draft_dict import Draft
from .draft_list import ListDraft
from .errors import (
    ChordError,
    DraftRevoked,
    InvalidJson,
    InvalidOp,
    OutOfRange,
    PathMissing,
    PerdureError,
    StaleChange,
    UnsafePath,
    WatchTaken,
)
from .replica import Attachment, Feed, ReplicatedState, Source
from .text import valid_text
from .tracker import Change, Prepared, Tracker
from .typed import view
from .values import MAX_DEPTH, Json, copy_json
from .watch import EndReason, Watch, WatchEnd
from .wire import Decoder, Encoder

__all__ = [
    "MAX_DEPTH",
    "Attachment",
    "Change",
    "ChordError",
    "Decoder",
    "Draft",
    "DraftBase",
    "DraftRevoked",
    "Encoder",
    "EndReason",
    "Feed",
    "InvalidJson",
    "InvalidOp",
    "Json",
    "ListDraft",
    "Op",
    "OutOfRange",
    "PathMissing",
    "PerdureError",
    "Prepared",
    "ReplicatedState",
    "Source",
    "StaleChange",
    "Tracker",
    "UnsafePath",
    "Watch",
    "WatchEnd",
    "WatchTaken",
    "apply",
    "apply_immutable",
    "copy_json",
    "valid_text",
    "view",
]
