"""``perdure serve``: a daemon with a door for people. Proved by tests/actors/gateway/test_serving.py."""

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ...chord.errors import PerdureError

if TYPE_CHECKING:
    from ..gateway.serving import Served

WRONG_USAGE = 2

Spec = Annotated[str | None, typer.Option("--app", metavar="MODULE:FACTORY", help="What makes the system.")]
Model = Annotated[str | None, typer.Option(metavar="PROVIDER/ID", help="The model of new conversations.")]
Idle = Annotated[
    bool, typer.Option("--exit-when-idle", help="End when nobody is connected and nothing runs or is due soon.")
]
IdleAfter = Annotated[float, typer.Option("--idle-after", help="How long that has to last, in seconds.")]
TokenFile = Annotated[Path | None, typer.Option(help="Keeps the token, so that it stays the same; made when missing.")]
DeadlineFile = Annotated[
    Path | None, typer.Option(help="Where --exit-when-idle leaves the next deadline; default: FILE.deadline.")
]
AllowHost = Annotated[list[str], typer.Option(help="A name under which others may come; may be given several times.")]


def serve(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The store's SQLite file; made when missing.")],
    *,
    spec: Spec = None,
    model: Model = None,
    host: Annotated[str, typer.Option(help="Where to listen; only this machine by default.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8420,
    allow_host: AllowHost = [],  # noqa: B006 - typer reads it and never changes it
    token_file: TokenFile = None,
    exit_when_idle: Idle = False,
    idle_after: IdleAfter = 60.0,
    deadline_file: DeadlineFile = None,
) -> None:
    """Serve a store to browsers and programs, for whoever has the token that is printed."""
    from ..gateway import serving
    from .app import AppInvalid, open_app

    def ready(at: str, where: int) -> None:
        shown = f"[{at}]" if ":" in at else at
        typer.echo(f"perdure: serving {file} at http://{shown}:{where}/#token={token}")

    async def run() -> "Served":
        serving.check(host, allow_host)
        async with open_app(file, spec, model=model) as app:
            served = await serving.serve(
                app.system,
                token=token,
                host=host,
                port=port,
                hosts=allow_host,
                agent=app.agent,
                limits=app.limits,
                clock=app.clock,
                exit_when_idle_s=idle_after if exit_when_idle else None,
                ready=ready,
            )
            await app.system.close(grace_s=serving.GRACE_S)
            return served

    try:
        token = serving.token_of(token_file)
        served = asyncio.run(run())
    except (PerdureError, OSError) as error:
        typer.echo(f"perdure: {error}", err=True)
        raise typer.Exit(WRONG_USAGE if isinstance(error, AppInvalid) else 1) from None
    if served.idle:
        serving.leave_deadline(deadline_file or file.with_name(file.name + ".deadline"), served)
        typer.echo(f"perdure: idle, next deadline: {_said(served.next_deadline)}")


def _said(deadline: int | None) -> str:
    from ..gateway.serving import when

    return "none" if deadline is None else when(deadline)
