"""What a LangGraph checkpointer does, as plans that run on a thread or on an event loop."""

from __future__ import annotations

import json
import random
from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    DeltaChannelHistory,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from larder._errors import invalid
from larder._messages import to_json
from larder._native import Call, Checkpoints
from larder._run import Plan

if TYPE_CHECKING:
    from larder._native import CheckpointWrite, FoundCheckpoint, Typed

_PAGE = 100
_WRITES_MAX = 450
_BRANCH = "__larder_branch"
"""The key of a config whose checkpoint the caller named, so that a run may continue it a second time."""

_Names = list[str]
_Places = list[tuple[str, str]]
"""Threads and namespaces. The class has a method `list`, so its annotations cannot name the type."""


class Plans(BaseCheckpointSaver[str]):
    """The plans of the methods, and the conversions."""

    def __init__(self, native: Checkpoints, serde: SerializerProtocol | None) -> None:
        super().__init__(serde=serde)
        self._native = native

    def _get(self, config: RunnableConfig) -> Plan[CheckpointTuple | None]:
        thread, namespace = _names(config)
        id = get_checkpoint_id(config)
        found = yield self._native.get(thread, namespace, id or None)
        return None if found is None else self._tuple(thread, namespace, found, branch=bool(id))

    def _list(
        self,
        config: RunnableConfig | None,
        filter: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
    ) -> Generator[Call[Any] | CheckpointTuple, Any, None]:
        places = yield from self._places(config)
        named = get_checkpoint_id(config) if config else None
        bound = (get_checkpoint_id(before) if before else None) or None
        query, filter = to_json("filter", filter or {}), filter or {}
        cursors: dict[tuple[str, str], str | None] = {} if named else dict.fromkeys(places, bound)
        waiting = [(named, place) for place in places if named and (bound is None or named < bound)]
        rest = -1 if limit is None else max(limit, 0)
        while rest and (cursors or waiting):
            for place, cursor in list(cursors.items()):
                ids, cursors[place] = yield self._native.ids(*place, query, cursor, _PAGE)
                waiting += [(id, place) for id in ids]
            cursors = {place: cursor for place, cursor in cursors.items() if cursor is not None}
            if cursors and len(places) > 1:
                # The order of the ids spans the namespaces.
                continue
            for id, (thread, namespace) in sorted(waiting, reverse=True):
                found = yield self._native.get(thread, namespace, id)
                if found is None or not rest:
                    continue
                item = self._tuple(thread, namespace, found, branch=True)
                if all(item.metadata.get(key) == value for key, value in filter.items()):
                    yield item
                    rest -= 1
            waiting = []

    def _places(self, config: RunnableConfig | None) -> Plan[_Places]:
        """Returns the threads and namespaces that a listing reads."""
        if config is not None:
            thread, namespace = _names(config)
            if _configurable(config).get("checkpoint_ns") is not None:
                return [(thread, namespace)]
            threads = [thread]
        else:
            threads = yield from self._threads()
        places = []
        for thread in threads:
            names = yield self._native.namespaces(thread)
            places += [(thread, name) for name in names]
        return places

    def _threads(self) -> Plan[_Names]:
        threads: _Names = []
        after: str | None = None
        while True:
            names, after = yield self._native.threads(after, _PAGE)
            threads += names
            if after is None:
                return threads

    def _put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> Plan[RunnableConfig]:
        thread, namespace = _names(config)
        parent = get_checkpoint_id(config) or None
        versions, values = checkpoint["channel_versions"], checkpoint["channel_values"]
        inherited: set[str] = set()
        if parent is not None and metadata.get("source") == "fork":
            # The values may be those of another checkpoint than the parent.
            found = yield self._native.get(thread, namespace, parent)
            known = {} if found is None else self.serde.loads_typed(found[3])["channel_versions"]
            inherited = {channel for channel in versions if known.get(channel) == versions[channel]}
        elif parent is not None:
            inherited = versions.keys() - new_versions.keys()
        deltas = metadata.get("counters_since_delta_snapshot") or {}
        changed = (versions.keys() | values.keys()) - inherited
        first = namespace == "" and metadata.get("source") == "input" and metadata.get("step") == -1
        branch = metadata.get("source") == "fork" or parent == _configurable(config).get(_BRANCH)
        stored = get_checkpoint_metadata(config, metadata)
        run = metadata.get("run_id")
        yield self._native.put(
            thread,
            namespace,
            checkpoint["id"],
            parent,
            None if run is None else str(run),
            to_json("metadata", stored),
            self.serde.dumps_typed({**checkpoint, "channel_values": {}}),
            [(channel, self.serde.dumps_typed(values[channel])) for channel in changed & values.keys()],
            list(inherited),
            [channel for channel in changed - values.keys() if channel in deltas],
            branch if parent is not None else not first,
        )
        return _config(thread, namespace, checkpoint["id"])

    def _writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task: str, path: str
    ) -> Iterator[Call[None]]:
        thread, namespace = _names(config)
        id = get_checkpoint_id(config)
        if not id:
            raise invalid("langgraph", "checkpoint_id", "is missing in `configurable`; pass one")
        # Of several writes to a special channel, the last one counts.
        by_index: dict[int, CheckpointWrite] = {}
        for position, (channel, value) in enumerate(writes):
            index = WRITES_IDX_MAP.get(channel, position)
            by_index[index] = (task, index, path, channel, self.serde.dumps_typed(value))
        stored = list(by_index.values())
        for start in range(0, len(stored), _WRITES_MAX):
            yield self._native.put_writes(thread, namespace, id, stored[start : start + _WRITES_MAX])

    def _delete_for_runs(self, run_ids: Sequence[str]) -> Plan[None]:
        runs = [str(run) for run in run_ids]
        threads = (yield from self._threads()) if runs else []
        for thread in threads:
            yield self._native.delete_runs(thread, runs)

    def _prune(self, thread_ids: Sequence[str], strategy: str) -> Iterator[Call[int]]:
        if strategy not in ("keep_latest", "delete"):
            raise invalid("langgraph.prune", "strategy", "is unknown; pass `keep_latest` or `delete`")
        for thread in map(str, thread_ids):
            keep = strategy == "keep_latest"
            yield self._native.prune(thread, 1) if keep else self._native.delete(thread)

    def _history(
        self, config: RunnableConfig, channels: Sequence[str]
    ) -> Plan[Mapping[str, DeltaChannelHistory]]:
        thread, namespace = _names(config)
        id = get_checkpoint_id(config) or None
        if id is None and channels:
            ids, _ = yield self._native.ids(thread, namespace, "{}", None, 1)
            id = ids[0] if ids else None
        histories: dict[str, DeltaChannelHistory] = {channel: {"writes": []} for channel in channels}
        if id is None or not channels:
            return histories
        found = yield self._native.history(thread, namespace, id, list(channels))
        for channel, (seed, writes) in found.items():
            histories[channel]["writes"] = self._pending(writes)
            if seed is not None:
                histories[channel]["seed"] = self.serde.loads_typed(seed)
        return histories

    def get_next_version(self, current: Any, channel: None) -> Any:
        """Returns the version that follows: a number, or a text if LangGraph's savers wrote the thread."""
        if isinstance(current, str):
            return f"{int(current.split('.')[0]) + 1:032}.{random.random():016}"
        return 1 if current is None else current + 1

    def _tuple(self, thread: str, namespace: str, found: FoundCheckpoint, *, branch: bool) -> CheckpointTuple:
        id, parent, metadata, state, channels, writes = found
        checkpoint = cast(Checkpoint, self.serde.loads_typed(state))
        checkpoint["channel_values"] = {
            channel: self.serde.loads_typed(value) for channel, value in channels.items()
        }
        return CheckpointTuple(
            _config(thread, namespace, id, branch),
            checkpoint,
            cast(CheckpointMetadata, json.loads(metadata)),
            None if parent is None else _config(thread, namespace, parent),
            self._pending(writes),
        )

    def _pending(self, writes: Sequence[tuple[str, str, Typed]]) -> list[tuple[str, str, Any]]:
        return [(task, channel, self.serde.loads_typed(value)) for task, channel, value in writes]


def _configurable(config: RunnableConfig) -> dict[str, Any]:
    return config.get("configurable") or {}


def _names(config: RunnableConfig) -> tuple[str, str]:
    configurable = _configurable(config)
    if "thread_id" not in configurable:
        raise invalid("langgraph", "thread_id", "is missing in `configurable`; pass one")
    return str(configurable["thread_id"]), configurable.get("checkpoint_ns") or ""


def _config(thread: str, namespace: str, id: str, branch: bool = False) -> RunnableConfig:
    configurable = {"thread_id": thread, "checkpoint_ns": namespace, "checkpoint_id": id}
    return {"configurable": {**configurable, _BRANCH: id} if branch else configurable}
