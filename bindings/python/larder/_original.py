"""The original of a message: what a runtime gave, as JSON text in the metadata of the message."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from typing import Any, Literal

from larder._errors import invalid
from larder._messages import Message

CUT = "larder.cut"
"""The metadata key of the text that the original leaves out: the field of the message, and its place."""

Slot = Literal["text", "arguments", "result"]
Place = list[str | int]

_NAME_BYTES_MAX = 512


def keep(key: str, field: str, original: Any, message: Message, slot: Slot, place: Place | None) -> Message:
    """Returns the message with the original in its metadata.

    :param field: The argument that had the original.
    :param slot: Which text of the message is that at the place in the original.
    """
    text = _json(field, original if place is None else put(original, place, None))
    metadata: dict[str, Any] = {key: text}
    if place is not None:
        metadata[CUT] = [slot, *place]
    try:
        "".join([text, *_texts(message)]).encode()
    except UnicodeEncodeError:
        # UTF-8 has no lone surrogates. The JSON has them as escapes, and the message is not readable.
        return Message(message.role, metadata={key: json.dumps(original)})
    return replace(message, metadata=metadata)


def original(key: str, message: Message) -> Any:
    """Returns the original of a message; ``None`` if it has none."""
    text = message.metadata.get(key)
    if not isinstance(text, str):
        return None
    found = json.loads(text)
    cut = message.metadata.get(CUT)
    if cut is None:
        return found
    slot, *place = cut
    if slot == "text":
        return put(found, place, message.text)
    if slot == "arguments":
        return put(found, place, message.tool_calls[0].arguments)
    return put(found, place, message.tool_results[0].content)


def put(value: Any, place: Place, text: str | None) -> Any:
    """Returns a copy of a value with another text at a place, in the same order."""
    if not place:
        return text
    outer = copy(value)
    outer[place[0]] = put(outer[place[0]], place[1:], text)
    return outer


def is_name(value: object) -> bool:
    """Returns whether a value may be the id or the name of a call."""
    if not isinstance(value, str) or "\0" in value:
        return False
    return 0 < len(value.encode(errors="replace")) <= _NAME_BYTES_MAX


def as_text(message: Message) -> str:
    """Returns a message as text, with its calls and results."""
    parts = [message.text] if message.text else []
    parts += [f"[calls {call.name}({call.arguments})]" for call in message.tool_calls]
    for result in message.tool_results:
        what = "error" if result.is_error else "result"
        parts.append(f"[{what} of {result.call_id}: {result.content}]")
    return " ".join(parts)


def batches(messages: list[Message]) -> list[list[Message]]:
    """Divides messages into appends of up to 1,000 messages and 12 MiB."""
    found: list[list[Message]] = []
    size = 0
    for message in messages:
        metadata = json.dumps(dict(message.metadata))
        own = sum(len(text.encode()) for text in [metadata, *_texts(message)])
        # Less than the limit of an append, 16 MiB, because a store measures a message in another way.
        if not found or len(found[-1]) == 1_000 or size + own > 12 * 1024 * 1024:
            found.append([])
            size = 0
        found[-1].append(message)
        size += own
    return found


def _texts(message: Message) -> list[str]:
    texts = [message.text]
    for call in message.tool_calls:
        texts += [call.id, call.name, call.arguments]
    for result in message.tool_results:
        texts += [result.call_id, result.content]
    return texts


def _json(field: str, value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (RecursionError, TypeError, ValueError):
        raise invalid("python", field, "has a value that JSON cannot represent; convert it") from None
