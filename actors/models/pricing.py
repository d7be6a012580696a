"""What a request cost, by the price list of `genai-prices` where that package is installed.

It is optional: without it, or for a model that it does not know, the cost is zero and marked as not priced.
"""

import functools
import importlib
from typing import Any

from msgspec.structs import replace

from .messages import AssistantMessage, Cost, Usage


@functools.cache
def load() -> Any:
    """The price list's module, or None where it is not installed. Importing it takes up to a second, once."""
    try:
        return importlib.import_module("genai_prices")
    except ImportError:
        return None


def priced(message: AssistantMessage) -> AssistantMessage:
    """The message with its usage priced, if it can be."""
    cost = _cost(message.usage, message.response_model or message.model, message.provider)
    return message if cost is None else replace(message, usage=replace(message.usage, cost=cost))


def _cost(usage: Usage, model: str, provider: str) -> Cost | None:
    prices = load()
    if prices is None:
        return None
    try:
        price = prices.calc_price(_counted(prices, usage), model, provider_id=provider)
    except LookupError:
        return None
    # The list tells input from output; what reading and writing the cache cost is part of its input.
    return Cost(
        input=float(price.input_price),
        output=float(price.output_price),
        total=float(price.total_price),
        priced=True,
    )


def _counted(prices: Any, usage: Usage) -> Any:
    return prices.Usage(
        input_tokens=usage.input + usage.cache_read + usage.cache_write,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        cache_write_1h_tokens=usage.cache_write_1h,
        output_tokens=usage.output,
    )
