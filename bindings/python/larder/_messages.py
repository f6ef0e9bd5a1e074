"""The messages of a conversation."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from larder._errors import invalid
from larder._position import Position
from larder._time import from_text, to_text

Role = Literal["system", "user", "assistant", "tool"]
"""The speaker of a message."""


class Thread(NamedTuple):
    """A conversation: one session of one agent. Both names have 1 to 512 bytes of UTF-8 without NUL."""

    agent: str
    session: str


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool."""

    id: str
    name: str
    arguments: str
    """The arguments as the model wrote them, normally JSON."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call."""

    call_id: str
    content: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A reference to a file that belongs to a message and is stored as a blob."""

    key: str
    content_type: str | None = None
    size_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Author:
    """The agent that wrote a message, in a session that several agents share."""

    agent: str
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a conversation, at most 4 MiB."""

    role: Role
    text: str = ""
    tool_calls: Sequence[ToolCall] = ()
    tool_results: Sequence[ToolResult] = ()
    blobs: Sequence[BlobRef] = ()
    author: Author | None = None
    run: str | None = None
    """The run in which the message was written."""
    created_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    """The time of writing. It does not determine the order of messages."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Additional data in JSON."""
    token_count: int | None = None

    @classmethod
    def system(cls, text: str) -> Message:
        """Creates a message with instructions to the model."""
        return cls("system", text)

    @classmethod
    def user(cls, text: str) -> Message:
        """Creates a message of the user."""
        return cls("user", text)

    @classmethod
    def assistant(cls, text: str, tool_calls: Sequence[ToolCall] = ()) -> Message:
        """Creates a message of the model."""
        return cls("assistant", text, tool_calls)

    @classmethod
    def tool(cls, *results: ToolResult) -> Message:
        """Creates a message with the results of tools."""
        return cls("tool", tool_results=results)


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """A message with its position in the thread."""

    seq: Position
    message: Message
    revision: Position
    """The number of the write that gave the message its content: an append, a replacement or an update."""

    @property
    def text(self) -> str:
        """The text of the message."""
        return self.message.text


def encode(messages: Message | Iterable[Message]) -> str:
    """Returns the JSON of messages for the Rust library."""
    messages = (messages,) if isinstance(messages, Message) else messages
    return to_json("messages", [_encode(message) for message in messages])


def encode_one(message: Message) -> str:
    """Returns the JSON of a message for the Rust library."""
    return to_json("message", _encode(message))


def _encode(message: Message) -> dict[str, Any]:
    if not isinstance(message, Message):
        raise invalid("python", "messages", f"has a `{type(message).__name__}`; pass larder.Message")
    # Copies no text: `json` writes the fields of these objects.
    encoded: dict[str, Any] = {
        "role": message.role,
        "text": message.text,
        "created_at": to_text(message.created_at),
    }
    if message.tool_calls:
        encoded["tool_calls"] = [_fields(call) for call in message.tool_calls]
    if message.tool_results:
        encoded["tool_results"] = [_fields(result) for result in message.tool_results]
    if message.blobs:
        encoded["blobs"] = [_fields(blob) for blob in message.blobs]
    if message.author is not None:
        encoded["author"] = _fields(message.author)
    if message.run is not None:
        encoded["run"] = message.run
    if message.metadata:
        encoded["metadata"] = dict(message.metadata)
    if message.token_count is not None:
        encoded["token_count"] = message.token_count
    return encoded


def _fields(part: ToolCall | ToolResult | BlobRef | Author) -> dict[str, Any]:
    return {name: value for name in part.__slots__ if (value := getattr(part, name)) is not None}


def decode(stored: Mapping[str, Any]) -> StoredMessage:
    """Reads a stored message from the JSON of the Rust library."""
    message = decode_message(stored["message"])
    return StoredMessage(Position(stored["seq"]), message, Position(stored["revision"]))


def decode_message(given: Mapping[str, Any]) -> Message:
    """Reads a message from the JSON of the Rust library."""
    author = given.get("author")
    return Message(
        given["role"],
        given["text"],
        tuple(ToolCall(**call) for call in given.get("tool_calls", ())),
        tuple(ToolResult(**result) for result in given.get("tool_results", ())),
        tuple(BlobRef(**blob) for blob in given.get("blobs", ())),
        None if author is None else Author(**author),
        given.get("run"),
        from_text(given["created_at"]),
        given.get("metadata", {}),
        given.get("token_count"),
    )


def to_json(name: str, value: object) -> str:
    """Returns the JSON of a value. Numbers that JSON does not have are refused."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except (RecursionError, TypeError, ValueError) as error:
        if isinstance(error, UnicodeEncodeError):
            raise invalid("python", name, "has a lone surrogate; remove it") from None
        raise invalid("python", name, "has a value that JSON cannot represent; convert it") from None
    return text
