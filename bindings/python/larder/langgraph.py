"""LangGraph: a checkpointer and a store on any backend.

>>> from larder.langgraph import LarderSaver
>>> with LarderSaver.from_url("memory:") as checkpointer:
...     checkpointer.get_tuple({"configurable": {"thread_id": "trip-1"}})

A turn is one atomic write. If two runs continue the same checkpoint, one of them raises ``larder.Conflict``;
LangGraph's own savers accept both and lose one. A run that names a ``checkpoint_id`` begins a branch instead.

>>> from larder.langgraph import LarderStore
>>> with LarderStore.from_url("memory:") as store:
...     store.put(("users", "ada"), "prefs", {"theme": "dark"})
...     store.get(("users", "ada"), "prefs").value
{'theme': 'dark'}
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Self

from larder._adapter import missing
from larder._closing import Owner
from larder._native import Call
from larder._run import adrive, drive, run
from larder._stores import Stores, aopen, open

try:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from langgraph.store.base import IndexConfig, Op, Result, TTLConfig
except ModuleNotFoundError as _error:
    raise missing("larder.langgraph", "LangGraph", "langgraph") from _error

from larder._langgraph import Plans
from larder._langgraph_store import QueryIgnored, StorePlans, check_ops

__all__ = ["LarderSaver", "LarderStore", "QueryIgnored"]


class LarderSaver(Owner, Plans):
    """Stores the checkpoints of graphs in a key-value store, and large values in its blob store.

    :param stores: Open stores. The saver does not close them.
    :param serde: The serializer of values; LangGraph's default if it is ``None``.
    :raises Unsupported: if the stores have no key-value store.
    """

    def __init__(self, stores: Stores, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(stores._native.checkpoints(), serde)
        self._stores = stores

    @classmethod
    def from_url(
        cls, *urls: str, namespace: str = "default", serde: SerializerProtocol | None = None
    ) -> Self:
        """Opens stores as :func:`larder.open` does. The saver closes them: use it with ``with``."""
        stores = open(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, serde=serde))

    @classmethod
    async def afrom_url(
        cls, *urls: str, namespace: str = "default", serde: SerializerProtocol | None = None
    ) -> Self:
        """As :meth:`from_url`."""
        stores = await aopen(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, serde=serde))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Returns the checkpoint that a config names, or the newest one of its thread."""
        return drive(self._get(config))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As :meth:`get_tuple`."""
        return await adrive(self._get(config))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yields the checkpoints that match, newest first. Without a namespace, it reads all their ids first."""
        steps = self._list(config, filter, before, limit)
        given: Any = None
        while True:
            try:
                step = steps.send(given)
            except StopIteration:
                return
            given = step.wait() if isinstance(step, Call) else None
            if isinstance(step, CheckpointTuple):
                yield step

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As :meth:`list`."""
        steps = self._list(config, filter, before, limit)
        given: Any = None
        while True:
            try:
                step = steps.send(given)
            except StopIteration:
                return
            given = await run(step) if isinstance(step, Call) else None
            if isinstance(step, CheckpointTuple):
                yield step

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """Stores a checkpoint with the values that changed, in one atomic write.

        :raises Conflict: if another run continued the same checkpoint.
        """
        return drive(self._put(config, checkpoint, metadata, new_versions))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        """As :meth:`put`."""
        return await adrive(self._put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Stores what a task wrote after a checkpoint, in atomic writes of up to 450 values."""
        for call in self._writes(config, writes, task_id, task_path):
            call.wait()

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """As :meth:`put_writes`."""
        for call in self._writes(config, writes, task_id, task_path):
            await run(call)

    def delete_thread(self, thread_id: str) -> None:
        """Deletes all checkpoints of a thread."""
        self._native.delete(str(thread_id)).wait()

    async def adelete_thread(self, thread_id: str) -> None:
        """As :meth:`delete_thread`."""
        await run(self._native.delete(str(thread_id)))

    def delete_for_runs(self, run_ids: Sequence[str]) -> None:
        """Deletes the checkpoints of runs. It reads all threads. Values that later checkpoints need are kept."""
        drive(self._delete_for_runs(run_ids))

    async def adelete_for_runs(self, run_ids: Sequence[str]) -> None:
        """As :meth:`delete_for_runs`."""
        await adrive(self._delete_for_runs(run_ids))

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """Copies a thread to one without checkpoints."""
        self._native.copy(str(source_thread_id), str(target_thread_id)).wait()

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        """As :meth:`copy_thread`."""
        await run(self._native.copy(str(source_thread_id), str(target_thread_id)))

    def prune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """Keeps the newest checkpoint of each namespace, or none with the strategy ``delete``.

        Values and pending writes that the newest checkpoints need are kept.
        """
        for call in self._prune(thread_ids, strategy):
            call.wait()

    async def aprune(self, thread_ids: Sequence[str], *, strategy: str = "keep_latest") -> None:
        """As :meth:`prune`."""
        for call in self._prune(thread_ids, strategy):
            await run(call)

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """Returns the pending writes from which channels are rebuilt, in four calls for up to 100 turns."""
        return drive(self._history(config, channels))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        """As :meth:`get_delta_channel_history`."""
        return await adrive(self._history(config, channels))


class LarderStore(Owner, StorePlans):
    """Stores items in a key-value store, and their embeddings in a vector store if there is an ``index``.

    It behaves as ``PostgresStore``: a write keeps ``created_at``, a search without a query returns the items that were
    written last first, and one with a query returns those with embeddings, by their similarity. In addition, an
    expired item reads as absent at once, and the writes of a batch are one atomic write for up to 1,000 items of 8 MiB.
    A namespace and a key have at most 510 bytes together. A value is JSON of at most 4 MiB.

    A search without a query reads all items under its prefix. So does a search with a query in a store without an
    index, as in the stores of LangGraph; it warns with :class:`QueryIgnored`. Search by words does not exist yet.

    :param stores: Open stores. This store does not close them.
    :param index: The model that creates embeddings, as for the stores of LangGraph. Its ``dims`` are not needed.
    :param ttl: The default time to live in minutes, and whether reads restart it.
    :raises Unsupported: if the stores have no key-value store, or no vector store for the index.
    """

    def __init__(
        self, stores: Stores, *, index: IndexConfig | None = None, ttl: TTLConfig | None = None
    ) -> None:
        super().__init__(stores, index, ttl)
        self._stores = stores

    @classmethod
    def from_url(
        cls,
        *urls: str,
        namespace: str = "default",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> Self:
        """Opens stores as :func:`larder.open` does. This store closes them: use it with ``with``."""
        stores = open(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, index=index, ttl=ttl))

    @classmethod
    async def afrom_url(
        cls,
        *urls: str,
        namespace: str = "default",
        index: IndexConfig | None = None,
        ttl: TTLConfig | None = None,
    ) -> Self:
        """As :meth:`from_url`."""
        stores = await aopen(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, index=index, ttl=ttl))

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Makes the reads of a batch, and then its writes."""
        checked = check_ops(ops)
        texts, queries = self._texts(checked)
        vectors = self.embeddings.embed_documents(texts) if self.embeddings and texts else []
        found = {query: self.embeddings.embed_query(query) for query in queries} if self.embeddings else {}
        return drive(self._batch(checked, dict(zip(texts, vectors, strict=True)), found))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """As :meth:`batch`."""
        checked = check_ops(ops)
        texts, queries = self._texts(checked)
        vectors = await self.embeddings.aembed_documents(texts) if self.embeddings and texts else []
        model = self.embeddings
        found = await asyncio.gather(*(model.aembed_query(query) for query in queries)) if model else []
        given = dict(zip(texts, vectors, strict=True))
        return await adrive(self._batch(checked, given, dict(zip(queries, found, strict=True))))
