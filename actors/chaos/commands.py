"""The command line of the crash explorer and of simulation: ``python -m perdure.testing``.

    explore [SCENARIO ...] [--backend memory] [--pairs 20] [--actors 20] [--seed 0]     crash at every point
    replay SCENARIO BACKEND [CRASH ...]                                                 run one failure again
    simulate [SCENARIO] [--seconds 60] [--seed 0]                                       as many seeds as there is time for
    simulate [SCENARIO] --seed 7                                                        run one seed again
    scenarios                                                                           list the shipped ones

A scenario is a shipped one's name, or "file.py:Class". Ends with status 1 when something did not hold.
Proved by tests/actors/chaos/test_commands.py.
"""

import time
from typing import Annotated, get_args

import typer

from .backends import BackendName
from .explorer import explore, replay
from .names import find
from .points import Crash
from .scenarios import SHIPPED
from .seeds import report, simulate_seeds
from .simulation import simulate
from .workload import Office

app = typer.Typer(
    add_completion=False, no_args_is_help=True, help="Crash scenarios at every point, and hold what must hold."
)

Backend = Annotated[str, typer.Option(help=f"Where the store is: {', '.join(get_args(BackendName))}.")]


@app.command("explore")
def explore_command(
    names: Annotated[list[str] | None, typer.Argument(metavar="[SCENARIO]...")] = None,
    backend: Backend = "memory",
    pairs: Annotated[int, typer.Option(help="Pairs of points to crash at, beside all single points.")] = 0,
    actors: Annotated[int, typer.Option(help="Single actors to kill at points.")] = 0,
    seed: Annotated[int, typer.Option(help="Decides which pairs and actors.")] = 0,
) -> None:
    """Crash scenarios (default: all shipped ones) at every point."""
    failed = False
    for name in names or SHIPPED:
        found = explore(find(name), backend=_backend(backend), pairs=pairs, actors=actors, seed=seed)
        typer.echo(str(found))
        for failure in found.failures:
            typer.echo(str(failure))
        failed = failed or bool(found.failures)
    raise typer.Exit(failed)


@app.command("replay")
def replay_command(
    name: Annotated[str, typer.Argument(metavar="SCENARIO")],
    backend: Annotated[str, typer.Argument()],
    crashes: Annotated[list[str] | None, typer.Argument(metavar="[CRASH]...")] = None,
) -> None:
    """Run a scenario with exactly these crashes, one in each life, and print its trace and what did not hold."""
    report = replay(find(name), _backend(backend), [Crash.parse(one) for one in crashes or ()])
    for line in report.trace.lines():
        typer.echo(line)
    typer.echo(f"{report.crashed} crashes, {len(report.violations)} violations, trace {report.trace.digest()}")
    for violation in report.violations:
        typer.echo(f"  {violation}")
    raise typer.Exit(bool(report.violations))


@app.command("simulate")
def simulate_command(
    name: Annotated[str | None, typer.Argument(metavar="[SCENARIO]")] = None,
    seed: Annotated[
        int | None, typer.Option(help="The only seed, or the first of many; default: one not used before.")
    ] = None,
    seconds: Annotated[float | None, typer.Option(help="For how long.")] = None,
    seeds: Annotated[int | None, typer.Option(help="How many seeds.")] = None,
) -> None:
    """Simulate a scenario (default: an office that does a bit of everything); a seed alone prints its trace."""
    scenario = Office if name is None else find(name)
    if seed is not None and seconds is None and seeds is None:
        run = simulate(seed, scenario)
        lines, failed = report(run), bool(run.violations)
    else:
        first = int(time.time()) * 100_000 if seed is None else seed
        found = simulate_seeds(scenario, first=first, seeds=seeds, seconds=seconds if seeds or seconds else 60.0)
        lines, failed = map(str, [found, *found.broken]), bool(found.broken)
    for line in lines:
        typer.echo(line)
    raise typer.Exit(failed)


@app.command("scenarios")
def scenarios_command() -> None:
    """List the shipped scenarios."""
    for name, scenario in SHIPPED.items():
        typer.echo(f"{name:<12} {(scenario.__doc__ or '').splitlines()[0]}")


def _backend(name: str) -> BackendName:
    known: tuple[BackendName, ...] = get_args(BackendName)
    for one in known:
        if one == name:
            return one
    raise typer.BadParameter(f"expected one of {', '.join(known)}, got: {name}")
