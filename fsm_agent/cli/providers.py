"""The models that a command can name, each made when it is used."""

from __future__ import annotations

import importlib
from typing import Any

from fsm_agent.cli.named import attribute_named, reading
from fsm_agent.core.errors import BuildError, MissingExtra
from fsm_agent.host.model_decider import is_model

NAMES = "offline, openai:NAME, responses:NAME, anthropic:NAME, or module:attribute of your own"


def model_named(name: str, base_url: str | None = None) -> Any:
    """The model of a name; raises BuildError, naming what there is, and MissingExtra where its package is missing.

    Keys come from the environment, as the provider's own client reads them; `base_url` serves vLLM, Ollama, llama.cpp and the like.
    """
    kind, _, rest = name.partition(":")
    if kind == "offline" and not rest:
        from fsm_agent.models.offline import OfflineModel

        return OfflineModel()
    if kind in ("openai", "responses") and rest:
        client = _client("openai", "OpenAI", "openai", base_url)
        if kind == "openai":
            from fsm_agent.models.openai_chat import OpenAIChat

            return OpenAIChat(client, rest)
        from fsm_agent.models.openai_responses import OpenAIResponses

        return OpenAIResponses(client, rest)
    if kind == "anthropic" and rest:
        from fsm_agent.models.anthropic_messages import AnthropicMessages

        return AnthropicMessages(_client("anthropic", "Anthropic", "anthropic", base_url), rest)
    if rest:
        found = attribute_named(name)
        with reading(repr(name)):
            model = found() if isinstance(found, type) else found
            if is_model(model) or callable(model):
                return model
        raise BuildError(f"{name!r} is a {type(model).__name__:.60}; a model has a method reply, a decider is a function")
    raise BuildError(f"there is no model {name!r}; take {NAMES}")


def _client(package: str, kind: str, extra: str, base_url: str | None) -> Any:
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra(package, extra, f"a model of {package}") from error
    try:
        # Whether and when a request is made again is the run's own business.
        return getattr(module, kind)(max_retries=0, **({"base_url": base_url} if base_url else {}))
    except Exception as error:
        raise BuildError(f"the client of {package} cannot be made: {error}") from error
