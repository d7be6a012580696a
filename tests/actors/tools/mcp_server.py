"""A real MCP server for the tests: ``mcp_server.py FOLDER`` over stdio, ``mcp_server.py FOLDER PORT`` over HTTP.

It writes down every call of ``count`` in a file before it does anything else.
"""

import os
import signal
import sys
from pathlib import Path

import anyio
from mcp.server.mcpserver import MCPServer
from mcp_types import EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents
from pydantic import BaseModel

FOLDER = Path(sys.argv[1])
server = MCPServer("kit", log_level="CRITICAL")
GIF = "R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


class Weather(BaseModel):
    city: str
    degrees: int


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
def weather(city: str) -> Weather:
    """Tell the weather."""
    return Weather(city=city, degrees=21)


@server.tool(structured_output=False)
def show(bad: bool = False) -> list:
    """Show things of every kind."""
    return [
        TextContent(text="a text"),
        ImageContent(data="AAAA" if bad else GIF, mime_type="image/gif"),
        ResourceLink(name="manual", uri="file:///manual"),
        EmbeddedResource(resource=TextResourceContents(uri="x:y", text="inside")),
    ]


@server.tool()
def fail(why: str) -> str:
    """Fail."""
    raise ValueError(why)


@server.tool(name="odd.name/with spaces")
def odd() -> str:
    """Have an odd name."""
    return "odd"


@server.tool()
async def count(then: str = "answer") -> str:
    """Count, then answer, wait or die."""
    with (FOLDER / "counted").open("a") as file:
        file.write(f"{os.getpid()}\n")
    lives = len((FOLDER / "counted").read_text().splitlines())
    if then == "die" or (then == "die once" and lives == 1):
        os.kill(os.getpid(), signal.SIGKILL)
    if then == "wait":
        await anyio.sleep_forever()
    return f"counted {lives}"


@server.tool(structured_output=False)
def environment() -> str:
    """Show the server's variables."""
    return "\n".join(f"{name}={value}" for name, value in os.environ.items())


if (FOLDER / "more").exists():

    @server.tool()
    def extra() -> str:
        """Be there from the second life on."""
        return "extra"


if __name__ == "__main__":
    (FOLDER / "pid").write_text(f"{os.getpid()}\n")
    if len(sys.argv) > 2:
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
