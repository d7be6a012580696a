"""The coding tools as an extension: ``read``, ``write``, ``edit`` and ``bash`` in a conversation's environment.

Built on what any extension could use. Proved by tests/actors/tools/test_coding.py.
"""

import os

from msgspec.structs import replace

from ..agent.output import OutputLimits
from ..agent.registry import Extension, PromptInput, Section
from .bash import bash_tool
from .edit import edit_tool
from .environment import Environment
from .local import LocalEnvironment
from .places import EnvironmentOf, environment_of
from .read import read_tool
from .write import write_tool


def coding_tools(
    where: str | os.PathLike[str] | Environment | EnvironmentOf = ".",
    *,
    name: str = "coding",
    limits: OutputLimits | None = None,
    bash_timeout_s: float | None = None,
) -> Extension:
    """Make an extension with ``read``, ``write``, ``edit`` and ``bash``, and a section that names the working directory.

    ``where`` is a directory of this machine, an environment, or a function that gives the environment of a conversation.
    ``limits`` bound what a call shows of a file or of output (default: 50 KiB and 2,000 lines). Only ``read`` runs again
    after a crash; a command that a crash cut off is killed when its call is answered as interrupted.
    """
    given = LocalEnvironment(where) if isinstance(where, str | os.PathLike) else where
    bounds = limits or OutputLimits()

    async def cwd(about: PromptInput) -> str:
        return (await environment_of(given, about)).cwd

    tools = [
        read_tool(given, replace(bounds, retain="head")),
        write_tool(given),
        edit_tool(given),
        bash_tool(given, replace(bounds, retain="tail"), bash_timeout_s),
    ]
    return Extension(name=name, tools=tools, sections=[Section("cwd", cwd)])
