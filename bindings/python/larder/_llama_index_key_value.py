"""Key-value store of LlamaIndex."""

from __future__ import annotations

import json
from typing import Any

from llama_index.core.storage.kvstore.types import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_COLLECTION,
    BaseKVStore,
)

from larder._adapter import Steps, aperform, perform, step
from larder._key_value import Item, Put, batches
from larder._messages import to_json
from larder._stores import Stores

_Value = dict[str, Any]


class LarderKVStore(BaseKVStore):
    """Stores dictionaries as JSON under keys. A collection is a bucket. A value has at most 4 MiB.

    The document stores and index stores of LlamaIndex take it.

    >>> import larder
    >>> from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
    >>> from larder.llama_index import LarderKVStore
    >>> with larder.open("memory:") as stores:
    ...     documents = KVDocumentStore(LarderKVStore(stores))

    :param stores: Open stores. The key-value store does not close them.
    :param prefix: The beginning of the buckets' names.
    :raises Unsupported: if the stores have no key-value store.
    """

    def __init__(self, stores: Stores, *, prefix: str = "llama-index/") -> None:
        self._store = stores.key_value
        self._prefix = prefix

    def put(self, key: str, val: _Value, collection: str = DEFAULT_COLLECTION) -> None:
        """Writes a value."""
        perform(self._put([(key, val)], collection))

    async def aput(self, key: str, val: _Value, collection: str = DEFAULT_COLLECTION) -> None:
        """As :meth:`put`."""
        await aperform(self._put([(key, val)], collection))

    def put_all(
        self,
        kv_pairs: list[tuple[str, _Value]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        """Writes values: up to 1,000 keys and 12 MiB in one atomic write, more in several.

        :param batch_size: Ignored.
        """
        perform(self._put(kv_pairs, collection))

    async def aput_all(
        self,
        kv_pairs: list[tuple[str, _Value]],
        collection: str = DEFAULT_COLLECTION,
        batch_size: int = DEFAULT_BATCH_SIZE,
    ) -> None:
        """As :meth:`put_all`."""
        await aperform(self._put(kv_pairs, collection))

    def _put(self, pairs: list[tuple[str, _Value]], collection: str) -> Steps[None]:
        # Of several values of one key, the last one counts.
        written = [Put(key, to_json("val", value).encode()) for key, value in dict(pairs).items()]
        for batch in batches(written):
            yield step(self._store.write, self._prefix + collection, batch)

    def get(self, key: str, collection: str = DEFAULT_COLLECTION) -> _Value | None:
        """Returns a value; ``None`` if the key does not exist."""
        return _read(self._store.get(self._prefix + collection, key))

    async def aget(self, key: str, collection: str = DEFAULT_COLLECTION) -> _Value | None:
        """As :meth:`get`."""
        return _read(await self._store.aget(self._prefix + collection, key))

    def get_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, _Value]:
        """Returns all values of a collection, in the byte order of their keys."""
        return perform(self._get_all(collection))

    async def aget_all(self, collection: str = DEFAULT_COLLECTION) -> dict[str, _Value]:
        """As :meth:`get_all`."""
        return await aperform(self._get_all(collection))

    def _get_all(self, collection: str) -> Steps[dict[str, _Value]]:
        found: dict[str, _Value] = {}
        after: str | None = None
        while True:
            page: list[Item] = yield step(
                self._store.entries, self._prefix + collection, values=True, after=after, limit=1_000
            )
            for item in page:
                value = _read(item.value)
                if value is not None:
                    found[item.key] = value
            if len(page) < 1_000:
                return found
            after = page[-1].key

    def delete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """Deletes a key and returns whether it existed."""
        return self._store.delete(self._prefix + collection, key)

    async def adelete(self, key: str, collection: str = DEFAULT_COLLECTION) -> bool:
        """As :meth:`delete`."""
        return await self._store.adelete(self._prefix + collection, key)


def _read(value: bytes | None) -> _Value | None:
    if value is None:
        return None
    found: _Value = json.loads(value)
    return found
