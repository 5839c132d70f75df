"""What is checked of a client and its options when a model is made."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import openai
import pytest

from fsm_agent.core.errors import BuildError
from fsm_agent.models.clients import creator, free_options, takes


def create(*, model: str, temperature: float = 0.0) -> None:
    """A method with named parameters."""


def anything(**options: Any) -> None:
    """A method that takes whatever it gets."""


class Opaque:
    """A callable that does not say what it takes."""

    @property
    def __signature__(self) -> Any:
        raise ValueError

    def __call__(self, **options: Any) -> None:
        """Nothing."""


def test_the_method_is_found_at_its_path() -> None:
    assert creator(SimpleNamespace(chat=SimpleNamespace(create=create)), "chat.create") is create


WRONG = [None, "gpt", SimpleNamespace(), SimpleNamespace(chat=None), SimpleNamespace(chat=SimpleNamespace(create=4))]


@pytest.mark.parametrize("client", WRONG)
def test_a_client_without_it_is_refused(client: Any) -> None:
    with pytest.raises(BuildError, match=r"which has no chat\.create\(\); give the SDK's client object itself"):
        creator(client, "chat.create")


@pytest.mark.parametrize(
    ("method", "name", "does"),
    [(create, "model", True), (create, "odd", False), (anything, "odd", True), (Opaque(), "odd", True), (4, "odd", True)],
)
def test_a_method_takes_what_it_says(method: Any, name: str, does: bool) -> None:
    assert takes(method, name) is does


def test_an_sdks_overloaded_method_says_what_it_takes() -> None:
    with openai.OpenAI(api_key="x") as client:
        assert takes(client.chat.completions.create, "temperature")
        assert not takes(client.chat.completions.create, "odd")


def test_options_are_the_hosts_own() -> None:
    given = {"temperature": 1.0}
    free = free_options(create, given, ("model",))

    assert free == given
    assert free is not given
    with pytest.raises(BuildError, match="the option 'model' is set by each request"):
        free_options(create, {"model": "m"}, ("model",))
    with pytest.raises(BuildError, match=r"takes no 'odd'; leave it out, or give extra_body=\{'odd': \.\.\.\}"):
        free_options(create, {"odd": 1}, ("model",))
