"""OpenAI Agents SDK: sessions on any backend.

>>> import asyncio
>>> from larder.openai_agents import LarderSession
>>> async def main():
...     async with LarderSession.from_url("user-123", "memory:") as session:
...         await session.add_items([{"role": "user", "content": "Hello"}])
...         return await session.get_items()
>>> asyncio.run(main())
[{'role': 'user', 'content': 'Hello'}]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

from larder import Ttl
from larder._adapter import aperform, missing, newest, settled
from larder._closing import Owner
from larder._messages import Message, Thread
from larder._openai_items import decode, encode
from larder._original import batches
from larder._stores import Stores, aopen, open

try:
    from agents.memory import SessionSettings
except ModuleNotFoundError as _error:
    raise missing("larder.openai_agents", "the OpenAI Agents SDK", "openai-agents") from _error

if TYPE_CHECKING:
    from agents.items import TResponseInputItem

__all__ = ["LarderSession"]


class LarderSession(Owner):
    """Stores the items of a session as the messages of a thread.

    Items read back equal, with their fields in the same order. Each message also has the text, the call or
    the result of its item for other programs. An item has at most 4 MiB.

    :param session_id: The session of the thread.
    :param stores: Open stores. The session does not close them.
    :param agent: The agent of the thread.
    :param session_settings: The settings of the SDK; their ``limit`` applies to :meth:`get_items`.
    :param ttl: The time to live of the session, which each addition sets.
    :raises Unsupported: if the stores have no history.
    """

    def __init__(
        self,
        session_id: str,
        stores: Stores,
        *,
        agent: str = "openai-agents",
        session_settings: SessionSettings | dict[str, Any] | None = None,
        ttl: Ttl | None = None,
    ) -> None:
        self.session_id = session_id
        self.session_settings: SessionSettings | None = _settings(session_settings)
        self._history = stores.history
        self._thread = Thread(agent, session_id)
        self._ttl = ttl

    @classmethod
    def from_url(
        cls,
        session_id: str,
        *urls: str,
        namespace: str = "default",
        agent: str = "openai-agents",
        session_settings: SessionSettings | dict[str, Any] | None = None,
        ttl: Ttl | None = None,
    ) -> Self:
        """Opens stores as :func:`larder.open` does. The session closes them: use it with ``async with``."""
        stores = open(*urls, namespace=namespace)
        options: dict[str, Any] = {"agent": agent, "session_settings": session_settings, "ttl": ttl}
        return cls._owning(stores, lambda stores: cls(session_id, stores, **options))

    @classmethod
    async def afrom_url(
        cls,
        session_id: str,
        *urls: str,
        namespace: str = "default",
        agent: str = "openai-agents",
        session_settings: SessionSettings | dict[str, Any] | None = None,
        ttl: Ttl | None = None,
    ) -> Self:
        """As :meth:`from_url`."""
        stores = await aopen(*urls, namespace=namespace)
        options: dict[str, Any] = {"agent": agent, "session_settings": session_settings, "ttl": ttl}
        return cls._owning(stores, lambda stores: cls(session_id, stores, **options))

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Returns the newest ``limit`` items, oldest first.

        :param limit: ``None`` takes the limit of the settings. A negative limit returns all items, as in the
            SDK's ``SQLiteSession``.
        """
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        if limit is not None and limit < 0:
            limit = None
        found = await aperform(newest(self._history, self._thread, limit))
        return [cast("TResponseInputItem", decode(stored.message)) for stored in found]

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Adds items: up to 1,000 items and 12 MiB in one atomic write, more in several in order.

        If the task is canceled, the write ends before the cancellation continues.

        :raises InvalidInput: if an item is over 4 MiB, or JSON cannot represent it.
        """
        messages = [encode(item) for item in items]
        if messages:
            await settled(self._append(messages))

    async def _append(self, messages: list[Message]) -> None:
        for batch in batches(messages):
            await self._history.aappend(self._thread, batch, ttl=self._ttl)

    async def pop_item(self) -> TResponseInputItem | None:
        """Removes the newest item and returns it. Of concurrent calls, no two return the same item."""
        popped = await settled(self._history.apop(self._thread))
        return None if popped is None else cast("TResponseInputItem", decode(popped.message))

    async def clear_session(self) -> None:
        """Removes all items."""
        await settled(self._history.aclear(self._thread))


def _settings(given: SessionSettings | dict[str, Any] | None) -> SessionSettings:
    if given is None:
        return SessionSettings()
    return SessionSettings(**given) if isinstance(given, dict) else given
