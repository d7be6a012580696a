"""Policies of a system, read anew at every decision and never stored.

Making one raises InvalidValue for what no system could work by. Proved by tests/actors/conversation/test_settings.py.
"""

import math
from typing import Any, Literal, get_args

import msgspec

from ..session.errors import InvalidValue

QueueMode = Literal["one-at-a-time", "all"]
ToolExecution = Literal["parallel", "sequential"]
CHOICES: dict[str, tuple[str, ...]] = {
    "tool_execution": get_args(ToolExecution),
    "steering_mode": get_args(QueueMode),
    "follow_up_mode": get_args(QueueMode),
}
LEAST = {"max_nested_calls": 1}


class _Policy(msgspec.Struct, frozen=True, kw_only=True):
    """Fields that are numbers are finite and not negative."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            _check(f"{type(self).__name__}.{field}", field, getattr(self, field))


def _check(what: str, field: str, value: Any) -> None:
    least = LEAST.get(field, 0)
    if isinstance(value, int | float) and not least <= value < math.inf:
        raise InvalidValue(f"{what} must be a finite number from {least}, got: {value!r}")
    if field in CHOICES and value not in CHOICES[field]:
        raise InvalidValue(f"{what} must be one of {', '.join(CHOICES[field])}, got: {value!r}")


class RetryPolicy(_Policy, frozen=True, kw_only=True):
    """Durable retries of model requests: at most ``max_retries`` after the first attempt, with doubling delays in ms.

    A delay is up to the part ``jitter`` longer, another one for each task, so that those who failed together do not come
    back together. A wait that a provider asks for is kept; one longer than ``max_wait_ms`` ends the attempts.
    """

    enabled: bool = True
    max_retries: int = 3
    base_delay_ms: int = 2_000
    max_delay_ms: int = 60_000
    jitter: float = 0.1
    max_wait_ms: int = 86_400_000


class ProgressPolicy(_Policy, frozen=True, kw_only=True):
    """How often streamed partials and running tool output are committed, in ms."""

    partial_interval_ms: int = 100
    output_interval_ms: int = 100


class CompactionPolicy(_Policy, frozen=True, kw_only=True):
    """When context is compacted without being asked for, and how much of it stays word for word. In tokens.

    A request waits for a compaction when less than ``reserve_tokens`` of the window would be left; ``background_tokens``
    earlier one begins beside it (0: never). In windows that are small beside these they shrink with it.
    """

    enabled: bool = True
    reserve_tokens: int = 16_384
    background_tokens: int = 32_768
    keep_recent_tokens: int = 20_000


class Settings(_Policy, frozen=True, kw_only=True):
    """Everything that can be set for a whole system. Replace the object to change it while running.

    ``extensions`` is the default selection by name (None: all installed). The queue modes say how many queued items of
    one kind a boundary takes. ``max_queued_*`` bound what waits in one conversation's inbox. A run ends (``repetition``)
    when its last ``max_repeated_rounds`` tool rounds, calls and results, were nothing new. A session that nobody has used
    for ``idle_after_s`` seconds, and that has nothing to do before a deadline, leaves memory until it is needed again (None:
    it never does). Sizes are in bytes of UTF-8, times in ms.
    """

    extensions: tuple[str, ...] | None = None
    retry: RetryPolicy = RetryPolicy()
    progress: ProgressPolicy = ProgressPolicy()
    compaction: CompactionPolicy = CompactionPolicy()
    tool_execution: ToolExecution = "parallel"
    steering_mode: QueueMode = "one-at-a-time"
    follow_up_mode: QueueMode = "one-at-a-time"
    request_timeout_ms: int | None = None
    idle_timeout_ms: int | None = None
    max_submission_bytes: int = 1_048_576
    max_repeated_rounds: int | None = 50
    max_nested_calls: int = 256
    """How many calls that one execution of a tool makes may be under way at once; more wait for their turn."""
    max_queued_submissions: int = 1_000
    max_queued_bytes: int = 16_777_216
    max_outgoing_messages: int = 10_000
    """How many messages of one session may be on their way to one receiving session; more are refused (OutboxFull)."""
    idle_after_s: float | None = 60.0
