"""Record manager of LangChain."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from langchain_core.indexing import RecordManager

from larder._adapter import Steps, aperform, perform, step
from larder._errors import Conflict, invalid
from larder._key_value import Delete, Put, batches
from larder._stores import Stores

_CLOCK_S = 3600
_ALL = 2**53


class LarderRecordManager(RecordManager):
    """Records which documents the indexing of LangChain has written, by the clock of the store.

    :param namespace: The namespace of the records.
    :param stores: Open stores.
    :param prefix: The prefix of the bucket's name.
    :raises Unsupported: if the stores have no key-value store.
    """

    def __init__(self, namespace: str, stores: Stores, *, prefix: str = "langchain-records/") -> None:
        super().__init__(namespace)
        self._store = stores.key_value
        self._bucket = prefix + namespace
        self._clock = prefix.rstrip("/") + "-clock"

    def create_schema(self) -> None:
        """Does nothing: a bucket needs no schema."""

    async def acreate_schema(self) -> None:
        """As :meth:`create_schema`."""

    def get_time(self) -> float:
        """Returns the time of the store in seconds since 1970. It is later than each one returned before."""
        return perform(self._time())

    async def aget_time(self) -> float:
        """As :meth:`get_time`."""
        return await aperform(self._time())

    def _time(self) -> Steps[float]:
        # The store's clock sets the expiry of a key.
        yield step(self._store.set, self._clock, "now", b"", ttl=_CLOCK_S)
        entry = yield step(self._store.entry, self._clock, "now")
        now = int(entry.expires_at.timestamp() * 1_000_000) - _CLOCK_S * 1_000_000
        while True:
            # Two times are never equal, because the indexing deletes what is older than its begin.
            last = yield step(self._store.entry, self._clock, "last")
            micros = now if last is None else max(now, int(last.value) + 1)
            at = None if last is None else last.revision
            try:
                yield step(self._store.set, self._clock, "last", b"%d" % micros, create=last is None, at=at)
            except Conflict:
                continue
            return micros / 1_000_000

    def update(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """Records keys with the time of the store.

        :param group_ids: The groups of the keys.
        :raises InvalidInput: if the numbers of keys and groups differ, or ``time_at_least`` is in the future.
        """
        perform(self._update(keys, group_ids, time_at_least))

    async def aupdate(
        self,
        keys: Sequence[str],
        *,
        group_ids: Sequence[str | None] | None = None,
        time_at_least: float | None = None,
    ) -> None:
        """As :meth:`update`."""
        await aperform(self._update(keys, group_ids, time_at_least))

    def _update(
        self, keys: Sequence[str], groups: Sequence[str | None] | None, time_at_least: float | None
    ) -> Steps[None]:
        if groups and len(groups) != len(keys):
            raise invalid("langchain.update", "group_ids", "has not one group for each key; pass as many")
        if not keys:
            return
        time = yield from self._time()
        if time_at_least is not None and time_at_least > time:
            raise invalid("langchain.update", "time_at_least", "is in the future by the clock of the store")
        records = dict(zip(keys, groups or [None] * len(keys), strict=True))
        writes = (Put(key, _record(group, time)) for key, group in records.items())
        for batch in batches(writes):
            yield step(self._store.write, self._bucket, batch)

    def exists(self, keys: Sequence[str]) -> list[bool]:
        """Returns for each key whether it is recorded."""
        return [value is not None for value in self._store.get_many(self._bucket, keys)]

    async def aexists(self, keys: Sequence[str]) -> list[bool]:
        """As :meth:`exists`."""
        return [value is not None for value in await self._store.aget_many(self._bucket, keys)]

    def list_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """Lists keys in byte order. It reads all records.

        :param before: The time before which the key was recorded.
        :param after: The time after which the key was recorded.
        :param group_ids: The groups, one of which the key has.
        """
        return perform(self._list(before, after, group_ids, limit))

    async def alist_keys(
        self,
        *,
        before: float | None = None,
        after: float | None = None,
        group_ids: Sequence[str] | None = None,
        limit: int | None = None,
    ) -> list[str]:
        """As :meth:`list_keys`."""
        return await aperform(self._list(before, after, group_ids, limit))

    def _list(
        self, before: float | None, after: float | None, groups: Sequence[str] | None, limit: int | None
    ) -> Steps[list[str]]:
        items = yield step(self._store.entries, self._bucket, values=True, limit=_ALL)
        found = []
        for item in items:
            record: dict[str, Any] = json.loads(item.value)
            if before is not None and record["time"] >= before:
                continue
            if after is not None and record["time"] <= after:
                continue
            if not groups or record["group"] in groups:
                found.append(item.key)
        return found if limit is None else found[:limit]

    def delete_keys(self, keys: Sequence[str]) -> None:
        """Deletes the records of keys."""
        perform(self._delete(keys))

    async def adelete_keys(self, keys: Sequence[str]) -> None:
        """As :meth:`delete_keys`."""
        await aperform(self._delete(keys))

    def _delete(self, keys: Sequence[str]) -> Steps[None]:
        for batch in batches(Delete(key) for key in dict.fromkeys(keys)):
            yield step(self._store.write, self._bucket, batch)


def _record(group: str | None, time: float) -> bytes:
    return json.dumps({"group": group, "time": time}).encode()
