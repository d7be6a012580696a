"""perdure inside a program of threads that knows nothing of asyncio: a shop with counters and one back office.

The counters are the program's own Pykka actors, each in a thread. They hold a ref to the office, an actor on perdure's loop, and
ask it as they ask each other. Kill the program anywhere and run it again: each order is answered once.
"""

import sys
from collections.abc import Callable

import perdure
import pykka
from perdure.models import ModelRequest, ToolCall, UserMessage, call, plain_text

ORDERS = {"ada": "2 apples", "bob": "7 pears", "eve": "1 melon"}


@perdure.tool(replay="safe")
def price(order: str) -> str:
    """Tell what an order costs."""
    return f"{order}: {int(order.partition(' ')[0]) * 3} euros"


def brain(request: ModelRequest) -> str | ToolCall:  # plays the model; a real one is "anthropic/..."
    last = request.messages[-1]
    said = plain_text(last.content)
    return call("price", order=said) if isinstance(last, UserMessage) else said


class Office(perdure.Actor):
    """Lives on perdure's loop; has each customer's order answered in a session of the customer's own."""

    def __init__(self, system: perdure.System) -> None:
        self._perdure = system

    async def on_receive(self, message: tuple[str, str]) -> perdure.Submission:
        customer, order = message
        root = await (await self._perdure.session(customer)).root(agent=perdure.Agent(model="scripted/model"))
        return await root.submit(order, request_id=order)


class Counter(pykka.ThreadingActor):
    """Lives in a thread of its own and serves one customer after the other."""

    def __init__(self, office: pykka.ActorRef[Office], wait: Callable[[perdure.Submission], perdure.Settled]) -> None:
        super().__init__()
        self._office, self._wait = office, wait

    def on_receive(self, message: tuple[str, str]) -> str:
        return self._wait(self._office.ask(message)).text


def main(file: str) -> None:
    shop = perdure.Extension(name="shop", tools=[price])
    with perdure.System.background(file, models=[perdure.ScriptedModel(brain)], extensions=[shop]) as background:
        office = background.call(lambda system: system.spawn(Office, system, id="office"))
        counters = [Counter.start(office, lambda sent: background.call(lambda _: sent.wait())) for _ in range(2)]
        asked = [counters[n % 2].ask(order, block=False) for n, order in enumerate(ORDERS.items())]
        for customer, answer in zip(ORDERS, pykka.get_all(asked, timeout=30), strict=True):
            print(f"{customer}: {answer}")
        pykka.ActorRegistry.stop_all()


main(sys.argv[1] if len(sys.argv) > 1 else "shop.db")
