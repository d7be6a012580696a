"""perdure inside a FastAPI application: the system opens and closes with it, and shares its loop.

    pip install fastapi uvicorn
    uvicorn --app-dir examples embed_fastapi:app
    curl -N localhost:8000/chats/ada/events &
    curl localhost:8000/chats/ada -H 'content-type: application/json' -d '{"text": "hello", "request_id": "r1"}'

Sending the same request_id again gives the same answer. For a whole gateway with a web page, see perdure.gateway.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import perdure
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from perdure.models import ModelRequest, plain_text
from pydantic import BaseModel

MODEL = os.environ.get("MODEL", "scripted/model")  # or "anthropic/...", with its key in the environment


def brain(request: ModelRequest) -> str:  # plays the model
    return f"You said: {plain_text(request.messages[-1].content)}"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    models = perdure.models.from_env()
    models.add(perdure.ScriptedModel(brain))
    async with perdure.System.open(os.environ.get("AGENTS_DB", "agents.db"), models=models) as system:
        app.state.perdure = system
        yield


app = FastAPI(lifespan=lifespan)


class Said(BaseModel):
    text: str
    request_id: str | None = None


async def conversation(request: Request, key: str) -> perdure.Conversation:
    session = await request.app.state.perdure.session(key)
    return await session.root(agent=perdure.Agent(model=MODEL))


@app.post("/chats/{key}")
async def say(request: Request, key: str, said: Said) -> dict[str, object]:
    """Submit, and answer when the agent has: a client that has lost patience sends the same request_id again."""
    try:
        submission = await (await conversation(request, key)).submit(said.text, request_id=said.request_id)
        settled = await submission.wait()
    except (perdure.InvalidValue, perdure.SubmissionTooLarge) as error:
        raise HTTPException(422, str(error)) from None
    except (perdure.InboxFull, perdure.SessionFailed) as error:
        raise HTTPException(503, str(error)) from None
    return {"submission": submission.id, "answer": settled.text if settled.answer else None, "reason": settled.reason}


@app.get("/chats/{key}/events")
async def events(request: Request, key: str) -> StreamingResponse:
    """Stream what happens as server-sent events, a snapshot first. A slow client gets a new snapshot, never a long queue."""
    watched = await (await conversation(request, key)).watch_events()

    async def lines() -> AsyncIterator[bytes]:
        async with watched:
            async for event in watched:
                yield b"data: " + msgspec.json.encode(event) + b"\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream")
