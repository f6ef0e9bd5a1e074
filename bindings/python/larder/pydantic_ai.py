"""PydanticAI: conversations on any backend.

>>> import asyncio
>>> from larder.pydantic_ai import LarderConversationStore
>>> async def main():
...     async with LarderConversationStore.from_url("memory:") as store:
...         return await store.load("trip-1")
>>> asyncio.run(main())
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Self

from larder._adapter import missing, settled
from larder._closing import Owner
from larder._errors import Conflict
from larder._key_value import Delete, Put
from larder._position import Position
from larder._stores import Stores, aopen, open

try:
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )

    from larder import _pydantic_values as values
except ModuleNotFoundError as _error:
    raise missing("larder.pydantic_ai", "PydanticAI", "pydantic-ai") from _error

__all__ = ["LarderConversationStore"]

_ALL = 2**53
_PAUSE_S = 0.01
_WRITES = 500


class LarderConversationStore(Owner, ConversationStore):
    """Stores conversations in a key-value store.

    A save of up to 500 messages and 12 MiB is one atomic write. A larger save writes its first messages before.
    A message has at most 4 MiB. The identifier of a conversation has at most 470 bytes, and 500 with its scope.

    A deletion removes the messages that no other conversation has. It reads the histories of the conversations
    that are forks of each other.

    :param stores: Open stores. The object does not close them.
    :param bucket: The bucket, which nothing else uses.
    :raises Unsupported: if the stores have no key-value store.
    """

    def __init__(self, stores: Stores, *, bucket: str = "pydantic-ai") -> None:
        self._store = stores.key_value
        self._bucket = bucket

    @classmethod
    def from_url(cls, *urls: str, namespace: str = "default", bucket: str = "pydantic-ai") -> Self:
        """Opens stores as :func:`larder.open` does. The object closes them: use it with ``async with``."""
        stores = open(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, bucket=bucket))

    @classmethod
    async def afrom_url(cls, *urls: str, namespace: str = "default", bucket: str = "pydantic-ai") -> Self:
        """As :meth:`from_url`."""
        stores = await aopen(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, bucket=bucket))

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """Returns the record of a conversation; ``None`` if it does not exist."""
        value = await self._store.aget(self._bucket, values.record_key(conversation_id))
        return None if value is None else values.decode_record(value).record

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """Returns the records of a scope, or all records, newest first."""
        if scope is None:
            items = await self._store.aentries(self._bucket, values.record_key(""), values=True, limit=_ALL)
            records = [values.decode_record(item.value or b"").record for item in items]
        else:
            found = await self._listed(values.scope_key(scope, ""))
            records = [record for record in found if record.scope == scope]
        return sorted(records, key=lambda record: record.updated_at, reverse=True)[:limit]

    async def _listed(self, prefix: str) -> list[ConversationRecord]:
        """Returns the records of the conversations that an index has."""
        items = await self._store.aentries(self._bucket, prefix, limit=_ALL)
        keys = [values.record_key(item.key.removeprefix(prefix)) for item in items]
        found = await self._store.aget_many(self._bucket, keys)
        return [values.decode_record(value).record for value in found if value is not None]

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Writes a record and the entries that its history adds. If the task is canceled, the write ends before.

        :raises ConversationConflict: if the record has another revision, or an entry that it continues does not
            exist.
        """
        while not await settled(self._write(record, new_entries, expected_revision)):
            await _pause()

    async def _write(
        self, record: ConversationRecord, entries: Sequence[ConversationEntry], expected: str | None
    ) -> bool:
        id = record.conversation_id
        fresh = {entry.id for entry in entries}
        ends = (record.head_id, *(entry.parent_id for entry in entries))
        used = [end for end in dict.fromkeys(ends) if end is not None and end not in fresh]
        roots: list[str] = []
        while True:
            # The guards are first, so that no deletion between the two reads goes unnoticed.
            keys = [*map(values.guard_key, roots), values.record_key(id), *map(values.entry_key, used)]
            found = await self._store.aentry_many(self._bucket, keys)
            guards, stored, parents = found[: len(roots)], found[len(roots)], found[len(roots) + 1 :]
            old = None if stored is None else values.decode_record(stored.value)
            if (None if old is None else old.record.revision) != expected or None in parents:
                raise ConversationConflict(id)
            heads = {
                key: values.head(parent.value)
                for key, parent in zip(used, parents, strict=True)
                if parent is not None
            }
            own = [] if old is None else old.roots
            joined = sorted({head.root for head in heads.values()} - set(own))
            if joined == roots:
                break
            roots = joined
        writes = values.encode_entries(entries, heads)
        began = [entry.id for entry in entries if entry.parent_id is None]
        new = values.encode_record(record, [*own, *roots, *began])
        writes += [Put(values.guard_key(root), b"") for root in began]
        for root, guard in zip(roots, guards, strict=True):
            # A fork and a deletion of what it shares exclude each other.
            at = None if guard is None else guard.revision
            writes.append(Put(values.guard_key(root), b"", create=guard is None, at=at))
        before = set() if old is None else values.index_keys(old)
        after = values.index_keys(values.decode_record(new))
        changes: list[Put | Delete] = [*writes, *(Put(key, b"") for key in sorted(after - before))]
        changes += [Delete(key) for key in sorted(before - after)]
        at = None if stored is None else stored.revision
        return await self._apply([*changes, Put(values.record_key(id), new, create=stored is None, at=at)])

    async def _apply(self, writes: Sequence[Put | Delete]) -> bool:
        """Makes writes, the last ones with the record in one step; ``False`` if another writer was faster."""
        *early, last = values.batches(writes, _WRITES)
        for batch in early:
            await self._store.awrite(self._bucket, batch)
        try:
            await self._store.awrite(self._bucket, last)
        except Conflict:
            for batch in early:
                await self._store.awrite(self._bucket, [Delete(write.key) for write in batch])
            return False
        return True

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Deletes a conversation, and the messages that no other conversation has.

        :raises ConversationConflict: if the record has another revision.
        """
        await settled(self._delete(conversation_id, expected_revision))

    async def _delete(self, id: str, expected: str) -> None:
        key = values.record_key(id)
        stored = await self._store.aentry(self._bucket, key)
        old = None if stored is None else values.decode_record(stored.value)
        if stored is None or old is None or old.record.revision != expected:
            raise ConversationConflict(id)
        own = await self._reached([old.record])
        first: list[Put | Delete] = [Delete(key, at=stored.revision)]
        first += [Delete(index) for index in values.index_keys(old)]
        while not await self._release(id, own, old.roots, first):
            await _pause()
            entry = await self._store.aentry(self._bucket, key)
            if first and (entry is None or entry.revision != stored.revision):
                raise ConversationConflict(id)

    async def _release(self, id: str, own: list[str], roots: list[str], first: list[Put | Delete]) -> bool:
        """Deletes the entries of a conversation that no other one has; ``False`` if another writer was faster.

        The first write has the ``first`` writes, which it then clears.
        """
        found = await self._store.aentry_many(self._bucket, map(values.guard_key, roots))
        guards = {root: guard.revision for root, guard in zip(roots, found, strict=True) if guard}
        others = [
            record
            for root in roots
            for record in await self._listed(values.member_key(root, ""))
            if record.conversation_id != id
        ]
        shared = set(await self._reached(others))
        # Entries after a shared one are deleted before it, so that each history that remains is whole.
        rest = [entry for entry in own if entry not in shared]
        while first or rest:
            batch, rest = rest[:_WRITES], rest[_WRITES:]
            writes = [*first, *(Delete(values.entry_key(entry)) for entry in batch)]
            for root, at in guards.items():
                guard = values.guard_key(root)
                writes.append(Put(guard, b"", at=at) if rest or others else Delete(guard, at=at))
            try:
                revisions = await self._store.awrite(self._bucket, writes)
            except Conflict:
                return False
            guards = dict(zip(guards, _known(revisions[len(writes) - len(guards) :]), strict=True))
            first.clear()
        return True

    async def _reached(self, records: Iterable[ConversationRecord]) -> list[str]:
        """Returns the entries of histories and branches, each after all those that follow it."""
        lines: list[list[str]] = []
        found: set[str] = set()
        for record in records:
            for tip in (record.head_id, *record.branches):
                line: list[str] = []
                ids = [] if tip is None else [tip]
                while ids:
                    new = list(takewhile(lambda id: id not in found, ids))
                    found.update(new)
                    line += new
                    value = await self._store.aget(self._bucket, values.entry_key(ids[-1]))
                    ids = [] if value is None or len(new) < len(ids) else values.head(value).before
                lines.append(line)
        return [id for line in reversed(lines) for id in line]

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """Returns an entry.

        :raises KeyError: if it does not exist.
        """
        [entry] = await self._entries([entry_id])
        return values.decode_entry(entry_id, entry)

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> list[ConversationEntry]:
        """Returns the entries up to one, in their order, or only the last ``limit`` of them.

        :raises KeyError: if an entry does not exist.
        """
        entries: list[ConversationEntry] = []
        ids = [] if head_id is None else [head_id]
        while ids and (limit is None or len(entries) < limit):
            ids = ids if limit is None else ids[: limit - len(entries)]
            found = await self._entries(ids)
            entries += map(values.decode_entry, ids, found)
            ids = values.head(found[-1]).before
        return entries[::-1]

    async def _entries(self, ids: list[str]) -> list[bytes]:
        found = await self._store.aget_many(self._bucket, map(values.entry_key, ids))
        for id, value in zip(ids, found, strict=True):
            if value is None:
                raise KeyError(id)
        return [value for value in found if value is not None]


def _known(revisions: list[Position | None]) -> list[Position]:
    return [revision for revision in revisions if revision is not None]


async def _pause() -> None:
    """Waits until another writer has probably ended."""
    await asyncio.sleep(random.random() * _PAUSE_S)
