"""The agents: what they are told and what they can do. Scripted and real models get exactly the same.

Each tool says what a crash may do to it. Reading is ``replay="safe"``: a call that was cut off runs again, unseen by the
model. Filing a ticket is not: a call that was cut off is answered as interrupted, and what to do is up to the model.
"""

import asyncio
from collections.abc import Iterable

import perdure

from .ledger import Ledger, Ticket
from .rules import MOST, RULES
from .tree import Tree, hits_as_text

DIRECTOR = """\
You lead the night shift: an audit of a Python source tree by three auditors. Call list_files to see the tree. Split its
top-level entries into three ranges of about equal size and delegate each with the subagent tool, all in one turn, so that
the auditors work in parallel. A task names the first and the last entry of its range. Then merge their answers into one
report: the places for each kind of problem, and totals. File no tickets yourself."""

AUDITOR = f"""\
You audit one part of a Python source tree: the top-level entries from a first to a last name, which your task gives you.
Call list_files on your part, then for each kind of problem below call grep on it, judge every hit by its text and context,
and call file_ticket once for each that is worth somebody's time: at most {MOST} of a kind, several calls in one turn. When
file_ticket was interrupted, the ticket may have been filed or not: call find_ticket, and file again only if there is none.
End with one line for each kind: its name, the number of tickets, the number of hits, and the places."""

PROBLEMS = "\n".join(f"- {rule.name}: code that {rule.problem}; candidates match {rule.pattern}" for rule in RULES)


def director(model: str) -> perdure.Agent:
    """The agent that is asked for the audit."""
    return perdure.Agent(model=model, instructions=DIRECTOR, tools=["list_files", "subagent"])


def night_shift(tree: Tree, ledger: Ledger, desk_s: float) -> perdure.Extension:
    """Everything the agents need. Filing a ticket takes ``desk_s`` before and after it is in the ledger."""
    auditor = perdure.Agent(instructions=AUDITOR, tools=["list_files", "grep", "file_ticket", "find_ticket"])
    tools = [*reading(tree), *filing(ledger, desk_s), perdure.subagent(auditor)]
    return perdure.Extension(name="night-shift", tools=tools, sections=[perdure.Section("problems", PROBLEMS)])


def reading(tree: Tree) -> Iterable[perdure.Tool]:
    """The tools that look at the tree."""

    @perdure.tool(replay="safe")
    def list_files(first: str = "", last: str = "") -> str:
        """List the top-level entries of the tree with the number and size of their source files.

        Args:
            first: The first entry wanted; left out, the first there is.
            last: The last entry wanted; left out, the last there is.
        """
        lines = []
        for name in tree.part(first, last):
            files = tree.files(name)
            lines.append(f"{name}: {len(files)} files, {sum(file.stat().st_size for file in files)} bytes")
        return "\n".join(lines) or "There is no Python source."

    @perdure.tool(replay="safe")
    def grep(pattern: str, first: str = "", last: str = "", after: int = 0) -> str:
        """Search the source files of a part of the tree for a regular expression, line by line.

        Args:
            pattern: A regular expression as in Python's re.
            first: The first top-level entry to search.
            last: The last top-level entry to search.
            after: How many lines after each hit to show.
        """
        return hits_as_text(tree.grep(pattern, first, last, after))

    return list_files, grep


def filing(ledger: Ledger, desk_s: float) -> Iterable[perdure.Tool]:
    """The tools around the ledger."""

    @perdure.tool(replay="unsafe")
    async def file_ticket(ctx: perdure.ToolContext, rule: str, path: str, line: int, text: str) -> str:
        """File a ticket about one place in the source.

        Args:
            rule: The name of the kind of problem.
            path: The file, relative to the tree.
            line: The number of the line.
            text: The line itself.
        """
        ticket = Ticket(key=ctx.idempotency_key, task=ctx.task_id, rule=rule, path=path, line=line, text=text)
        await ctx.sleep(desk_s)  # killed here, the ticket has not been filed
        await asyncio.to_thread(ledger.append, ticket)
        await ctx.sleep(desk_s)  # killed here, it has, and nobody knows
        return "Filed."

    @perdure.tool(replay="safe")
    def find_ticket(rule: str, path: str, line: int) -> str:
        """Look whether the ledger has a ticket about one place.

        Args:
            rule: The name of the kind of problem.
            path: The file, relative to the tree.
            line: The number of the line.
        """
        filed = any(ticket.finding == (rule, path, line) for ticket in ledger.tickets())
        return "It is in the ledger." if filed else "There is no such ticket."

    return file_ticket, find_ticket
