"""Chat store of LlamaIndex."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.llms.types import TextBlock, ToolCallBlock
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.storage.chat_store import BaseChatStore
from pydantic_core import PydanticSerializationError

from larder._adapter import Steps, aperform, newest, perform, step
from larder._errors import Conflict, invalid
from larder._history import History
from larder._history_types import ThreadInfo
from larder._messages import Message, Role, StoredMessage, Thread, ToolCall, ToolResult
from larder._original import Place, Slot, as_text, batches, is_name, keep, original
from larder._run import Unpicklable
from larder._stores import Stores

KEY = "larder.llama_index"
"""The metadata key of a message's JSON."""

_ATTEMPTS = 20
_ROLES: dict[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "tool": "tool",
    "function": "tool",
}


class LarderChatStore(Unpicklable, BaseChatStore):
    """Stores the messages of a key in a thread.

    Each message reads back equal. Other programs see its text, its tool calls and its result.

    >>> import larder
    >>> from llama_index.core.memory import ChatMemoryBuffer
    >>> from larder.llama_index import LarderChatStore
    >>> with larder.open("memory:") as stores:
    ...     store = LarderChatStore(stores)
    ...     memory = ChatMemoryBuffer.from_defaults(chat_store=store, chat_store_key="user-1")

    :param stores: Open stores. The chat store does not close them.
    :param agent: The agent of the threads.
    :raises Unsupported: if the stores have no history.
    """

    agent: str
    _history: History = PrivateAttr()

    def __init__(self, stores: Stores, *, agent: str = "llama-index") -> None:
        super().__init__(agent=agent)  # type: ignore[call-arg]
        self._history = stores.history

    @classmethod
    def class_name(cls) -> str:
        """Returns the name of the class."""
        return "LarderChatStore"

    def set_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """Replaces the messages of a key: by up to 1,000 messages and 12 MiB in one atomic write.

        :raises InvalidInput: if a message is over 4 MiB, or JSON cannot represent it.
        """
        perform(self._set(key, messages))

    async def aset_messages(self, key: str, messages: list[ChatMessage]) -> None:
        """As :meth:`set_messages`."""
        await aperform(self._set(key, messages))

    def _set(self, key: str, messages: Sequence[ChatMessage]) -> Steps[None]:
        thread = Thread(self.agent, key)
        encoded = [encode(message) for message in messages]
        if encoded:
            yield from self._rewrite(thread, encoded)
        else:
            yield step(self._history.clear, thread)

    def _rewrite(self, thread: Thread, messages: list[Message], idx: int | None = None) -> Steps[None]:
        """Writes messages in place of those of the thread, or with them if they have an index."""
        for attempt in range(1, _ATTEMPTS + 1):
            info = yield step(self._history.info, thread)
            new = messages
            if idx is not None:
                stored = yield from newest(self._history, thread)
                # A replacement leaves what was added after it was read.
                new = [one.message for one in stored if one.seq <= info.last]
                new[idx:idx] = messages
            try:
                yield from self._replace(info, new)
            except Conflict:
                # Another writer was faster. The last call counts.
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    def _replace(self, info: ThreadInfo, messages: list[Message]) -> Steps[None]:
        thread, last = info.thread, info.last
        first, *rest = batches(messages)
        if info.messages:
            last = (yield step(self._history.replace, thread, last, first)).seq
        else:
            last = (yield step(self._history.append, thread, first, if_last=last)).last
        for batch in rest:
            last = (yield step(self._history.append, thread, batch, if_last=last)).last

    def get_messages(self, key: str) -> list[ChatMessage]:
        """Returns the messages of a key, oldest first."""
        return perform(self._get(key))

    async def aget_messages(self, key: str) -> list[ChatMessage]:
        """As :meth:`get_messages`."""
        return await aperform(self._get(key))

    def _get(self, key: str) -> Steps[list[ChatMessage]]:
        stored = yield from newest(self._history, Thread(self.agent, key))
        return [decode(one.message) for one in stored]

    def add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """Adds a message at the end.

        :param idx: The index before which the message is inserted. The messages are then written again.
        :raises InvalidInput: if the message is over 4 MiB, or JSON cannot represent it.
        """
        perform(self._add(key, message, idx))

    async def async_add_message(self, key: str, message: ChatMessage, idx: int | None = None) -> None:
        """As :meth:`add_message`."""
        await aperform(self._add(key, message, idx))

    def _add(self, key: str, message: ChatMessage, idx: int | None) -> Steps[None]:
        thread, encoded = Thread(self.agent, key), encode(message)
        if idx is None:
            yield step(self._history.append, thread, encoded)
        else:
            yield from self._rewrite(thread, [encoded], idx)

    def delete_messages(self, key: str) -> list[ChatMessage] | None:
        """Deletes the messages of a key and returns them; ``None`` if there are none."""
        return perform(self._clear(key))

    async def adelete_messages(self, key: str) -> list[ChatMessage] | None:
        """As :meth:`delete_messages`."""
        return await aperform(self._clear(key))

    def _clear(self, key: str) -> Steps[list[ChatMessage] | None]:
        messages = yield from self._get(key)
        yield step(self._history.clear, Thread(self.agent, key))
        return messages or None

    def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Deletes the message at an index and returns it; ``None`` if it does not exist.

        :param idx: The index from the first message, or a negative one from the last.
        """
        return perform(self._delete(key, idx))

    async def adelete_message(self, key: str, idx: int) -> ChatMessage | None:
        """As :meth:`delete_message`."""
        return await aperform(self._delete(key, idx))

    def _delete(self, key: str, idx: int) -> Steps[ChatMessage | None]:
        thread = Thread(self.agent, key)
        while True:
            at = idx
            if idx < 0:
                at += (yield step(self._history.info, thread)).messages
            found = (yield step(self._history.messages, thread, offset=at, limit=1)) if at >= 0 else []
            if not found:
                return None
            removed = yield step(self._history.remove, thread, [found[0].seq])
            # Another caller may have deleted the message, and another one has its index.
            if removed:
                return decode(removed[0].message)

    def delete_last_message(self, key: str) -> ChatMessage | None:
        """Deletes the newest message and returns it. Of concurrent calls, no two return the same message."""
        return _decoded(self._history.pop(Thread(self.agent, key)))

    async def adelete_last_message(self, key: str) -> ChatMessage | None:
        """As :meth:`delete_last_message`."""
        return _decoded(await self._history.apop(Thread(self.agent, key)))

    def get_keys(self) -> list[str]:
        """Returns the keys that have messages, in byte order."""
        return _keys(self._history.threads(self.agent))

    async def aget_keys(self) -> list[str]:
        """As :meth:`get_keys`."""
        return _keys(await self._history.athreads(self.agent))


def encode(message: ChatMessage) -> Message:
    """Returns the message of the stores."""
    if not isinstance(message, ChatMessage):
        raise invalid(
            "python", "messages", f"has a `{type(message).__name__}`; pass ChatMessage of LlamaIndex"
        )
    try:
        fields = message.model_dump(mode="json")
    except PydanticSerializationError:
        raise invalid("python", "messages", "has a value that JSON cannot represent; convert it") from None
    # The constructor of ChatMessage has made blocks of these images, and would do so again.
    fields["additional_kwargs"].pop("images", None)
    texts = [at for at, block in enumerate(message.blocks) if isinstance(block, TextBlock)]
    place: Place | None = ["blocks", texts[0], "text"] if len(texts) == 1 else None
    slot: Slot = "text"
    text = message.content or ""
    call_id: Any = message.additional_kwargs.get("tool_call_id")
    role = _ROLES.get(message.role.value, "assistant")
    if role == "tool" and is_name(call_id):
        encoded, slot = Message("tool", tool_results=[ToolResult(call_id, text)]), "result"
    else:
        encoded = Message(role, text, _calls(message))
    return keep(KEY, "messages", fields, encoded, slot, place)


def _calls(message: ChatMessage) -> list[ToolCall]:
    blocks = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
    found = []
    for block in blocks:
        if block.tool_call_id is not None and is_name(block.tool_call_id) and is_name(block.tool_name):
            given: Any = block.tool_kwargs
            arguments = (
                given if isinstance(given, str) else json.dumps(given, ensure_ascii=False, default=str)
            )
            found.append(ToolCall(block.tool_call_id, block.tool_name, arguments))
    return found[:256]


def decode(message: Message) -> ChatMessage:
    """Returns the message of LlamaIndex: an equal one if :func:`encode` wrote it."""
    found = original(KEY, message)
    if found is not None:
        return ChatMessage.model_validate(found)
    if message.role == "tool" and len(message.tool_results) == 1:
        result = message.tool_results[0]
        return ChatMessage(
            result.content, role=MessageRole.TOOL, additional_kwargs={"tool_call_id": result.call_id}
        )
    return ChatMessage(as_text(message), role=MessageRole(message.role))


def _decoded(stored: StoredMessage | None) -> ChatMessage | None:
    return None if stored is None else decode(stored.message)


def _keys(threads: list[ThreadInfo]) -> list[str]:
    return [info.thread.session for info in threads if info.messages]
