"""Items of OpenAI's Responses interface as messages."""

from __future__ import annotations

from typing import Any

from larder._errors import invalid
from larder._messages import Message, Role, ToolCall, ToolResult
from larder._original import Place, Slot, as_text, is_name, keep, original

KEY = "larder.openai_item"
"""The metadata key of an item's JSON."""

_ROLES: dict[str, Role] = {"user": "user", "system": "system", "developer": "system"}


def encode(item: Any) -> Message:
    """Returns the message of an item. Its text, call or result are those of the item."""
    if not isinstance(item, dict):
        raise invalid("python", "items", f"has a `{type(item).__name__}`; pass dictionaries")
    message, slot, place = _read(item)
    return keep(KEY, "items", item, message, slot, place)


def decode(message: Message) -> dict[str, Any]:
    """Returns the item of a message: an equal one if :func:`encode` wrote it, or the message as text."""
    item: dict[str, Any] | None = original(KEY, message)
    if item is None:
        role = "assistant" if message.role == "tool" else message.role
        return {"role": role, "content": as_text(message)}
    return item


def _read(item: dict[str, Any]) -> tuple[Message, Slot, Place | None]:
    """Returns the message, and where the item has the message's text, arguments or result."""
    kind, call = item.get("type"), item.get("call_id")
    if kind == "function_call" and is_name(call) and is_name(item.get("name")):
        arguments = item.get("arguments")
        if isinstance(arguments, str):
            calls = [ToolCall(str(call), item["name"], arguments)]
            return Message("assistant", "", calls), "arguments", ["arguments"]
    if isinstance(kind, str) and kind.endswith("_call_output") and is_name(call):
        place, text = _text(item, "output")
        return Message("tool", tool_results=[ToolResult(str(call), text)]), "result", place
    place, text = _text(item, "summary" if kind == "reasoning" else "content")
    role = item.get("role")
    return (
        Message(_ROLES.get(role, "assistant") if isinstance(role, str) else "assistant", text),
        "text",
        place,
    )


def _text(item: dict[str, Any], name: str) -> tuple[Place | None, str]:
    """Returns the place of a field's text if it is one string, and the text."""
    content = item.get(name)
    if isinstance(content, str):
        return [name], content
    parts = content if isinstance(content, list) else []
    texts: list[tuple[Place, str]] = [
        ([name, index, "text"], part["text"])
        for index, part in enumerate(parts)
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]
    return texts[0][0] if len(texts) == 1 else None, "\n".join(text for _, text in texts)
