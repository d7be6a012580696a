import asyncio
import subprocess
import sys

import pytest
from perdure.actors import models
from perdure.actors.models import Models, ModelUnavailable, ScriptedModel, from_env


def fake(name):
    return ScriptedModel(lambda _: "hi", name=name)


def test_models_are_found_by_name():
    one, two = fake("a/one"), fake("a/two")
    register = Models(one, two)
    assert register.get("a/one") is one
    assert register.get("a/three") is None
    assert register.resolve(two) is two
    assert register.resolve("a/two") is two
    assert register.names() == ["a/one", "a/two"]


def test_an_unknown_model_is_named_with_a_near_one():
    """GE-02."""
    with pytest.raises(ModelUnavailable, match=r"Model faux/missing is not available$"):
        Models().resolve("faux/missing")
    with pytest.raises(ModelUnavailable, match="did you mean faux/model"):
        Models(fake("faux/model")).resolve("faux/modle")


def test_a_provider_makes_its_models_once_on_demand():
    made = []
    register = Models()
    register.provide("lab", lambda model_id: made.append(model_id) or fake(f"lab/{model_id}"))
    assert made == []
    assert register.get("lab/org/big") is register.get("lab/org/big")
    assert made == ["org/big"]
    assert register.get("lab/") is None
    assert register.get("other/x") is None


def test_the_environment_says_which_providers_there_are(monkeypatch):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "ANTHROPIC_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    assert from_env().get("anthropic/claude-opus-5-5") is None
    monkeypatch.setenv("ANTHROPIC_API_KEY", "secret")
    model = from_env().get("anthropic/claude-opus-5-5")
    assert (model.name, model.api) == ("anthropic/claude-opus-5-5", "anthropic-messages")
    assert (model.context_window, model.max_tokens) == (1_000_000, 128_000)
    assert "secret" not in repr(vars(model))


def test_what_is_known_of_a_model_can_be_overridden():
    model = models.anthropic("my-model", context_window=8_192, max_tokens=1_000, provider="lab")
    assert (model.name, model.context_window, model.max_tokens) == ("lab/my-model", 8_192, 1_000)
    dated = models.anthropic("claude-haiku-4-5-20251001")
    assert (dated.context_window, dated.max_tokens) == (200_000, 64_000)


def test_closing_a_register_closes_what_it_made():
    closed = []
    model = fake("a/one")

    async def aclose():
        closed.append("a/one")

    model.aclose = aclose
    asyncio.run(Models(model).aclose())
    assert closed == ["a/one"]


def test_importing_models_imports_no_sdk():
    code = (
        "import sys, perdure.actors.models as m; m.anthropic('x'); m.from_env();"
        "print([n for n in ('anthropic', 'openai', 'pydantic', 'jiter', 'httpx2', 'genai_prices') if n in sys.modules])"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_every_exported_name_exists_once_and_sorted():
    assert models.__all__ == sorted(models.__all__)
    assert len(set(models.__all__)) == len(models.__all__)
    assert all(hasattr(models, name) for name in models.__all__)
