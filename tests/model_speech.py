"""One reply in the words of each protocol, whole and streamed, and what each protocol refuses in a request."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import attrs


@attrs.frozen(kw_only=True)
class Said:
    """What the model says in one reply, in words of no provider; `calls` are of id, name and the text of the arguments.

    `thinks` stands before the text, in the provider's own words, and `between` behind the first call.
    """

    text: str = ""
    calls: tuple[tuple[str, str, str], ...] = ()
    finish: str = ""
    refusal: str = ""
    tokens: tuple[int, int] = (11, 7)
    thinks: tuple[dict[str, Any], ...] = ()
    between: tuple[dict[str, Any], ...] = ()


def of_path(path: str) -> Any:
    """The protocol that is spoken at a path."""
    return {"/v1/chat/completions": Chat, "/v1/messages": Messages, "/v1/responses": Responses}[path]


def pieces(text: str, size: int = 4) -> list[str]:
    """The text in small pieces, as a model streams it."""
    return [text[at : at + size] for at in range(0, len(text), size)]


def bad_name(name: str) -> str:
    return "" if re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) else f"bad tool name {name!r}"


def first_fault(faults: Iterator[str]) -> str:
    return next((fault for fault in faults if fault), "")


class Chat:
    """Chat Completions."""

    @staticmethod
    def refuses(body: dict[str, Any]) -> str:
        return first_fault(Chat._faults(body))

    @staticmethod
    def _faults(body: dict[str, Any]) -> Iterator[str]:
        if not body["messages"]:
            yield "messages is empty"
        if "tools" not in body and ("tool_choice" in body or "parallel_tool_calls" in body):
            yield "tool_choice is only allowed when tools are specified"
        for tool in body.get("tools", ["none"]):
            if tool == "none":
                break
            yield bad_name(tool["function"]["name"])
            yield "" if tool["function"]["parameters"]["type"] == "object" else "parameters must be an object"
        if body.get("tools") == []:
            yield "tools is too short"
        waiting: list[str] = []
        seen: set[str] = set()
        for message in body["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in waiting:
                    yield "a tool message must follow the tool_calls that asked for it"
                waiting.remove(message["tool_call_id"])
                continue
            if waiting:
                yield f"tool_calls without a result: {waiting}"
            if message["content"] is None and not message.get("tool_calls"):
                yield "content is null"
            for call in message.get("tool_calls", ()):
                yield bad_name(call["function"]["name"])
                if not isinstance(json.loads(call["function"]["arguments"]), dict):
                    yield "arguments are no object"
                if call["id"] in seen or len(call["id"]) > 40:
                    yield f"bad id {call['id']}"
                seen.add(call["id"])
                waiting.append(call["id"])
        if waiting:
            yield f"tool_calls without a result: {waiting}"

    @staticmethod
    def finish(said: Said) -> str:
        return said.finish or ("tool_calls" if said.calls else "stop")

    @staticmethod
    def whole(said: Said, body: dict[str, Any]) -> dict[str, Any]:
        calls = [
            {"id": one, "type": "function", "function": {"name": name, "arguments": args}} for one, name, args in said.calls
        ]
        # What is kept with a message or a call are fields of it.
        for call, fields in zip(calls, said.between, strict=False):
            call |= fields
        message = {"role": "assistant", "content": said.text or None, "refusal": said.refusal or None}
        for fields in said.thinks:
            message |= fields
        into, out = said.tokens
        return {
            "id": "x", "object": "chat.completion", "created": 1, "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "finish_reason": Chat.finish(said),
                    "message": {**message, **({"tool_calls": calls} if calls else {})},
                }
            ],
            "usage": {"prompt_tokens": into, "completion_tokens": out, "total_tokens": into + out},
        }

    @staticmethod
    def events(said: Said, body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        def chunk(delta: dict[str, Any], finish: str | None = None) -> tuple[str, Any]:
            choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
            return "", {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": choices}

        yield chunk({"role": "assistant", "content": ""})
        for fields in said.thinks:
            for name, items in fields.items():
                for item in items:
                    for piece in pieces(item.get("text", "")):
                        said_now: dict[str, Any] = dict(item, text=piece, signature=None)
                        yield chunk({name: [said_now]})
                    yield chunk({name: [{**item, "text": ""} if "text" in item else item]})
        for piece in pieces(said.text):
            yield chunk({"content": piece})
        for piece in pieces(said.refusal):
            yield chunk({"refusal": piece})
        for index, (one, name, args) in enumerate(said.calls):
            fields = dict(enumerate(said.between)).get(index, {})
            yield chunk({"tool_calls": [{"index": index, "id": one, "function": {"name": name, "arguments": ""}, **fields}]})
            for piece in pieces(args):
                yield chunk({"tool_calls": [{"index": index, "function": {"arguments": piece}}]})
        yield chunk({}, Chat.finish(said))
        if (body.get("stream_options") or {}).get("include_usage"):
            yield "", {**Chat.whole(said, body), "object": "chat.completion.chunk", "choices": []}
        yield "", "[DONE]"


class Messages:
    """Anthropic's Messages."""

    @staticmethod
    def refuses(body: dict[str, Any]) -> str:
        return first_fault(Messages._faults(body))

    @staticmethod
    def _faults(body: dict[str, Any]) -> Iterator[str]:
        messages = body["messages"]
        if not messages or messages[0]["role"] != "user":
            yield "first message must use the user role"
        if messages and messages[-1]["role"] != "user":
            yield "the last message must not be the assistant's"
        if "tool_choice" in body and "tools" not in body:
            yield "tool_choice may only be specified while providing tools"
        if body.get("system") == "" or not body["max_tokens"]:
            yield "system is empty"
        for tool in body.get("tools", ()):
            yield bad_name(tool["name"])
            yield "" if tool["input_schema"]["type"] == "object" else "input_schema must be an object"
        asked: list[str] = []
        seen: set[str] = set()
        before = ""
        for message in messages:
            if message["role"] == before:
                yield "roles must alternate"
            before, blocks = message["role"], message["content"]
            results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
            first = [block["type"] for block in blocks[: len(asked)]]
            if first != ["tool_result"] * len(asked) or sorted(results) != sorted(asked):
                yield f"tool_use ids {asked} without tool_result blocks directly after"
            asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
            if asked and "thinking" in body and "thinking" not in blocks[0]["type"]:
                yield f"Expected `thinking` or `redacted_thinking`, but found `{blocks[0]['type']}`"
            for block in blocks:
                if block["type"] == "text" and not block["text"].strip():
                    yield "text content blocks must be non-empty"
                if block["type"] == "tool_result" and not block["content"]:
                    yield "content of a tool_result is empty"
                if block["type"] == "tool_use":
                    yield bad_name(block["name"])
                    if block["id"] in seen or not re.fullmatch(r"[a-zA-Z0-9_-]+", block["id"]):
                        yield "bad id"
                    yield "" if isinstance(block["input"], dict) else "input is no object"
                    seen.add(block["id"])

    @staticmethod
    def _blocks(said: Said) -> list[dict[str, Any]]:
        text: list[dict[str, Any]] = [{"type": "text", "text": said.text}] if said.text else []
        calls = [{"type": "tool_use", "id": one, "name": name, "input": args} for one, name, args in said.calls]
        return [*said.thinks, *text, *calls[:1], *said.between, *calls[1:]]

    @staticmethod
    def _message(said: Said, body: dict[str, Any]) -> dict[str, Any]:
        finish = said.finish or ("tool_use" if said.calls else "end_turn")
        usage = {"input_tokens": said.tokens[0] - 5, "cache_read_input_tokens": 5, "output_tokens": said.tokens[1]}
        return {
            "id": "x", "type": "message", "role": "assistant", "model": body["model"], "content": Messages._blocks(said),
            "stop_reason": finish, "stop_sequence": None, "usage": usage,
        }

    @staticmethod
    def whole(said: Said, body: dict[str, Any]) -> dict[str, Any]:
        message = Messages._message(said, body)
        for block in message["content"]:
            if block["type"] == "tool_use":
                block["input"] = json.loads(block["input"] or "{}")
        return message

    @staticmethod
    def events(said: Said, body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        def event(name: str, **rest: Any) -> tuple[str, Any]:
            return name, {"type": name, **rest}

        message = Messages._message(said, body)
        start = {**message, "content": [], "stop_reason": None, "usage": {**message["usage"], "output_tokens": 1}}
        yield event("message_start", message=start)
        yield event("ping")
        for index, block in enumerate(message["content"]):
            if block["type"] == "text":
                yield event("content_block_start", index=index, content_block={"type": "text", "text": ""})
                for piece in pieces(block["text"]):
                    yield event("content_block_delta", index=index, delta={"type": "text_delta", "text": piece})
            elif block["type"] == "thinking":
                yield event("content_block_start", index=index, content_block={**block, "thinking": "", "signature": ""})
                for piece in pieces(block["thinking"]):
                    yield event("content_block_delta", index=index, delta={"type": "thinking_delta", "thinking": piece})
                signature = {"type": "signature_delta", "signature": block["signature"]}
                yield event("content_block_delta", index=index, delta=signature)
            elif block["type"] != "tool_use":
                yield event("content_block_start", index=index, content_block=block)
            else:
                yield event("content_block_start", index=index, content_block={**block, "input": {}})
                for piece in pieces(block["input"]):
                    delta = {"type": "input_json_delta", "partial_json": piece}
                    yield event("content_block_delta", index=index, delta=delta)
            yield event("content_block_stop", index=index)
        delta = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        yield event("message_delta", delta=delta, usage={"output_tokens": said.tokens[1]})
        yield event("message_stop")


class Responses:
    """OpenAI's Responses."""

    @staticmethod
    def refuses(body: dict[str, Any]) -> str:
        return first_fault(Responses._faults(body))

    @staticmethod
    def _faults(body: dict[str, Any]) -> Iterator[str]:
        if not body["input"]:
            yield "input is empty"
        if "tools" not in body and ("tool_choice" in body or "parallel_tool_calls" in body):
            yield "tool_choice is only allowed when tools are specified"
        for tool in body.get("tools", ()):
            yield bad_name(tool["name"])
        waiting: list[str] = []
        for item in body["input"]:
            if item.get("type") == "function_call_output":
                if item["call_id"] not in waiting:
                    yield f"No tool call found for function call output with call_id {item['call_id']}"
                waiting.remove(item["call_id"])
            elif item.get("type") == "function_call":
                yield bad_name(item["name"])
                yield "" if isinstance(json.loads(item["arguments"]), dict) else "arguments are no object"
                waiting.append(item["call_id"])
            elif waiting and item.get("type") != "reasoning":
                yield f"No tool output found for function call {waiting[0]}"
        if waiting:
            yield f"No tool output found for function call {waiting[0]}"

    @staticmethod
    def whole(said: Said, body: dict[str, Any]) -> dict[str, Any]:
        content: list[dict[str, Any]] = []
        if said.text:
            content.append({"type": "output_text", "text": said.text, "annotations": [], "logprobs": []})
        if said.refusal:
            content.append({"type": "refusal", "refusal": said.refusal})
        output: list[dict[str, Any]] = [*said.thinks] or [{"type": "reasoning", "id": "rs_1", "summary": []}]
        if content:
            output.append({"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": content})
        for one, name, args in said.calls:
            call = {"type": "function_call", "id": f"fc_{one}", "call_id": one, "name": name, "arguments": args}
            output.append({**call, "status": "completed"})
            output += said.between if one == said.calls[0][0] else ()
        cut = said.finish in ("max_output_tokens", "content_filter")
        status = "incomplete" if cut else said.finish or "completed"
        into, out = said.tokens
        return {
            "id": "resp_1", "object": "response", "created_at": 1, "model": body["model"], "status": status, "output": output,
            "incomplete_details": {"reason": said.finish} if cut else None, "parallel_tool_calls": True, "tools": [],
            "error": {"code": "server_error", "message": "it broke"} if status == "failed" else None, "tool_choice": "auto",
            "usage": {
                "input_tokens": into, "output_tokens": out, "total_tokens": into + out,
                "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0},
            },
        }

    @staticmethod
    def events(said: Said, body: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        number = iter(range(10_000))

        def event(name: str, **rest: Any) -> tuple[str, Any]:
            return name, {"type": name, "sequence_number": next(number), **rest}

        whole = Responses.whole(said, body)
        yield event("response.created", response={**whole, "status": "in_progress", "output": []})
        where = {"item_id": "msg_1", "output_index": 1, "content_index": 0}
        for piece in pieces(said.text):
            yield event("response.output_text.delta", delta=piece, logprobs=[], **where)
        for piece in pieces(said.refusal):
            yield event("response.refusal.delta", delta=piece, **where)
        for index, (one, _, args) in enumerate(said.calls):
            for piece in pieces(args):
                place = {"item_id": f"fc_{one}", "output_index": index + 2}
                yield event("response.function_call_arguments.delta", delta=piece, **place)
        yield event(f"response.{whole['status']}", response=whole)
