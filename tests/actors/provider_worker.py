"""The process that test_killed_retries.py kills: an agent on a real SDK, whose first request goes wrong."""

import asyncio
import importlib
import sys

import perdure


async def main(dialect, url, store):
    dialects = importlib.import_module("perdure.actors.models.factories")
    model = {
        "anthropic": lambda: dialects.anthropic("claude-opus-5-5", api_key="key", base_url=url),
        "chat": lambda: dialects.openai_chat("gpt", api_key="key", base_url=f"{url}/v1"),
        "responses": lambda: dialects.openai("gpt-6-sol", api_key="key", base_url=f"{url}/v1"),
    }[dialect]()
    settings = perdure.Settings(retry=perdure.RetryPolicy(base_delay_ms=2_000, jitter=0.0))
    async with perdure.System.open(store, models=[model], settings=settings) as system:
        root = await (await system.session("s")).root(agent=perdure.Agent(model=model.name))
        asked = await root.submit("Hi", request_id="once")
        async with await root.watch() as watch:
            value = watch.value
            while "run" in value["docs"]["pi.live"] and "retry" not in value["docs"]["pi.live"].get("generation", {}):
                value, _ = await anext(watch)
            if "retry" in value["docs"]["pi.live"].get("generation", {}):
                print("waiting", value["docs"]["pi.live"]["generation"]["retry"]["at"], flush=True)
        print("answered", (await asked.wait()).text, flush=True)
    await model.aclose()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
