"""The arguments and results of conversations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from larder._errors import invalid
from larder._messages import Message, StoredMessage, Thread, decode, decode_message, to_json
from larder._position import Position
from larder._time import Duration, milliseconds


class Appended(NamedTuple):
    """The positions of appended messages."""

    first: Position
    last: Position


class MessagePage(list[StoredMessage]):
    """The result of a read: messages of a thread, oldest first.

    A page has at most the requested number of messages, and at most 16 MiB of them. To read on, pass :meth:`next`
    to :meth:`History.page_after <larder.History.page_after>`, or :meth:`previous` to
    :meth:`History.tail <larder.History.tail>`.
    """

    last: Position
    """The last position of the thread at the instant of the read. An append with it as ``if_last`` succeeds if the
    thread has not changed since."""
    more: bool
    """Whether the page would have more messages without the limit on its bytes."""

    def __init__(self, messages: Iterable[StoredMessage], last: Position, more: bool = False) -> None:
        super().__init__(messages)
        self.last = last
        self.more = more

    def next(self, limit: int) -> Position | None:
        """Returns the position to read after for the messages that follow a page with this limit; ``None`` if
        no messages followed."""
        return self[-1].seq if self and self._is_cut(limit) else None

    def previous(self, limit: int) -> Position | None:
        """Returns the position to read before for the messages that precede a page with this limit; ``None`` if
        no messages preceded it."""
        return self[0].seq if self and self._is_cut(limit) else None

    def _is_cut(self, limit: int) -> bool:
        return self.more or len(self) >= limit


class ThreadInfo(NamedTuple):
    """The counts of a thread."""

    thread: Thread
    messages: int
    bytes: int
    last: Position
    """The greatest position of a message or an event; 0 before the first."""


class Updated(NamedTuple):
    """The result of an update."""

    revision: Position
    """The new revision of the message."""
    last: Position
    """The position of the event of the update."""


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
    """``appended``, ``updated``, ``replaced``, ``removed``, ``rewound``, ``run_cleared`` or ``cleared``."""
    message: Message | None
    """The message of ``appended`` and ``updated``."""
    data: dict[str, Any]
    """The other fields of the event."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Selects the messages of some authors, at most 64 names.

    A message passes if it matches an included name, or none is included, and no excluded one. A message without an
    author belongs to the agent of its thread.

    >>> import larder
    >>> critics = larder.MessageFilter(include_roles=["critic"])
    """

    include_agents: Sequence[str] = ()
    include_roles: Sequence[str] = ()
    exclude_agents: Sequence[str] = ()
    exclude_roles: Sequence[str] = ()


def as_pair(thread: Thread | tuple[str, str]) -> tuple[str, str]:
    if not isinstance(thread, tuple) or len(thread) != 2:
        raise invalid("python", "thread", "is not a thread; pass larder.Thread(agent, session)")
    return thread


def as_ttl(ttl: Ttl | None) -> tuple[int, bool] | None:
    if ttl is None:
        return None
    return milliseconds("ttl", ttl.after) or 0, ttl.refresh_on_use


def as_appended(text: str) -> Appended:
    appended = json.loads(text)
    return Appended(Position(appended["first"]), Position(appended["last"]))


def as_page(text: str) -> MessagePage:
    page = json.loads(text)
    return MessagePage(map(decode, page["messages"]), Position(page["last"]), page["more"])


def as_info(info: dict[str, Any]) -> ThreadInfo:
    thread = Thread(info["thread"]["agent"], info["thread"]["session"])
    return ThreadInfo(thread, info["messages"], info["bytes"], Position(info["last"]))


def as_taken(text: str) -> list[StoredMessage]:
    return [decode(stored) for stored in json.loads(text)["messages"]]


def as_popped(text: str) -> StoredMessage | None:
    taken = as_taken(text)
    return taken[0] if taken else None


def as_removed(text: str) -> int:
    removed: int = json.loads(text)["removed"]
    return removed


def as_updated(text: str) -> Updated:
    updated = json.loads(text)
    return Updated(Position(updated["revision"]), Position(updated["last"]))


def as_filter(filter: MessageFilter | None) -> str | None:
    if filter is None:
        return None
    if not isinstance(filter, MessageFilter):
        raise invalid("python", "filter", f"is a `{type(filter).__name__}`; pass larder.MessageFilter")
    kinds = {
        "include": ([*_terms("agent", filter.include_agents), *_terms("role", filter.include_roles)]),
        "exclude": ([*_terms("agent", filter.exclude_agents), *_terms("role", filter.exclude_roles)]),
    }
    return to_json("filter", [{kind: terms} for kind, terms in kinds.items() if terms])


def _terms(kind: str, names: Sequence[str]) -> list[dict[str, str]]:
    if isinstance(names, str):
        raise invalid("python", "filter", "is a str; pass a list of names")
    return [{kind: name} for name in names]


def as_replaced(text: str) -> Replaced:
    replaced = json.loads(text)
    return Replaced(replaced["removed"], Position(replaced["seq"]))


def as_forked(text: str) -> Forked:
    forked = json.loads(text)
    return Forked(forked["messages"], Position(forked["last"]))


def as_event(text: str) -> Event:
    event = json.loads(text)
    data = dict(event["kind"])
    kind, message = data.pop("kind"), data.pop("message", None)
    return Event(Position(event["seq"]), kind, None if message is None else decode_message(message), data)
