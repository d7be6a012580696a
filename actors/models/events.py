"""What a model yields while it answers.

Order: at most one `Start` (the server has begun to answer), then blocks, then exactly one `Done`, always last. A block
is one `BlockStart`, any number of `Delta`, one `BlockEnd`; blocks may interleave and are told apart by their index in
the message's content. A failure may cut the order anywhere: `Done` then carries what was complete by then.
"""

from typing import TypeAlias

import msgspec

from .messages import AssistantMessage, Block


class _Event(msgspec.Struct, frozen=True):
    """Immutable; positional construction, since adapters make one for every few characters."""


class Start(_Event, frozen=True):
    """The answer begins: the message so far, empty, with identity and the usage known by now (the input's)."""

    message: AssistantMessage


class BlockStart(_Event, frozen=True):
    """Block `index` begins; `block` holds what is known of it (a call's id and name)."""

    index: int
    block: Block


class Delta(_Event, frozen=True, gc=False):
    """More of block `index`: text of a text or thinking block, JSON text of a call's arguments."""

    index: int
    text: str


class BlockEnd(_Event, frozen=True):
    """Block `index` is complete; `block` is its final form and replaces whatever the deltas added up to."""

    index: int
    block: Block


class Done(_Event, frozen=True):
    """The whole answer, or how it failed (`stop_reason` `error`). Nothing follows."""

    message: AssistantMessage


Event: TypeAlias = Start | BlockStart | Delta | BlockEnd | Done
