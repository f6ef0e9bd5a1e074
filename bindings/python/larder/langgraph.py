"""LangGraph: a checkpointer on any backend.

>>> from larder.langgraph import LarderSaver
>>> with LarderSaver.from_url("memory:") as checkpointer:
...     checkpointer.get_tuple({"configurable": {"thread_id": "trip-1"}})

A turn is one atomic write. If two runs continue the same checkpoint, one of them raises ``larder.Conflict``;
LangGraph's own savers accept both and lose one. A run that names a ``checkpoint_id`` begins a branch instead.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

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
except ModuleNotFoundError as error:
    message = "larder.langgraph needs LangGraph; run `pip install 'larder-store[langgraph]'`"
    raise ImportError(message) from error

from larder._langgraph import Plans

__all__ = ["LarderSaver"]


class LarderSaver(Plans):
    """Stores the checkpoints of graphs in a key-value store, and large values in its blob store.

    :param stores: Open stores. The saver does not close them.
    :param serde: The serializer of values; LangGraph's default if it is ``None``.
    :raises Unsupported: if the stores have no key-value store.
    """

    def __init__(self, stores: Stores, *, serde: SerializerProtocol | None = None) -> None:
        super().__init__(stores._native.checkpoints(), serde)
        self._stores = stores
        self._owned: Stores | None = None

    @classmethod
    def from_url(
        cls, *urls: str, namespace: str = "default", serde: SerializerProtocol | None = None
    ) -> Self:
        """Opens stores as :func:`larder.open` does. The saver closes them: use it with ``with``."""
        return cls._owning(open(*urls, namespace=namespace), serde)

    @classmethod
    async def afrom_url(
        cls, *urls: str, namespace: str = "default", serde: SerializerProtocol | None = None
    ) -> Self:
        """As :meth:`from_url`."""
        return cls._owning(await aopen(*urls, namespace=namespace), serde)

    @classmethod
    def _owning(cls, stores: Stores, serde: SerializerProtocol | None) -> Self:
        try:
            saver = cls(stores, serde=serde)
        except BaseException:
            stores.close()
            raise
        saver._owned = stores
        return saver

    def close(self) -> None:
        """Closes the stores that the saver opened."""
        if self._owned is not None:
            self._owned.close()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        if self._owned is not None:
            await self._owned.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

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
