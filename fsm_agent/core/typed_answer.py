"""A final answer of a declared form: the model's text is decoded, measured like a result, and built into what was asked for."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from fsm_agent.core.contracts import ArgumentsContract
from fsm_agent.core.decoding import strict_json, without_fence
from fsm_agent.core.errors import BuildError, FsmAgentError
from fsm_agent.core.plain import short, storable

_NAME = "answer"
_MOST_FAULTS = 20


@attrs.frozen(eq=False)
class TypedAnswer:
    """The contract of a final answer, as the contract of one argument named ``answer``, and how its value is built."""

    contract: ArgumentsContract
    build: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None

    @property
    def schema(self) -> Mapping[str, Any]:
        """The JSON Schema of the text that the model has to write."""
        whole = self.contract.json_schema()
        schema: dict[str, Any] = dict(whole.get("properties", {}).get(_NAME, {}))
        return {**schema, "$defs": whole["$defs"]} if "$defs" in whole else schema

    def read(self, text: str) -> tuple[Any, str]:
        """The plain value that a text holds, and an empty text; or None, and every fault."""
        decoded = _decoded(text)
        # Where a text is wanted, it may be one that happens to be JSON as well.
        for value in (decoded, text):
            args = {_NAME: value}
            if not self.contract.first_fault(args):
                return self._built(storable(value))
        return None, "; ".join(map(str, self.contract.faults({_NAME: decoded})[:_MOST_FAULTS]))

    def _built(self, value: Any) -> tuple[Any, str]:
        """The value, where the class that was asked for takes it too; its own validators may not."""
        try:
            self.made(value)
        except Exception as error:
            return None, short(f"{type(error).__name__}: {error}", 300)[1:-1]
        return value, ""

    def made(self, value: Any) -> Any:
        """The value in the form that was asked for: an instance of the class, or plain data as it is."""
        if self.build is None or value is None:
            return value
        return self.build({_NAME: value})[_NAME]


def typed_answer(form: Any) -> TypedAnswer:
    """The contract of an answer given as JSON Schema (a mapping) or as a type: an attrs or Pydantic class, or any annotation.

    Raises BuildError for what is neither.
    """
    try:
        if isinstance(form, Mapping):
            from fsm_agent.core.schemas import arguments_contract

            inner = {name: part for name, part in form.items() if name != "$defs"}
            whole = {"type": "object", "properties": {_NAME: inner}, "required": [_NAME], "additionalProperties": False}
            return TypedAnswer(arguments_contract({**whole, "$defs": form["$defs"]} if "$defs" in form else whole, _NAME))
        from fsm_agent.core.signatures import argument_builder, arguments_of

        def shape(**answer: Any) -> None:
            """Give the answer."""

        parameter = inspect.Parameter(_NAME, inspect.Parameter.KEYWORD_ONLY, annotation=form)
        shape.__signature__ = inspect.Signature([parameter])  # type: ignore[attr-defined]
        shape.__annotations__, shape.__qualname__ = {_NAME: form}, _NAME
        return TypedAnswer(arguments_of(shape), argument_builder(shape))
    except FsmAgentError as error:
        # What was given is the whole schema, not a part of the one that is made of it.
        raise BuildError(f"answer={short(form, 60)}: {str(error).replace(f'#/properties/{_NAME}', '#')}") from error


def _decoded(text: str) -> Any:
    try:
        return strict_json(without_fence(text))
    except (ValueError, RecursionError):
        return text
