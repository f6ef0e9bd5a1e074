"""Byte store and cache of LangChain."""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

from langchain_core.caches import RETURN_VAL_TYPE, BaseCache
from langchain_core.load import dumps, loads
from langchain_core.stores import ByteStore

from larder._adapter import Steps, aperform, perform, step
from larder._key_value import Delete, Put, batches
from larder._stores import Stores
from larder._time import Duration

_KEYS = 1_000


class LarderByteStore(ByteStore):
    """Stores bytes under keys in a bucket. A key has at most 512 bytes, a value at most 4 MiB.

    :param stores: Open stores.
    :param bucket: The bucket.
    :param ttl: The time to live of a value in seconds; ``None`` keeps it.
    :raises Unsupported: if the stores have no key-value store.
    """

    def __init__(self, stores: Stores, *, bucket: str = "langchain", ttl: Duration | None = None) -> None:
        self._store = stores.key_value
        self._bucket = bucket
        self._ttl = ttl

    def mget(self, keys: Sequence[str]) -> list[bytes | None]:
        """Returns the values of keys in their order; ``None`` for a key that does not exist."""
        return self._store.get_many(self._bucket, keys)

    async def amget(self, keys: Sequence[str]) -> list[bytes | None]:
        """As :meth:`mget`."""
        return await self._store.aget_many(self._bucket, keys)

    def mset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """Writes values: up to 1,000 keys and 12 MiB in one atomic write, more in several."""
        perform(self._set(key_value_pairs))

    async def amset(self, key_value_pairs: Sequence[tuple[str, bytes]]) -> None:
        """As :meth:`mset`."""
        await aperform(self._set(key_value_pairs))

    def _set(self, pairs: Sequence[tuple[str, bytes]]) -> Steps[None]:
        # Of several values of one key, the last one counts.
        for batch in batches(Put(key, value, ttl=self._ttl) for key, value in dict(pairs).items()):
            yield step(self._store.write, self._bucket, batch)

    def mdelete(self, keys: Sequence[str]) -> None:
        """Deletes keys: up to 1,000 in one atomic write, more in several."""
        perform(self._delete(keys))

    async def amdelete(self, keys: Sequence[str]) -> None:
        """As :meth:`mdelete`."""
        await aperform(self._delete(keys))

    def _delete(self, keys: Sequence[str]) -> Steps[None]:
        for batch in batches(Delete(key) for key in dict.fromkeys(keys)):
            yield step(self._store.write, self._bucket, batch)

    def yield_keys(self, *, prefix: str | None = None) -> Iterator[str]:
        """Yields the keys that begin with a prefix, in byte order."""
        after: str | None = None
        while True:
            page = self._store.entries(self._bucket, prefix or "", after=after, limit=_KEYS)
            yield from (item.key for item in page)
            if len(page) < _KEYS:
                return
            after = page[-1].key

    # LangChain annotates its generator with a union, so pyright takes it for a coroutine.
    async def ayield_keys(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, *, prefix: str | None = None
    ) -> AsyncIterator[str]:
        """As :meth:`yield_keys`."""
        after: str | None = None
        while True:
            page = await self._store.aentries(self._bucket, prefix or "", after=after, limit=_KEYS)
            for item in page:
                yield item.key
            if len(page) < _KEYS:
                return
            after = page[-1].key


class LarderCache(BaseCache):
    """Caches what models return. Pass it to ``set_llm_cache``.

    :param stores: Open stores.
    :param bucket: The bucket, which nothing else uses.
    :param ttl: The time to live of a value in seconds; ``None`` keeps it.
    :raises Unsupported: if the stores have no key-value store.
    """

    def __init__(
        self, stores: Stores, *, bucket: str = "langchain-cache", ttl: Duration | None = None
    ) -> None:
        self._store = stores.key_value
        self._bucket = bucket
        self._ttl = ttl

    def lookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """Returns the generations of a prompt; ``None`` if the cache has none."""
        return _read(self._store.get(self._bucket, _key(prompt, llm_string)))

    async def alookup(self, prompt: str, llm_string: str) -> RETURN_VAL_TYPE | None:
        """As :meth:`lookup`."""
        return _read(await self._store.aget(self._bucket, _key(prompt, llm_string)))

    def update(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """Caches the generations of a prompt."""
        self._store.set(self._bucket, _key(prompt, llm_string), _written(return_val), ttl=self._ttl)

    async def aupdate(self, prompt: str, llm_string: str, return_val: RETURN_VAL_TYPE) -> None:
        """As :meth:`update`."""
        await self._store.aset(self._bucket, _key(prompt, llm_string), _written(return_val), ttl=self._ttl)

    def clear(self, **kwargs: Any) -> None:
        """Deletes everything in the cache."""
        self._store.delete_prefix(self._bucket, "")

    async def aclear(self, **kwargs: Any) -> None:
        """As :meth:`clear`."""
        await self._store.adelete_prefix(self._bucket, "")


def _key(prompt: str, llm_string: str) -> str:
    return hashlib.sha256(json.dumps([prompt, llm_string]).encode()).hexdigest()


def _written(generations: RETURN_VAL_TYPE) -> bytes:
    return dumps(list(generations)).encode()


def _read(value: bytes | None) -> RETURN_VAL_TYPE | None:
    if value is None:
        return None
    found: RETURN_VAL_TYPE = loads(value.decode(), allowed_objects="core")
    return found
