"""Conversations."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from larder._errors import invalid
from larder._messages import Message, StoredMessage, Thread, decode, decode_message, encode
from larder._native import Call
from larder._native import History as NativeHistory
from larder._position import Position, to_text
from larder._run import Plan, Unpicklable, adrive, drive, run
from larder._time import Duration, milliseconds

_PAGE = 10_000


class Appended(NamedTuple):
    """The positions of appended messages."""

    first: Position
    last: Position


class ThreadInfo(NamedTuple):
    """The counts of a thread."""

    thread: Thread
    messages: int
    bytes: int
    last: Position
    """The greatest position of a message or an event; 0 before the first."""


class Forked(NamedTuple):
    """The result of a fork."""

    messages: int
    last: Position


class Replaced(NamedTuple):
    """The result of a replacement."""

    removed: int
    seq: Position


@dataclass(frozen=True, slots=True)
class Ttl:
    """The time to live of a thread."""

    after: Duration
    """The time in seconds after which the thread reads as empty."""
    refresh_on_use: bool = False
    """``True`` if each use of the thread restarts the time to live."""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a thread."""

    seq: Position
    kind: str
    """``appended``, ``replaced``, ``removed``, ``rewound``, ``run_cleared`` or ``cleared``."""
    message: Message | None
    """The message of ``appended``."""
    data: dict[str, Any]
    """The other fields of the event."""


class History(Unpicklable):
    """Conversations: append messages to a thread, and read the newest.

    A thread is a :class:`Thread` or a tuple of an agent and a session.

    >>> import larder
    >>> with larder.open("memory:") as stores:
    ...     thread = larder.Thread("assistant", "session-1")
    ...     _ = stores.history.append(thread, larder.Message.user("Hello"))
    ...     [stored.text for stored in stores.history.tail(thread, 20)]
    ['Hello']
    """

    __slots__ = ("_native", "_stores")

    def __init__(self, native: NativeHistory, stores: object) -> None:
        self._native = native
        # The stores are closed when nobody holds them.
        self._stores = stores

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
        return _appended(self._append(thread, messages, idempotency_key, if_last, ttl, fence).wait())

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
        return _appended(await run(call))

    def _append(
        self,
        thread: Thread | tuple[str, str],
        messages: Message | Iterable[Message],
        key: str | None,
        if_last: Position | None,
        ttl: Ttl | None,
        fence: int | None,
    ) -> Call[str]:
        return self._native.append(_pair(thread), encode(messages), key, to_text(if_last), _ttl(ttl), fence)

    def tail(
        self, thread: Thread | tuple[str, str], limit: int, *, before: Position | None = None
    ) -> list[StoredMessage]:
        """Returns the newest ``limit`` messages, oldest first; at most 10,000.

        :param before: The position before which the messages are.
        """
        return _messages(self._native.tail(_pair(thread), limit, to_text(before)).wait())

    async def atail(
        self, thread: Thread | tuple[str, str], limit: int, *, before: Position | None = None
    ) -> list[StoredMessage]:
        """As :meth:`tail`."""
        return _messages(await run(self._native.tail(_pair(thread), limit, to_text(before))))

    def page_after(
        self, thread: Thread | tuple[str, str], after: Position | int, limit: int
    ) -> list[StoredMessage]:
        """Returns up to ``limit`` messages after a position, oldest first; at most 10,000."""
        return _messages(self._native.page_after(_pair(thread), Position(after).text, limit).wait())

    async def apage_after(
        self, thread: Thread | tuple[str, str], after: Position | int, limit: int
    ) -> list[StoredMessage]:
        """As :meth:`page_after`."""
        return _messages(await run(self._native.page_after(_pair(thread), Position(after).text, limit)))

    def info(self, thread: Thread | tuple[str, str]) -> ThreadInfo:
        """Returns the number of messages, their bytes and the last position."""
        return _info(json.loads(self._native.info(_pair(thread)).wait()))

    async def ainfo(self, thread: Thread | tuple[str, str]) -> ThreadInfo:
        """As :meth:`info`."""
        return _info(json.loads(await run(self._native.info(_pair(thread)))))

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
            found += [_info(info) for info in page["items"]]
            if page["next"] is None:
                return found
            after = page["next"]["agent"], page["next"]["session"]

    def clear(self, thread: Thread | tuple[str, str], *, fence: int | None = None) -> int:
        """Removes all messages of a thread, and returns their number."""
        return self._native.clear(_pair(thread), fence).wait()

    async def aclear(self, thread: Thread | tuple[str, str], *, fence: int | None = None) -> int:
        """As :meth:`clear`."""
        return await run(self._native.clear(_pair(thread), fence))

    def clear_run(self, thread: Thread | tuple[str, str], run_id: str, *, fence: int | None = None) -> int:
        """Removes the messages of one run, and returns their number."""
        return self._native.clear_run(_pair(thread), run_id, fence).wait()

    async def aclear_run(
        self, thread: Thread | tuple[str, str], run_id: str, *, fence: int | None = None
    ) -> int:
        """As :meth:`clear_run`."""
        return await run(self._native.clear_run(_pair(thread), run_id, fence))

    def pop(
        self, thread: Thread | tuple[str, str], *, idempotency_key: str | None = None
    ) -> StoredMessage | None:
        """Removes the newest message and returns it. Of concurrent calls, no two return the same message."""
        return _popped(self._remove(thread, 1, None, None, idempotency_key).wait())

    async def apop(
        self, thread: Thread | tuple[str, str], *, idempotency_key: str | None = None
    ) -> StoredMessage | None:
        """As :meth:`pop`."""
        return _popped(await run(self._remove(thread, 1, None, None, idempotency_key)))

    def rewind(self, thread: Thread | tuple[str, str], after: Position | int) -> int:
        """Removes every message after a position, and returns their number."""
        return _removed(self._remove(thread, None, Position(after), None, None).wait())

    async def arewind(self, thread: Thread | tuple[str, str], after: Position | int) -> int:
        """As :meth:`rewind`."""
        return _removed(await run(self._remove(thread, None, Position(after), None, None)))

    def remove(self, thread: Thread | tuple[str, str], positions: Iterable[Position]) -> list[StoredMessage]:
        """Removes the messages at up to 1,000 positions, and returns those that existed."""
        return _taken(self._remove(thread, None, None, positions, None).wait())

    async def aremove(
        self, thread: Thread | tuple[str, str], positions: Iterable[Position]
    ) -> list[StoredMessage]:
        """As :meth:`remove`."""
        return _taken(await run(self._remove(thread, None, None, positions, None)))

    def _remove(
        self,
        thread: Thread | tuple[str, str],
        newest: int | None,
        after: Position | None,
        positions: Iterable[Position] | None,
        key: str | None,
    ) -> Call[str]:
        numbers = None if positions is None else [Position(position).text for position in positions]
        return self._native.remove(_pair(thread), newest, to_text(after), numbers, None, key, None)

    def replace(
        self,
        thread: Thread | tuple[str, str],
        up_to: Position,
        messages: Message | Iterable[Message],
        *,
        seen: Position | None = None,
        fence: int | None = None,
    ) -> Replaced:
        """Replaces every message up to a position by other messages.

        :param seen: The last position of the thread that the caller read; ``up_to`` if it is ``None``.
        :raises Conflict: if the thread changed since.
        """
        text = encode(messages)
        call = self._native.replace(_pair(thread), Position(up_to).text, to_text(seen), text, fence)
        return _replaced(call.wait())

    async def areplace(
        self,
        thread: Thread | tuple[str, str],
        up_to: Position,
        messages: Message | Iterable[Message],
        *,
        seen: Position | None = None,
        fence: int | None = None,
    ) -> Replaced:
        """As :meth:`replace`."""
        text = encode(messages)
        call = self._native.replace(_pair(thread), Position(up_to).text, to_text(seen), text, fence)
        return _replaced(await run(call))

    def fork(
        self,
        source: Thread | tuple[str, str],
        target: Thread | tuple[str, str],
        *,
        up_to: Position | None = None,
    ) -> Forked:
        """Copies the messages of a thread, all or those up to a position, into a thread without messages."""
        return _forked(self._native.fork(_pair(source), _pair(target), to_text(up_to), None).wait())

    async def afork(
        self,
        source: Thread | tuple[str, str],
        target: Thread | tuple[str, str],
        *,
        up_to: Position | None = None,
    ) -> Forked:
        """As :meth:`fork`."""
        return _forked(await run(self._native.fork(_pair(source), _pair(target), to_text(up_to), None)))

    def set_ttl(self, thread: Thread | tuple[str, str], ttl: Ttl | None) -> None:
        """Sets or removes the time to live of a thread."""
        self._native.set_ttl(_pair(thread), _ttl(ttl), None).wait()

    async def aset_ttl(self, thread: Thread | tuple[str, str], ttl: Ttl | None) -> None:
        """As :meth:`set_ttl`."""
        await run(self._native.set_ttl(_pair(thread), _ttl(ttl), None))

    def subscribe(self, thread: Thread | tuple[str, str], after: Position | int = 0) -> Iterator[Event]:
        """Yields the events of a thread after a position, and waits for new ones."""
        events = self._native.subscribe(_pair(thread), Position(after).text).wait()
        while (event := events.next().wait()) is not None:
            yield _event(event)

    async def asubscribe(
        self, thread: Thread | tuple[str, str], after: Position | int = 0
    ) -> AsyncIterator[Event]:
        """As :meth:`subscribe`."""
        events = await run(self._native.subscribe(_pair(thread), Position(after).text))
        while (event := await run(events.next())) is not None:
            yield _event(event)


def _pair(thread: Thread | tuple[str, str]) -> tuple[str, str]:
    if not isinstance(thread, tuple) or len(thread) != 2:
        raise invalid("python", "thread", "is not a thread; pass larder.Thread(agent, session)")
    return thread


def _ttl(ttl: Ttl | None) -> tuple[int, bool] | None:
    if ttl is None:
        return None
    return milliseconds("ttl", ttl.after) or 0, ttl.refresh_on_use


def _appended(text: str) -> Appended:
    appended = json.loads(text)
    return Appended(Position(appended["first"]), Position(appended["last"]))


def _messages(text: str) -> list[StoredMessage]:
    return [decode(stored) for stored in json.loads(text)]


def _info(info: dict[str, Any]) -> ThreadInfo:
    thread = Thread(info["thread"]["agent"], info["thread"]["session"])
    return ThreadInfo(thread, info["messages"], info["bytes"], Position(info["last"]))


def _taken(text: str) -> list[StoredMessage]:
    return [decode(stored) for stored in json.loads(text)["messages"]]


def _popped(text: str) -> StoredMessage | None:
    taken = _taken(text)
    return taken[0] if taken else None


def _removed(text: str) -> int:
    removed: int = json.loads(text)["removed"]
    return removed


def _replaced(text: str) -> Replaced:
    replaced = json.loads(text)
    return Replaced(replaced["removed"], Position(replaced["seq"]))


def _forked(text: str) -> Forked:
    forked = json.loads(text)
    return Forked(forked["messages"], Position(forked["last"]))


def _event(text: str) -> Event:
    event = json.loads(text)
    data = dict(event["kind"])
    kind, message = data.pop("kind"), data.pop("message", None)
    return Event(Position(event["seq"]), kind, None if message is None else decode_message(message), data)
