"""The description says what the code does, since it is made of the same types."""

import msgspec
from perdure.actors.gateway.commands import COMMANDS
from perdure.actors.gateway.description import CODES, describe
from perdure.actors.gateway.reads import QUERIES
from perdure.actors.gateway.refusals import STATUS

from .support import go, opened, served


def test_every_command_read_and_status_is_described():
    described = describe()
    assert set(described["paths"]) == {f"/api/{name}" for name in [*COMMANDS, *QUERIES, "health"]}
    assert {str(status) for status in STATUS.values()} <= set(CODES)
    submit = described["components"]["schemas"]["Submit"]
    assert submit["additionalProperties"] is False
    assert set(submit["required"]) == {"session", "requestId", "conversation", "content"}
    entries = described["paths"]["/api/entries"]["get"]["parameters"]
    assert {one["name"] for one in entries if one["required"]} == {"session", "conversation"}


def test_every_reference_leads_somewhere():
    described = describe()
    text = msgspec.json.encode(described).decode()
    named = {piece.partition('"')[0] for piece in text.split("#/components/schemas/")[1:]}
    assert named <= set(described["components"]["schemas"])


def test_it_is_served():
    async def main():
        async with opened() as system, served(system) as door:
            assert (await door.http.get("/openapi.json")).json() == describe()

    go(main)
