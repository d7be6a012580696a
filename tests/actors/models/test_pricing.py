import sys
from types import ModuleType, SimpleNamespace

import pytest
from perdure.actors.models import AssistantMessage, Usage, pricing

MESSAGE = AssistantMessage(
    content=[],
    provider="anthropic",
    model="asked",
    response_model="served",
    usage=Usage(input=1, output=2, cache_read=4, cache_write=8, cache_write_1h=3, total_tokens=15),
)


@pytest.fixture
def price_list(monkeypatch):
    """Stands for the genai_prices module; knows one model."""
    module = ModuleType("genai_prices")
    module.Usage = lambda **counts: counts
    module.asked = []

    def calc_price(usage, model, provider_id):
        module.asked.append((usage, model, provider_id))
        if model != "served":
            raise LookupError(model)
        return SimpleNamespace(input_price=0.25, output_price=0.5, total_price=0.75)

    module.calc_price = calc_price
    monkeypatch.setitem(sys.modules, "genai_prices", module)
    pricing.load.cache_clear()
    yield module
    pricing.load.cache_clear()


def test_a_known_model_is_priced(price_list):
    cost = pricing.priced(MESSAGE).usage.cost
    assert (cost.input, cost.output, cost.total, cost.priced) == (0.25, 0.5, 0.75, True)
    ((usage, model, provider),) = price_list.asked
    assert (model, provider) == ("served", "anthropic")
    # The list's input includes what the cache read and wrote.
    assert usage == {
        "input_tokens": 13,
        "output_tokens": 2,
        "cache_read_tokens": 4,
        "cache_write_tokens": 8,
        "cache_write_1h_tokens": 3,
    }


def test_an_unknown_model_costs_nothing_that_is_known(price_list):
    unknown = AssistantMessage(content=[], model="unknown")
    assert pricing.priced(unknown) is unknown
    assert not unknown.usage.cost.priced


def test_without_the_list_nothing_is_priced(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    pricing.load.cache_clear()
    assert pricing.priced(MESSAGE) is MESSAGE
    pricing.load.cache_clear()
