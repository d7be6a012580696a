"""The commands. Exit codes tell apart what a script may want to: see ``EXIT``."""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, Any, NoReturn

import msgspec
import typer

from ...storage.errors import SchemaTooNew, StorageCorrupt, StorageError
from ...storage.sqlite_reader import SqliteReader
from . import picture, screen

EXIT: dict[type[StorageError], int] = {StorageCorrupt: 4, SchemaTooNew: 5}
"""1 any other trouble with the store, 2 wrong usage, 3 no such file, 4 damaged or not a store, 5 newer schema,
6 no such session."""
NO_FILE, NO_SESSION = 3, 6

Show = Callable[[picture.Store, Any], None]
StoreFile = Annotated[Path, typer.Argument(metavar="FILE", help="The store's SQLite file.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

app = typer.Typer(
    name="perdure",
    help="Look into a store without disturbing its owner, alive or dead.",
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
