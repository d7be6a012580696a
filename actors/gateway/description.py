"""The gateway's HTTP interface in OpenAPI's terms, made of the types that requests are read with.

Proved by tests/actors/gateway/test_description.py.
"""

from typing import Any

import msgspec

from .commands import COMMANDS
from .following import Subject
from .reads import QUERIES

REF = "#/components/schemas/{name}"
CODES = {
    "400": "perdure refuses it",
    "401": "the token is missing or wrong",
    "403": "from a foreign page, or by a foreign name",
    "404": "there is no such thing",
    "409": "it cannot be done as things stand",
    "413": "too large",
    "415": "not JSON",
    "422": "not what the description asks for",
    "429": "too many requests, or a full inbox",
    "503": "uncertain: send it again",
}
ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["code", "message"],
            "properties": {
                "code": {"type": "string"},
                "message": {"type": "string"},
                "retryAfter": {"type": "number", "description": "Seconds."},
            },
        }
    },
}


def describe() -> dict[str, Any]:
    """Give the whole description."""
    read: list[type[msgspec.Struct]] = [*QUERIES.values(), Subject]
    _, schemas = msgspec.json.schema_components([*COMMANDS.values(), *read], ref_template=REF)
    commands = {f"/api/{name}": {"post": _post(name, one)} for name, one in COMMANDS.items()}
    reads = {f"/api/{name}": {"get": _get(name, schemas[one.__name__])} for name, one in QUERIES.items()}
    for kind in read:
        schemas.pop(kind.__name__, None)
    for command in COMMANDS.values():
        schemas[command.__name__]["required"].remove("type")  # the path says it
    return {
        "openapi": "3.1.0",
        "info": {"title": "perdure gateway", "version": "1"},
        "security": [{"token": []}],
        "components": {
            "schemas": schemas | {"Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "paths": commands | reads | {"/api/health": {"get": _health()}},
    }


def _post(name: str, kind: type[msgspec.Struct]) -> dict[str, Any]:
    body = {"$ref": REF.format(name=kind.__name__)}
    return {
        "operationId": name,
        "summary": kind.__doc__,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": _responses("The receipt: the same whenever the command is sent again."),
    }


def _get(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    required = schema.get("required", [])
    return {
        "operationId": name,
        "summary": schema.get("description", ""),
        "parameters": [
            {"name": field, "in": "query", "required": field in required, "schema": _plain(shape)}
            for field, shape in schema["properties"].items()
        ],
        "responses": _responses("What was asked for."),
    }


def _plain(shape: dict[str, Any]) -> dict[str, Any]:
    """A parameter that is left out is null: its schema is that of its text."""
    given = [one for one in shape.get("anyOf", []) if one != {"type": "null"}]
    return given[0] if len(given) == 1 else {name: part for name, part in shape.items() if name != "default"}


def _health() -> dict[str, Any]:
    responses = _responses("It is there.")
    return {"operationId": "health", "summary": "Tell that it is there.", "security": [], "responses": responses}


def _responses(fine: str) -> dict[str, Any]:
    error = {"content": {"application/json": {"schema": {"$ref": REF.format(name="Error")}}}}
    return {
        "200": {"description": fine, "content": {"application/json": {"schema": {}}}},
        **{code: {"description": why, **error} for code, why in CODES.items()},
    }
