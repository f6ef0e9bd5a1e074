"""Windows: the messages that a model reads."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from larder._errors import invalid
from larder._messages import Message, StoredMessage, decode_message, encode_one, to_json
from larder._position import Position, to_text


class WindowMessage(NamedTuple):
    """A message of a window."""

    message: Message
    """The message that the model reads."""
    origin: Literal["stored", "summary", "injected"]
    """``"stored"`` for a message of the thread, which a strategy may have shortened; ``"summary"`` for a summary;
    ``"injected"`` for a message that is not stored."""
    seq: Position | None
    """The position of a stored message, or the last position that a summary covers."""

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.message.text


class Size(NamedTuple):
    """The size of a window at one point."""

    messages: int
    bytes: int
    tokens: int


class Resized(NamedTuple):
    """A stored message that a step changed in the window."""

    seq: int
    bytes_before: int
    bytes_after: int


@dataclass(frozen=True, slots=True)
class ExplainedStep:
    """The effect of one step on a window."""

    name: str
    """The name of the strategy, ``memory`` or ``pair_tool_calls``."""
    drops: bool
    """``True`` if the step may remove messages that do not become part of a summary."""
    before: Size
    after: Size
    dropped: list[int]
    """The stored messages that the step removed."""
    summarized: list[int]
    """The stored messages that the step replaced with a summary."""
    shortened: list[Resized]
    """The stored messages that the step changed."""
    summary_up_to: int | None
    """The last message that the new summary covers."""
    injected: int
    """The number of added messages that are not stored."""
    injected_dropped: int
    """The number of removed messages that are not stored."""


@dataclass(frozen=True, slots=True)
class WindowExplanation:
    """A window, the messages that were read for it, and the effect of each step. ``str()`` is for debugging."""

    reach: str
    """The lookback of the strategies, such as ``the newest 40 messages``."""
    messages_read: int
    pages_read: int
    scan_ended: bool
    """``True`` if a filtered memory reached its limit on messages to read."""
    began_with_summary_up_to: int | None
    """The last message that the window's initial summary covers."""
    read: Size
    """The size of the window before the first step."""
    steps: list[ExplainedStep]
    result: Size
    """The size of the final window."""
    window: list[WindowMessage]
    """The final window."""
    text: str

    def __str__(self) -> str:
        return self.text


def as_window(text: str) -> list[WindowMessage]:
    return [_message(shown) for shown in json.loads(text)]


def _message(shown: dict[str, Any]) -> WindowMessage:
    seq = None if shown["seq"] is None else Position(shown["seq"])
    return WindowMessage(decode_message(shown["message"]), shown["origin"], seq)


def as_explanation(text: str) -> WindowExplanation:
    given = json.loads(text)
    given["window"] = [_message(shown) for shown in given["window"]]
    given["read"], given["result"] = Size(**given["read"]), Size(**given["result"])
    given["steps"] = [_step(step) for step in given["steps"]]
    return WindowExplanation(**given)


def _step(step: dict[str, Any]) -> ExplainedStep:
    sizes = {name: Size(**step[name]) for name in ("before", "after")}
    shortened = [Resized(**resized) for resized in step["shortened"]]
    fields: dict[str, Any] = {**step, **sizes, "shortened": shortened}
    return ExplainedStep(**fields)


def encode_window(messages: Iterable[Message | StoredMessage | WindowMessage]) -> str:
    """Returns the JSON of messages for a window."""
    return f"[{','.join(_given(message) for message in messages)}]"


def _given(given: Message | StoredMessage | WindowMessage) -> str:
    origin, seq, message = "injected", None, given
    if isinstance(given, WindowMessage):
        origin, seq, message = given.origin, to_text(given.seq), given.message
    elif isinstance(given, StoredMessage):
        origin, seq, message = "stored", given.seq.text, given.message
    if not isinstance(message, Message):
        raise invalid("python", "messages", f"has a `{type(message).__name__}`; pass larder.Message")
    head = to_json("messages", {"origin": origin, "seq": seq})
    return f'{head[:-1]},"message":{encode_one(message)}}}'
