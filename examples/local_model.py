"""An agent with one tool on a model of your own: any server that speaks the OpenAI API (llama.cpp, vLLM, Ollama, ...).

    python examples/local_model.py http://127.0.0.1:8080/v1 [model] [store]

Kill it at any time and start it again: it goes on where it was, and asks the model nothing twice that it has answered.
"""

import asyncio
import sys

import perdure

STOCK = {"apples": 12, "pears": 0}


@perdure.tool(replay="safe")
async def stock(fruit: str) -> str:
    """Tell how many of a fruit are in stock."""
    return f"{STOCK.get(fruit.lower().rstrip('s') + 's', 0)} in stock"


async def main(base_url: str, model_id: str = "local", store: str = "local_model.db") -> None:
    model = perdure.models.openai_chat(
        model_id, base_url=base_url, provider="local", context_window=4_096, max_tokens=120
    )
    shop = perdure.Extension(name="shop", tools=[stock])
    async with perdure.System.open(store, models=[model], extensions=[shop]) as system:
        root = await (await system.session("shop")).root(agent=perdure.Agent(model=f"local/{model_id}"))
        question = await root.submit("How many apples are in stock? Use the stock tool.", request_id="apples")
        settled = await question.wait()
        for entry in (await root.entries(order="ascending")).items:
            for message in entry.model or []:
                if message["role"] == "toolResult":
                    print(f"{message['toolName']}: {message['content'][0]['text']}")
        print(settled.answer.text if settled.answer else f"no answer: {settled.reason}: {settled.detail}")


asyncio.run(main(*sys.argv[1:]))
