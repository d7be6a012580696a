"""A room in which everything can be seen that the page can show: failures, retries, summaries, pictures, much output.

STATES_WITHOUT names extensions that are not installed, so that tasks of theirs are blocked; STATES_WINDOW is the model's window.
"""

import os

import perdure
from perdure.models import (
    ErrorInfo,
    Pause,
    ScriptedModel,
    SystemMessage,
    Thinking,
    UserMessage,
    call,
    current_tools,
    plain_text,
    text,
)

from .later import clock

LINE = "{n:>4}  drwxr-xr-x  harbour/pier-{n}/a-rather-long-directory-name/with-a-file-of-a-long-name-{n}.log"
CODE = """\
This is how:

```python
def tide(hour: int) -> float:
    return 2.4 * math.sin(hour / 12.42 * math.tau)  # a long line of code that does not fit into a narrow window at all
```

Call it with `tide(6)`."""


@perdure.tool(replay="safe")
async def listing(ctx: perdure.ToolContext, lines: int) -> str:
    """List the harbour."""
    ctx.diagnostic("the harbour is large", severity="warn")
    return "\n".join(LINE.format(n=n) for n in range(lines))


@perdure.tool(replay="safe")
async def breaking() -> str:
    """Break."""
    raise RuntimeError("the crane has fallen over")


@perdure.tool(replay="unsafe")
async def weld(ctx: perdure.ToolContext, seams: int) -> str:
    """Weld. Nobody knows what is welded when it is cut off."""
    ctx.output("welding the first seam\n")
    await ctx.sleep(600)
    return f"{seams} seams are welded"


class Brain:
    """Plays the model, and fails as an input asks for it."""

    def __init__(self):
        self.failures = 0

    def __call__(self, request):
        last = next(one for one in reversed(request.messages) if not isinstance(one, SystemMessage))
        said = plain_text(last.content)
        if not current_tools(request.messages):
            return [Pause(ms=1_500), "They spoke of the harbour, at length."]
        if not isinstance(last, UserMessage):
            return f"Done: {said[:60]}"
        return self._answer(said)

    def _answer(self, said):
        match said.split()[0].strip(","):
            case "list":
                return [Thinking(thinking="That is much to list."), text("Here it is."), call("listing", lines=400)]
            case "break":
                return [text("I try."), call("breaking")]
            case "weld":
                return [text("I begin."), call("weld", seams=3)]
            case "later":
                return call("schedule", text="Look at the harbour.", after_s=3600, name="later")
            case "retry":
                self.failures += 1
                return (
                    "It works again."
                    if self.failures > 1
                    else ErrorInfo(kind="overloaded", message="too busy", retryable=True)
                )
            case "fail":
                return ErrorInfo(kind="invalid_request", message="the request makes no sense to the provider")
            case "code":
                return CODE
            case "much":
                return "The harbour is a place where ships lie. " * 300
        return "Noted."


def setup():
    """Give the room."""
    window = int(os.environ.get("STATES_WINDOW", "200000"))
    without = os.environ.get("STATES_WITHOUT", "").split()
    tools = perdure.Extension(name="parade", tools=[listing, breaking, weld])
    extensions = [one for one in (tools, perdure.schedules()) if one.name not in without]
    compaction = perdure.CompactionPolicy(reserve_tokens=3_000, background_tokens=0, keep_recent_tokens=1_000)
    model = ScriptedModel(Brain(), clock=clock(), context_window=window, max_tokens=2_000, tokens_per_second=4_000)
    return {
        "models": [model],
        "extensions": extensions,
        "agent": perdure.Agent(model="scripted/model"),
        "clock": clock(),
        "settings": perdure.Settings(compaction=compaction, retry=perdure.RetryPolicy(base_delay_ms=3_000)),
    }
