"""Chat history of LangChain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.chat_history import BaseChatMessageHistory
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
    message_to_dict,
    messages_from_dict,
)

from larder import Ttl
from larder._adapter import Steps, aperform, newest, perform, step
from larder._errors import invalid
from larder._messages import Message, Role, Thread, ToolCall, ToolResult
from larder._original import Place, Slot, as_text, batches, is_name, keep, original
from larder._stores import Stores

KEY = "larder.langchain"
"""The metadata key of a message's JSON."""

_ROLES: dict[str, Role] = {
    "human": "user",
    "ai": "assistant",
    "system": "system",
    "tool": "tool",
    "function": "tool",
}


class LarderChatMessageHistory(BaseChatMessageHistory):
    """Stores the messages of a session in a thread.

    Each message reads back equal. Other programs see its text, its tool calls and its result.

    :param session_id: The session of the thread.
    :param stores: Open stores. The history does not close them.
    :param agent: The agent of the thread.
    :param ttl: The time to live of the session, which each addition sets.
    :param limit: The number of the newest messages that ``messages`` has; ``None`` for all.
    :raises Unsupported: if the stores have no history.
    """

    def __init__(
        self,
        session_id: str,
        stores: Stores,
        *,
        agent: str = "langchain",
        ttl: Ttl | None = None,
        limit: int | None = None,
    ) -> None:
        if limit is not None and (not isinstance(limit, int) or limit < 0):
            raise invalid("python", "limit", "is not a whole number from 0 on; pass one")
        self._history = stores.history
        self._thread = Thread(agent, session_id)
        self._ttl = ttl
        self._limit = limit

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]
        """The messages, oldest first."""
        return perform(self._read())

    async def aget_messages(self) -> list[BaseMessage]:
        """As :attr:`messages`."""
        return await aperform(self._read())

    def _read(self) -> Steps[list[BaseMessage]]:
        found = yield from newest(self._history, self._thread, self._limit)
        return [decode(stored.message) for stored in found]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Adds messages: up to 1,000 messages and 12 MiB in one atomic write, more in several in order.

        :raises InvalidInput: if a message is over 4 MiB, or JSON cannot represent it.
        """
        perform(self._add(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """As :meth:`add_messages`."""
        await aperform(self._add(messages))

    def _add(self, messages: Sequence[BaseMessage]) -> Steps[None]:
        for batch in batches([encode(message) for message in messages]):
            yield step(self._history.append, self._thread, batch, ttl=self._ttl)

    def clear(self) -> None:
        """Removes all messages."""
        self._history.clear(self._thread)

    async def aclear(self) -> None:
        """As :meth:`clear`."""
        await self._history.aclear(self._thread)


def encode(message: BaseMessage) -> Message:
    """Returns the message of the stores."""
    if not isinstance(message, BaseMessage):
        raise invalid("python", "messages", f"has a `{type(message).__name__}`; pass messages of LangChain")
    role = _ROLES.get(message.type.removesuffix("MessageChunk").lower(), "user")
    place: Place | None = ["data", "content"] if isinstance(message.content, str) else None
    slot: Slot = "text"
    text = str(message.text)
    if isinstance(message, ToolMessage) and is_name(message.tool_call_id):
        result = ToolResult(message.tool_call_id, text, message.status == "error")
        encoded, slot = Message("tool", tool_results=[result]), "result"
    else:
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        encoded = Message(role, text, [_call(call) for call in calls if _is_call(call)][:256])
    return keep(KEY, "messages", message_to_dict(message), encoded, slot, place)


def _is_call(call: Any) -> bool:
    return is_name(call["id"]) and is_name(call["name"])


def _call(call: Any) -> ToolCall:
    return ToolCall(call["id"], call["name"], json.dumps(call["args"], ensure_ascii=False, default=str))


def decode(message: Message) -> BaseMessage:
    """Returns the message of LangChain: an equal one if :func:`encode` wrote it."""
    found = original(KEY, message)
    if found is not None:
        return messages_from_dict([found])[0]
    if message.role == "tool" and len(message.tool_results) == 1:
        result = message.tool_results[0]
        status = "error" if result.is_error else "success"
        return ToolMessage(result.content, tool_call_id=result.call_id, status=status)
    kinds: dict[str, type[BaseMessage]] = {"system": SystemMessage, "user": HumanMessage}
    return kinds.get(message.role, AIMessage)(content=as_text(message))
