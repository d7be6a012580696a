"""The commands. Exit codes tell apart what a script may want to: see ``EXIT``."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn

import msgspec
import typer

from ...chord import PerdureError
from ...storage.errors import SchemaTooNew, StorageCorrupt, StorageError
from ...storage.records import ROOT_CONVERSATION_ID
from ...storage.sqlite_reader import SqliteReader
from ..conversation.export import ExportFormat
from ..session.errors import UnknownRecord
from . import approvals, picture, screen, serving

EXIT: dict[type[StorageError], int] = {StorageCorrupt: 4, SchemaTooNew: 5}
"""1 any other trouble with the store, 2 wrong usage, 3 no such file, 4 damaged or not a store, 5 newer schema,
6 no such session, 7 no such call waits, 8 the call refused the decision, 9 no such conversation."""
NO_FILE, NO_SESSION, NO_CALL, REFUSED, NO_CONVERSATION = 3, 6, 7, 8, 9

Show = Callable[[picture.Store, Any], None]
StoreFile = Annotated[Path, typer.Argument(metavar="FILE", help="The store's SQLite file.")]
SessionKey = Annotated[str, typer.Argument(metavar="SESSION", help="The session's key.")]
CallId = Annotated[str, typer.Argument(metavar="CALL", help="The call's id, as pi.live shows it.")]
InConversation = Annotated[
    int | None, typer.Option("--conversation", help="The conversation, if several have such a call.")
]
Hash = Annotated[str | None, typer.Option("--hash", help="Decide only if the arguments have this hash.")]
ConversationId = Annotated[int, typer.Argument(metavar="[CONVERSATION]", help="The conversation's id.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    name="perdure",
    help="Look into a store without disturbing its owner, alive or dead; decide about calls that wait; talk to an agent.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def sessions(file: StoreFile, json: AsJson = False) -> None:
    """List the sessions of a store."""
    _print(_read(file, picture.list_sessions), screen.show_list, json=json)


@app.command()
def inspect(
    file: StoreFile,
    session: Annotated[str | None, typer.Argument(help="Only this one, whether or not it has work.")] = None,
    json: AsJson = False,
) -> None:
    """Show what is under way: live tasks below their owners, inboxes, documents, sizes, and who owns the store."""
    if session is None:
        found: picture.Store | None = _read(file, picture.inspect_busy)
    else:
        found = _read(file, lambda reader: picture.inspect_one(reader, session))
    if found is None:
        _end(NO_SESSION, f"{file} has no session {session!r}")
    _print(found, screen.show_sessions, json=json)


@app.command()
def show(
    file: StoreFile,
    session: SessionKey,
    conversation: ConversationId = ROOT_CONVERSATION_ID,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as it grows, until Ctrl-C.")] = False,
) -> None:
    """Print a conversation; with --follow, what its owner writes meanwhile, on a terminal as it streams."""
    from . import transcript

    _check(file, session)
    try:
        _told(transcript.show(file, session, conversation, follow=follow))
    except KeyboardInterrupt:
        raise typer.Exit from None


@app.command()
def export(
    file: StoreFile,
    session: SessionKey,
    conversation: ConversationId = ROOT_CONVERSATION_ID,
    *,
    format: Annotated[ExportFormat, typer.Option(help="JSON lines for programs, Markdown for people.")] = "jsonl",
) -> None:
    """Write a conversation's whole history to the output, however long it is."""
    from . import transcript

    _check(file, session)
    _told(transcript.export(file, session, conversation, format))


@app.command()
def approve(
    file: StoreFile,
    session: SessionKey,
    call: CallId,
    *,
    conversation: InConversation = None,
    arguments_hash: Hash = None,
    json: AsJson = False,
) -> None:
    """Let a tool call run that waits for approval, with the arguments that are shown."""
    _decide(file, session, call, conversation, arguments_hash=arguments_hash, json=json, verdict="approve")


@app.command()
def deny(
    file: StoreFile,
    session: SessionKey,
    call: CallId,
    *,
    conversation: InConversation = None,
    arguments_hash: Hash = None,
    reason: Annotated[str | None, typer.Option(help="What the model is told.")] = None,
    json: AsJson = False,
) -> None:
    """Have a tool call that waits for approval answered with an error."""
    _decide(file, session, call, conversation, arguments_hash=arguments_hash, json=json, verdict="deny", reason=reason)


app.command()(serving.serve)


@app.command()
def chat(
    file: StoreFile,
    *,
    spec: Annotated[str | None, typer.Option("--app", metavar="MODULE:FACTORY", help="What makes the system.")] = None,
    model: Annotated[str | None, typer.Option(metavar="PROVIDER/ID", help="The model to talk to.")] = None,
    session: Annotated[str, typer.Option(help="The session's key.")] = "chat",
    conversation: Annotated[int | None, typer.Option(help="Another conversation than the session's root.")] = None,
) -> None:
    """Talk to an agent: own the store, stream its answers, steer it, approve its calls. Esc stops, Ctrl-D leaves."""
    from .app import AppInvalid
    from .chat import NoTerminal, talk_in_terminal

    try:
        asyncio.run(talk_in_terminal(file, spec, model=model, session=session, conversation=conversation))
    except (AppInvalid, NoTerminal) as error:
        _end(2, str(error))
    except PerdureError as error:
        _end(EXIT.get(type(error), 1) if isinstance(error, StorageError) else 1, str(error))


def _decide(
    file: Path,
    session: str,
    call: str,
    conversation: int | None,
    *,
    arguments_hash: str | None,
    json: bool,
    verdict: Literal["approve", "deny"],
    reason: str | None = None,
) -> None:
    """Leave a decision for the owner of the store, and say what has become of it."""
    found = _read(file, lambda reader: approvals.waiting(reader, session, call, conversation))
    if not found:
        _end(NO_CALL, f"no call {call!r} waits for approval in session {session!r}")
    if len(found) > 1:
        where = ", ".join(str(one.conversation_id) for one in found)
        _end(NO_CALL, f"call {call!r} waits in several conversations: {where}; name one with --conversation")
    [asked] = found
    decision = approvals.decision(asked, session, verdict, arguments_hash=arguments_hash, reason=reason)
    if json:
        sys.stdout.write(msgspec.json.encode(decision).decode() + "\n")
    else:
        typer.echo(approvals.describe(asked))
    try:
        answer = approvals.leave(file, decision)
    except OSError as error:
        _end(1, f"the decision cannot be left beside {file}: {error}")
    if answer is None:
        typer.echo("stored: it is carried out when the store's owner runs")
    elif answer.error is not None:
        _end(REFUSED, f"refused: {answer.error}")
    else:
        typer.echo("approved" if verdict == "approve" else "denied")


def _check(file: Path, session: str) -> None:
    if _read(file, lambda reader: reader.session(session)) is None:
        _end(NO_SESSION, f"{file} has no session {session!r}")


def _told(telling: Coroutine[Any, Any, None]) -> None:
    """Write a transcript; what cannot be read ends the process with its exit code."""
    try:
        asyncio.run(telling)
    except UnknownRecord as error:
        _end(NO_CONVERSATION, str(error))
    except StorageError as error:
        _end(EXIT.get(type(error), 1), str(error))


def _read(file: Path, look: Callable[[SqliteReader], Coroutine[Any, Any, Any]]) -> Any:
    """Look at a store; a store that cannot be looked at ends the process with its exit code."""

    async def run() -> Any:
        async with SqliteReader(file) as reader:
            return await look(reader)

    if not file.exists():
        _end(NO_FILE, f"{file} does not exist")
    try:
        return asyncio.run(run())
    except StorageError as error:
        _end(EXIT.get(type(error), 1), str(error))


def _print(store: picture.Store, show: Show, *, json: bool) -> None:
    if json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(store)).decode() + "\n")
    else:
        show(store, screen.console())


def _end(code: int, message: str) -> NoReturn:
    typer.echo(f"perdure: {message}", err=True)
    raise typer.Exit(code)
