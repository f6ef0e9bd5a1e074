"""Small state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from larder._errors import invalid
from larder._native import KeyValue as NativeKeyValue
from larder._page import wanted
from larder._position import Position, to_text
from larder._run import Plan, Unpicklable, adrive, drive, run
from larder._time import Duration, from_micros, milliseconds

if TYPE_CHECKING:
    from larder._native import Change as NativeChange
    from larder._native import Write as NativeWrite

Buffer = bytes | bytearray | memoryview
"""Bytes. They are copied once."""

_PAGE = 10_000
_WRITES = 1_000
_WRITES_BYTES = 12 * 1024 * 1024


class Entry(NamedTuple):
    """A value with its revision."""

    value: bytes
    revision: Position
    expires_at: datetime | None
    """The time from which the key reads as absent, by the store's clock."""


class Change(NamedTuple):
    """A change of a key."""

    key: str
    value: bytes | None
    """The new value; ``None`` if the key was deleted or has expired."""
    revision: Position
    expires_at: datetime | None


class Item(NamedTuple):
    """A key in a listing."""

    key: str
    revision: Position
    expires_at: datetime | None
    value: bytes | None
    """The value, if the listing has values."""


@dataclass(frozen=True, slots=True)
class Put:
    """Writes a key in :meth:`KeyValue.write`."""

    key: str
    value: Buffer
    ttl: Duration | None = None
    """The time to live in seconds; ``None`` keeps the key."""
    create: bool = False
    """``True`` if the key must not exist."""
    at: Position | None = None
    """The revision that the key must have."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a key in :meth:`KeyValue.write`."""

    key: str
    at: Position | None = None
    """The revision that the key must have."""


class KeyValue(Unpicklable):
    """Small state: values under keys, in buckets, with a revision for each write.

    A bucket and a key are 1 to 512 bytes of UTF-8 without NUL. A value has at most 4 MiB.

    >>> import larder
    >>> with larder.open("memory:") as stores:
    ...     revision = stores.key_value.set("trips", "basel", b"booked")
    ...     stores.key_value.get("trips", "basel")
    b'booked'
    """

    __slots__ = ("_native", "_stores")

    def __init__(self, native: NativeKeyValue, stores: object) -> None:
        self._native = native
        # The stores are closed when nobody holds them.
        self._stores = stores

    def get(self, bucket: str, key: str) -> bytes | None:
        """Returns the value of a key; ``None`` if the key does not exist or has expired."""
        return self._native.get(bucket, key).wait()

    async def aget(self, bucket: str, key: str) -> bytes | None:
        """As :meth:`get`."""
        return await run(self._native.get(bucket, key))

    def entry(self, bucket: str, key: str) -> Entry | None:
        """Returns the value of a key with its revision and expiry."""
        return _entry(self._native.entry(bucket, key).wait())

    async def aentry(self, bucket: str, key: str) -> Entry | None:
        """As :meth:`entry`."""
        return _entry(await run(self._native.entry(bucket, key)))

    def get_many(self, bucket: str, keys: Iterable[str]) -> list[bytes | None]:
        """Returns the values of any number of keys, in their order; ``None`` for a key that does not exist.

        Up to 1,000 keys with 16 MiB of values are read at one instant.
        """
        return [found and found[0] for found in self._native.get_many(bucket, list(keys)).wait()]

    async def aget_many(self, bucket: str, keys: Iterable[str]) -> list[bytes | None]:
        """As :meth:`get_many`."""
        return [found and found[0] for found in await run(self._native.get_many(bucket, list(keys)))]

    def entry_many(self, bucket: str, keys: Iterable[str]) -> list[Entry | None]:
        """As :meth:`get_many`, with the revisions and expiries."""
        return [_entry(found) for found in self._native.get_many(bucket, list(keys)).wait()]

    async def aentry_many(self, bucket: str, keys: Iterable[str]) -> list[Entry | None]:
        """As :meth:`entry_many`."""
        return [_entry(found) for found in await run(self._native.get_many(bucket, list(keys)))]

    def set(
        self,
        bucket: str,
        key: str,
        value: Buffer,
        *,
        ttl: Duration | None = None,
        create: bool = False,
        at: Position | None = None,
    ) -> Position:
        """Writes a value and returns its revision.

        :param ttl: The time to live in seconds; ``None`` keeps the key.
        :param create: ``True`` if the key must not exist.
        :param at: The revision that the key must have.
        :raises Conflict: if the condition does not hold.
        """
        ttl_ms = milliseconds("ttl", ttl)
        return Position(self._native.set(bucket, key, value, ttl_ms, create, to_text(at)).wait())

    async def aset(
        self,
        bucket: str,
        key: str,
        value: Buffer,
        *,
        ttl: Duration | None = None,
        create: bool = False,
        at: Position | None = None,
    ) -> Position:
        """As :meth:`set`."""
        ttl_ms = milliseconds("ttl", ttl)
        return Position(await run(self._native.set(bucket, key, value, ttl_ms, create, to_text(at))))

    def delete(self, bucket: str, key: str, *, at: Position | None = None) -> bool:
        """Deletes a key and returns whether it existed.

        :param at: The revision that the key must have.
        :raises Conflict: if the key has another revision.
        """
        return self._native.delete(bucket, key, to_text(at)).wait()

    async def adelete(self, bucket: str, key: str, *, at: Position | None = None) -> bool:
        """As :meth:`delete`."""
        return await run(self._native.delete(bucket, key, to_text(at)))

    def write(self, bucket: str, writes: Iterable[Put | Delete]) -> list[Position | None]:
        """Writes and deletes up to 1,000 keys, each under its own condition, all or none.

        Returns the revision of each put and of each deletion of an existing key.

        :raises Conflict: if a condition does not hold; ``context["write"]`` is the index of the write.
        """
        return _revisions(self._native.write(bucket, [_write(write) for write in writes]).wait())

    async def awrite(self, bucket: str, writes: Iterable[Put | Delete]) -> list[Position | None]:
        """As :meth:`write`."""
        return _revisions(await run(self._native.write(bucket, [_write(write) for write in writes])))

    def entries(
        self,
        bucket: str,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        descending: bool = False,
        values: bool = False,
        after: str | None = None,
        limit: int = _PAGE,
    ) -> list[Item]:
        """Lists up to ``limit`` keys that begin with a prefix, in byte order.

        :param start: The first key to list.
        :param end: The key before which the listing ends.
        :param values: ``True`` to return the values.
        :param after: The key after which the listing begins; it need not exist.
        """
        return drive(self._entries(bucket, prefix, start, end, descending, values, after, limit))

    async def aentries(
        self,
        bucket: str,
        prefix: str = "",
        *,
        start: str | None = None,
        end: str | None = None,
        descending: bool = False,
        values: bool = False,
        after: str | None = None,
        limit: int = _PAGE,
    ) -> list[Item]:
        """As :meth:`entries`."""
        return await adrive(self._entries(bucket, prefix, start, end, descending, values, after, limit))

    def _entries(
        self,
        bucket: str,
        prefix: str,
        start: str | None,
        end: str | None,
        descending: bool,
        values: bool,
        after: str | None,
        limit: int,
    ) -> Plan[list[Item]]:
        found: list[Item] = []
        while True:
            count = wanted(limit, len(found), _PAGE)
            page = self._native.entries(bucket, prefix, start, end, descending, values, after, count)
            items, after = yield page
            found += [Item(key, Position(at), from_micros(expiry), value) for key, value, at, expiry in items]
            if after is None or len(found) >= limit:
                return found

    def delete_prefix(self, bucket: str, prefix: str) -> int:
        """Deletes all keys that begin with a prefix, in steps of 1,000, and returns their number."""
        return self._native.delete_prefix(bucket, prefix).wait()

    async def adelete_prefix(self, bucket: str, prefix: str) -> int:
        """As :meth:`delete_prefix`."""
        return await run(self._native.delete_prefix(bucket, prefix))

    def watch(self, bucket: str, prefix: str = "", *, after: Position | int = 0) -> Iterator[Change]:
        """Yields the latest change after a revision to each key with a prefix, then waits for new changes.

        :raises Conflict: if the bucket was erased or lost, or no longer has the deletions since ``after``: discard
            what you know of it, and watch from revision 0.
        """
        events = self._native.watch(bucket, prefix, Position(after).text).wait()
        while (change := events.next().wait()) is not None:
            yield _change(change)

    async def awatch(
        self, bucket: str, prefix: str = "", *, after: Position | int = 0
    ) -> AsyncIterator[Change]:
        """As :meth:`watch`."""
        events = await run(self._native.watch(bucket, prefix, Position(after).text))
        while (change := await run(events.next())) is not None:
            yield _change(change)

    def buckets(self) -> dict[str, int]:
        """Returns the buckets that have keys, with the numbers of their keys, in byte order."""
        return drive(self._buckets())

    async def abuckets(self) -> dict[str, int]:
        """As :meth:`buckets`."""
        return await adrive(self._buckets())

    def _buckets(self) -> Plan[dict[str, int]]:
        found: dict[str, int] = {}
        after: str | None = None
        while True:
            items, after = yield self._native.buckets(after, _PAGE)
            found.update(items)
            if after is None:
                return found


def batches(writes: Iterable[Put | Delete]) -> Iterator[list[Put | Delete]]:
    """Divides writes into calls of up to 1,000 keys and 12 MiB."""
    batch: list[Put | Delete] = []
    size = 0
    for write in writes:
        value = write.value if isinstance(write, Put) else b""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise invalid("python", "value", f"is of the type `{type(value).__name__}`; pass bytes")
        own = len(value) + 512
        if batch and (len(batch) == _WRITES or size + own > _WRITES_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(write)
        size += own
    if batch:
        yield batch


def _entry(found: tuple[bytes, str, int | None] | None) -> Entry | None:
    if found is None:
        return None
    value, revision, expires_at = found
    return Entry(value, Position(revision), from_micros(expires_at))


def _change(found: NativeChange) -> Change:
    key, value, revision, expires_at = found
    return Change(key, value, Position(revision), from_micros(expires_at))


def _write(write: Put | Delete) -> NativeWrite:
    if isinstance(write, Delete):
        return write.key, None, None, False, to_text(write.at)
    return write.key, write.value, milliseconds("ttl", write.ttl), write.create, to_text(write.at)


def _revisions(revisions: list[str | None]) -> list[Position | None]:
    return [None if revision is None else Position(revision) for revision in revisions]
