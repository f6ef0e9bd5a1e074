"""Chat store of LlamaIndex's class Memory."""

from __future__ import annotations

from collections.abc import Sequence

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.llms import ChatMessage
from llama_index.core.storage.chat_store.base_db import AsyncDBChatStore, MessageStatus

from larder._history import History
from larder._llama_index_chat import LarderChatStore, decode, encode
from larder._messages import StoredMessage, Thread
from larder._original import batches
from larder._run import Unpicklable
from larder._stores import Stores

_PAGE = 1_000


class LarderMemoryStore(Unpicklable, AsyncDBChatStore):
    """Stores the messages of a session of ``Memory`` in two threads: the active ones and the archived ones.

    Each message reads back equal. The active messages are in the thread that :class:`LarderChatStore` uses.

    >>> import larder
    >>> from llama_index.core.memory import Memory
    >>> from larder.llama_index import LarderMemoryStore
    >>> with larder.open("memory:") as stores:
    ...     memory = Memory.from_defaults(session_id="user-1", chat_store=LarderMemoryStore(stores))

    :param stores: Open stores. The chat store does not close them.
    :param agent: The agent of the threads. That of archived messages ends in ``/archived``.
    :raises Unsupported: if the stores have no history.
    """

    agent: str
    _history: History = PrivateAttr()
    _active: LarderChatStore = PrivateAttr()
    _archived: LarderChatStore = PrivateAttr()

    def __init__(self, stores: Stores, *, agent: str = "llama-index") -> None:
        super().__init__(agent=agent)  # type: ignore[call-arg]
        self._history = stores.history
        self._active = LarderChatStore(stores, agent=agent)
        self._archived = LarderChatStore(stores, agent=f"{agent}/archived")

    @classmethod
    def class_name(cls) -> str:
        """Returns the name of the class."""
        return "LarderMemoryStore"

    def _stores(self, status: MessageStatus | None) -> list[LarderChatStore]:
        """Returns the chat stores of a status. Archived messages are older than active ones."""
        chosen = {MessageStatus.ACTIVE: self._active, MessageStatus.ARCHIVED: self._archived}
        return [self._archived, self._active] if status is None else [chosen[status]]

    async def get_messages(
        self,
        key: str,
        status: MessageStatus | None = MessageStatus.ACTIVE,
        limit: int | None = None,
        offset: int | None = None,
    ) -> list[ChatMessage]:
        """Returns the messages of a key, oldest first.

        :param status: ``None`` for both.
        :param limit: The greatest number of messages after the first ``offset``.
        """
        found = [message for store in self._stores(status) for message in await store.aget_messages(key)]
        start = offset or 0
        return found[start:] if limit is None else found[start : start + limit]

    async def count_messages(self, key: str, status: MessageStatus | None = MessageStatus.ACTIVE) -> int:
        """Returns the number of messages of a key."""
        infos = [await self._history.ainfo(Thread(store.agent, key)) for store in self._stores(status)]
        return sum(info.messages for info in infos)

    async def add_message(
        self, key: str, message: ChatMessage, status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Adds a message.

        :raises InvalidInput: if the message is over 4 MiB, or JSON cannot represent it.
        """
        await self.add_messages(key, [message], status)

    async def add_messages(
        self, key: str, messages: Sequence[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Adds messages: up to 1,000 messages and 12 MiB in one atomic write, more in several in order."""
        [store] = self._stores(status)
        for batch in batches([encode(message) for message in messages]):
            await self._history.aappend(Thread(store.agent, key), batch)

    async def set_messages(
        self, key: str, messages: list[ChatMessage], status: MessageStatus = MessageStatus.ACTIVE
    ) -> None:
        """Replaces all messages of a key, those with the other status too."""
        [store] = self._stores(status)
        await store.aset_messages(key, messages)
        for other in self._stores(None):
            if other is not store:
                await self._history.aclear(Thread(other.agent, key))

    async def delete_message(self, key: str, idx: int) -> ChatMessage | None:
        """Deletes the active message at an index and returns it; ``None`` if it does not exist."""
        return await self._active.adelete_message(key, idx)

    async def delete_messages(self, key: str, status: MessageStatus | None = None) -> None:
        """Deletes the messages of a key that have a status, or all."""
        for store in self._stores(status):
            await self._history.aclear(Thread(store.agent, key))

    async def delete_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Deletes the oldest ``n`` active messages and returns them. No two calls return the same message."""
        thread = Thread(self.agent, key)
        deleted: list[StoredMessage] = []
        while len(deleted) < n:
            found = await self._history.amessages(thread, limit=min(n - len(deleted), _PAGE))
            if not found:
                break
            deleted += await self._history.aremove(thread, [stored.seq for stored in found])
        return [decode(stored.message) for stored in deleted]

    async def archive_oldest_messages(self, key: str, n: int) -> list[ChatMessage]:
        """Archives the oldest ``n`` active messages and returns them.

        The messages are added to the archived ones before they are removed. If the process ends in between, the
        next call with the same messages adds none twice.
        """
        thread, archive = Thread(self.agent, key), Thread(self._archived.agent, key)
        archived: list[StoredMessage] = []
        while len(archived) < n:
            page = await self._history.amessages(thread, limit=min(n - len(archived), _PAGE))
            if not page:
                break
            [first, *_] = batches([stored.message for stored in page])
            found = page[: len(first)]
            name = f"archive {found[0].seq.text} {found[-1].seq.text}"
            await self._history.aappend(archive, first, idempotency_key=name)
            await self._history.aremove(thread, [stored.seq for stored in found])
            archived += found
        return [decode(stored.message) for stored in archived]

    async def get_keys(self) -> list[str]:
        """Returns the keys that have messages, in byte order."""
        return sorted({key for store in self._stores(None) for key in await store.aget_keys()})
