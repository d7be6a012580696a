"""``bash``: a shell command. Proved by tests/actors/tools/test_bash.py.

Its process is noted down in the call's own document before it begins, so that a call which is cut off, even with its
whole process, leaves none behind.
"""

from typing import Any

from ..agent.output import OutputLimits
from ..agent.results import remark
from ..agent.tool import Tool, ToolResult
from ..agent.toolcontext import ToolContext
from ..conversation.builtin import Diagnostic
from .environment import CommandError, CommandResult, Environment, ProcessId, SpillLimits
from .places import EnvironmentOf, end_processes, environment_of, note_process


class BashTool(Tool):
    """The tool; it knows how to end what a call has left behind."""

    where: Environment | EnvironmentOf

    async def clean_up(self, context: ToolContext) -> None:
        """End the processes of an execution that was cut off."""
        await end_processes(context, self.where)


def bash_tool(where: Environment | EnvironmentOf, limits: OutputLimits, timeout_s: float | None) -> Tool:
    """Make the tool; ``timeout_s`` is the time limit of calls that ask for none."""

    async def bash(ctx: ToolContext, command: str, timeout: float | None = None) -> ToolResult:  # noqa: ASYNC109
        """Run a shell command in the working directory.

        Its output is stdout and stderr together; of much output the end is given.

        Args:
            command: The command.
            timeout: Kill it after so many seconds.
        """
        environment = await environment_of(where, ctx)

        async def note(process: ProcessId) -> None:
            await note_process(ctx, process)

        try:
            result = await environment.run(
                command,
                timeout_s=timeout_s if timeout is None else timeout,
                on_output=lambda _stream, text: ctx.output(text),
                spill=SpillLimits(max_bytes=limits.max_bytes, max_lines=limits.max_lines),
                started=note,
            )
        except CommandError as error:
            if error.code != "timeout":
                raise
            return ToolResult(is_error=True, diagnostics=[remark("timeout", str(error)), *_spilled(error.spill)])
        return _answer(result)

    tool = BashTool(bash, limits=limits)
    tool.where = where
    return tool


def _answer(result: CommandResult) -> ToolResult:
    """Whatever the exit code, the call has run; one other than 0 is for the model to look at."""
    remarks = _spilled(result.spill)
    if result.left_running:
        remarks.append(remark("left_running", "The command has ended and left processes behind that still run", "info"))
    if result.exit_code:
        how = f"Killed by signal {-result.exit_code}" if result.exit_code < 0 else f"Exit code {result.exit_code}"
        remarks.append(remark("exit_code", how))
    details: dict[str, Any] = {"exitCode": result.exit_code}
    if result.spill is not None:
        details["fullOutputPath"] = result.spill
    return ToolResult(is_error=result.exit_code != 0, diagnostics=remarks, details=details)


def _spilled(path: str | None) -> list[Diagnostic]:
    return [] if path is None else [remark("full_output", f"The complete output is in {path}", "info")]
