"""Conversations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator

from larder._history_edits import Edits
from larder._history_types import (
    Appended,
    Event,
    MessageFilter,
    MessagePage,
    ThreadInfo,
    Ttl,
    as_appended,
    as_event,
    as_filter,
    as_info,
    as_page,
    as_pair,
    as_ttl,
)
from larder._messages import Message, Thread, encode
from larder._native import Call
from larder._position import Position, to_text
from larder._run import Plan, adrive, drive, run

_PAGE = 10_000


class History(Edits):
    """Conversations: append messages to a thread, and read the newest.

    A thread is a :class:`Thread` or a tuple of an agent and a session.

    >>> import larder
    >>> with larder.open("memory:") as stores:
    ...     thread = larder.Thread("assistant", "session-1")
    ...     _ = stores.history.append(thread, larder.Message.user("Hello"))
    ...     [stored.text for stored in stores.history.tail(thread, 20)]
    ['Hello']
    """

    __slots__ = ()

    def append(
        self,
        thread: Thread | tuple[str, str],
        messages: Message | Iterable[Message],
        *,
        idempotency_key: str | None = None,
        if_last: Position | None = None,
        ttl: Ttl | None = None,
        fence: int | None = None,
    ) -> Appended:
        """Appends up to 1,000 messages, at most 16 MiB, all or none, and returns their positions.

        :param idempotency_key: Repeating the call with the same key and messages writes nothing.
        :param if_last: The last position that the thread must have.
        :param ttl: The new time to live of the thread; ``None`` leaves it unchanged.
        :param fence: The fencing token of the writer.
        :raises Conflict: if ``if_last`` or the fence does not hold, or the key was used with other messages.
        """
        return as_appended(self._append(thread, messages, idempotency_key, if_last, ttl, fence).wait())

    async def aappend(
        self,
        thread: Thread | tuple[str, str],
        messages: Message | Iterable[Message],
        *,
        idempotency_key: str | None = None,
        if_last: Position | None = None,
        ttl: Ttl | None = None,
        fence: int | None = None,
    ) -> Appended:
        """As :meth:`append`."""
        call = self._append(thread, messages, idempotency_key, if_last, ttl, fence)
        return as_appended(await run(call))

    def _append(
        self,
        thread: Thread | tuple[str, str],
        messages: Message | Iterable[Message],
        key: str | None,
        if_last: Position | None,
        ttl: Ttl | None,
        fence: int | None,
    ) -> Call[str]:
        return self._native.append(
            as_pair(thread), encode(messages), key, to_text(if_last), as_ttl(ttl), fence
        )

    def messages(
        self, thread: Thread | tuple[str, str], *, offset: int = 0, limit: int = _PAGE
    ) -> MessagePage:
        """Returns up to ``limit`` messages after the first ``offset``, oldest first; at most 10,000 and 16 MiB.

        To page through a thread that others write, use :meth:`page_after`.
        """
        return as_page(self._native.messages(as_pair(thread), offset, limit).wait())

    async def amessages(
        self, thread: Thread | tuple[str, str], *, offset: int = 0, limit: int = _PAGE
    ) -> MessagePage:
        """As :meth:`messages`."""
        return as_page(await run(self._native.messages(as_pair(thread), offset, limit)))

    def tail(
        self,
        thread: Thread | tuple[str, str],
        limit: int,
        *,
        before: Position | None = None,
        filter: MessageFilter | None = None,
    ) -> MessagePage:
        """Returns the newest ``limit`` messages, oldest first; at most 10,000 and 16 MiB.

        :param before: The position before which the messages are.
        :param filter: Selects the messages of some authors.
        """
        call = self._native.tail(as_pair(thread), limit, to_text(before), as_filter(filter))
        return as_page(call.wait())

    async def atail(
        self,
        thread: Thread | tuple[str, str],
        limit: int,
        *,
        before: Position | None = None,
        filter: MessageFilter | None = None,
    ) -> MessagePage:
        """As :meth:`tail`."""
        call = self._native.tail(as_pair(thread), limit, to_text(before), as_filter(filter))
        return as_page(await run(call))

    def page_after(
        self, thread: Thread | tuple[str, str], after: Position | int, limit: int
    ) -> MessagePage:
        """Returns up to ``limit`` messages after a position, oldest first; at most 10,000 and 16 MiB."""
        return as_page(self._native.page_after(as_pair(thread), Position(after).text, limit).wait())

    async def apage_after(
        self, thread: Thread | tuple[str, str], after: Position | int, limit: int
    ) -> MessagePage:
        """As :meth:`page_after`."""
        return as_page(await run(self._native.page_after(as_pair(thread), Position(after).text, limit)))

    def info(self, thread: Thread | tuple[str, str]) -> ThreadInfo:
        """Returns the number of messages, their bytes and the last position."""
        return as_info(json.loads(self._native.info(as_pair(thread)).wait()))

    async def ainfo(self, thread: Thread | tuple[str, str]) -> ThreadInfo:
        """As :meth:`info`."""
        return as_info(json.loads(await run(self._native.info(as_pair(thread)))))

    def threads(self, agent: str | None = None) -> list[ThreadInfo]:
        """Lists all threads, or those of an agent."""
        return drive(self._threads(agent))

    async def athreads(self, agent: str | None = None) -> list[ThreadInfo]:
        """As :meth:`threads`."""
        return await adrive(self._threads(agent))

    def _threads(self, agent: str | None) -> Plan[list[ThreadInfo]]:
        found: list[ThreadInfo] = []
        after: tuple[str, str] | None = None
        while True:
            page = json.loads((yield self._native.threads(agent, after, _PAGE)))
            found += [as_info(info) for info in page["items"]]
            if page["next"] is None:
                return found
            after = page["next"]["agent"], page["next"]["session"]

    def subscribe(self, thread: Thread | tuple[str, str], after: Position | int = 0) -> Iterator[Event]:
        """Yields the events of a thread after a position, and waits for new ones."""
        events = self._native.subscribe(as_pair(thread), Position(after).text).wait()
        while (event := events.next().wait()) is not None:
            yield as_event(event)

    async def asubscribe(
        self, thread: Thread | tuple[str, str], after: Position | int = 0
    ) -> AsyncIterator[Event]:
        """As :meth:`subscribe`."""
        events = await run(self._native.subscribe(as_pair(thread), Position(after).text))
        while (event := await run(events.next())) is not None:
            yield as_event(event)
