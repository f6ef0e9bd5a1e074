"""What a LangGraph store does, as plans that run on a thread or on an event loop."""

from __future__ import annotations

import json
import time
import uuid
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from langchain_core.embeddings import Embeddings
from langgraph.store.base import (
    BaseStore,
    GetOp,
    IndexConfig,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
    TTLConfig,
    ensure_embeddings,
    get_text_at_path,
    tokenize_path,
    validate_op_namespace,
)

from larder._errors import Conflict, invalid
from larder._filter import Filter
from larder._filter import encode as encode_filter
from larder._langgraph_items import NamespacePath, Record, matches, split, to_key, to_prefix
from larder._messages import to_json
from larder._native import KeyValue, Vectors
from larder._run import Plan
from larder._stores import Stores
from larder._time import milliseconds

_BUCKET = "larder.langgraph.store"
_PAGE = 1_000
_WRITES_MAX = 1_000
_WRITES_BYTES_MAX = 8 * 1024 * 1024
_HITS_MAX = 10_000
_ORPHANED_AFTER = 3600
"""The time in seconds after which no write is under way that will name a document."""

Vector = Sequence[float]
_Write = tuple[str, bytes | None, int | None, bool, str | None]


class QueryIgnored(UserWarning):
    """A search has a query, and its store has no index."""


class StorePlans(BaseStore):
    """The plans of a batch of operations."""

    supports_ttl = True

    def __init__(self, stores: Stores, index: IndexConfig | None, ttl: TTLConfig | None) -> None:
        super().__init__()
        self.ttl_config = ttl
        self.index_config = index
        self._state: KeyValue = stores._native.key_value()
        self._vectors: Vectors | None = stores._native.vectors() if index else None
        self.embeddings: Embeddings | None = ensure_embeddings(index.get("embed")) if index else None
        self._paths = _tokenized((index.get("fields") or ["$"]) if index else ())

    def _texts(self, ops: Sequence[Op]) -> tuple[list[str], list[str]]:
        """Returns the texts and the queries to embed, each once."""
        if self.embeddings is None:
            if any(isinstance(op, SearchOp) and op.query for op in ops):
                warnings.warn(
                    "the store has no index, so the search ignores its query and returns the items that were"
                    " written last; pass `index` to the store to search by similarity",
                    QueryIgnored,
                    # The caller of `search`, which calls `batch`, which calls this method.
                    stacklevel=4,
                )
            return [], []
        texts: dict[str, None] = {}
        for op in _last_puts(ops).values():
            texts.update(dict.fromkeys(self._texts_of(op)))
        queries = dict.fromkeys(op.query for op in ops if isinstance(op, SearchOp) and op.query)
        return list(texts), list(queries)

    def _texts_of(self, op: PutOp) -> list[str]:
        if self._vectors is None or op.value is None or op.index is False:
            return []
        paths = self._paths if op.index is None else _tokenized(op.index)
        value = dict(op.value)
        return [text for path in paths for text in get_text_at_path(value, path)]

    def _batch(
        self, ops: Sequence[Op], texts: Mapping[str, Vector], queries: Mapping[str, Vector]
    ) -> Plan[list[Result]]:
        """Reads first, and then makes the writes, as the stores of LangGraph do."""
        results: list[Result] = [None] * len(ops)
        gets = {index: op for index, op in enumerate(ops) if isinstance(op, GetOp)}
        if gets:
            found = yield from self._get(list(gets.values()))
            for index, item in zip(gets, found, strict=True):
                results[index] = item
        for index, op in enumerate(ops):
            if isinstance(op, SearchOp):
                query = queries.get(op.query) if op.query else None
                results[index] = yield from self._search(op, query)
            elif isinstance(op, ListNamespacesOp):
                results[index] = yield from self._list_namespaces(op)
        puts = _last_puts(ops)
        if puts:
            yield from self._put(puts, texts)
        return results

    def _get(self, ops: Sequence[GetOp]) -> Plan[list[Item | None]]:
        keys = [to_key(op.namespace, op.key) for op in ops]
        found = yield self._state.get_many(_BUCKET, keys)
        records = [
            None if entry is None else (Record.decode(key, entry[0]), entry[1])
            for key, entry in zip(keys, found, strict=True)
        ]
        refreshed = [one for one, op in zip(records, ops, strict=True) if op.refresh_ttl and one is not None]
        yield from self._refresh(refreshed)
        return [None if one is None else one[0].item() for one in records]

    def _refresh(self, found: Iterable[tuple[Record, str]]) -> Plan[None]:
        """Restarts the times to live of items that were read. An item that was written since is left alone."""
        writes: dict[str, _Write] = {
            record.key: (record.key, record.encode(), _ttl_ms(record.ttl), False, revision)
            for record, revision in found
            if record.ttl is not None
        }
        for chunk in _chunks(writes.values()):
            while chunk:
                try:
                    yield self._state.write(_BUCKET, cast(Any, chunk))
                except Conflict as error:
                    del chunk[int(error.context["write"])]
                else:
                    break

    def _put(self, puts: Mapping[str, PutOp], texts: Mapping[str, Vector]) -> Plan[None]:
        known = yield self._state.get_many(_BUCKET, list(puts))
        before = {
            key: Record.decode(key, entry[0])
            for key, entry in zip(puts, known, strict=True)
            if entry is not None
        }
        now = time.time_ns() // 1000
        writes: list[_Write] = []
        new: list[tuple[str, str, Vector]] = []
        for key, op in puts.items():
            if op.value is None:
                writes.append((key, None, None, False, None))
                continue
            documents = [(uuid.uuid4().hex, key, texts[text]) for text in self._texts_of(op)]
            created = before[key].created if key in before else now
            ids = [document[0] for document in documents]
            record = Record(key, dict(op.value), created, now, op.ttl, ids)
            writes.append((key, record.encode(), _ttl_ms(op.ttl), False, None))
            new += documents
        # A search ignores documents that no item names, so the item and its embeddings change in one step.
        yield from self._embed(new)
        for chunk in _chunks(writes):
            yield self._state.write(_BUCKET, cast(Any, chunk))
        yield from self._forget([id for record in before.values() for id in record.documents])

    def _embed(self, new: Sequence[tuple[str, str, Vector]]) -> Plan[None]:
        if self._vectors is None:
            return
        now = int(time.time())
        for start in range(0, len(new), _WRITES_MAX):
            part = new[start : start + _WRITES_MAX]
            documents = [
                {
                    "id": id,
                    "content": "",
                    "metadata": {"key": key, "under": _ancestors(split(key)[0]), "written": now},
                }
                for id, key, _ in part
            ]
            vectors = [vector for _, _, vector in part]
            yield self._vectors.put(_BUCKET, to_json("documents", documents), vectors, False)

    def _forget(self, documents: Sequence[str]) -> Plan[None]:
        if self._vectors is None:
            return
        for start in range(0, len(documents), _WRITES_MAX):
            yield self._vectors.delete(_BUCKET, list(documents[start : start + _WRITES_MAX]))

    def _search(self, op: SearchOp, query: Vector | None) -> Plan[list[SearchItem]]:
        for name, number in (("limit", op.limit), ("offset", op.offset)):
            if number < 0:
                raise invalid("langgraph.search", name, "is negative; pass a number from 0 on")
        if query is None:
            found = yield from self._scan(op)
        else:
            found = yield from self._nearest(op, query)
        page = found[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            yield from self._refresh([(record, revision) for record, revision, _ in page])
        return [record.search_item(score) for record, _, score in page]

    def _scan(self, op: SearchOp) -> Plan[list[tuple[Record, str, float | None]]]:
        """Returns the items under a prefix that match, last written first."""
        prefix, after = to_prefix(op.namespace_prefix), None
        found: list[tuple[Record, str, float | None]] = []
        while True:
            entries, after = yield self._state.entries(_BUCKET, prefix, None, None, False, True, after, _PAGE)
            for key, value, revision, _ in entries:
                record = Record.decode(key, value)
                if matches(record.value, op.filter):
                    found.append((record, revision, None))
            if after is None:
                return sorted(found, key=lambda one: -one[0].updated)

    def _nearest(self, op: SearchOp, query: Vector) -> Plan[list[tuple[Record, str, float | None]]]:
        """Returns the items whose embeddings are nearest, each with its best score."""
        assert self._vectors is not None
        under = ".".join(op.namespace_prefix)
        condition = encode_filter(Filter.contains_any("under", [under]) if under else None)
        wanted = op.offset + op.limit
        count = min(2 * wanted + 8, _HITS_MAX)
        while True:
            text = yield self._vectors.search(_BUCKET, [query], count, condition, None)
            [hits] = json.loads(text)
            keys = list(dict.fromkeys(hit["metadata"]["key"] for hit in hits))
            entries = yield self._state.get_many(_BUCKET, keys)
            records = {
                key: (Record.decode(key, entry[0]), entry[1])
                for key, entry in zip(keys, entries, strict=True)
                if entry is not None
            }
            found: dict[str, tuple[Record, str, float | None]] = {}
            orphans = []
            for hit in hits:
                key = hit["metadata"]["key"]
                record, revision = records.get(key, (None, ""))
                if record is None or hit["id"] not in record.documents:
                    orphans.append(hit)
                elif matches(record.value, op.filter):
                    found.setdefault(key, (record, revision, hit["score"]))
            if len(found) >= wanted or len(hits) < count or count == _HITS_MAX:
                old = time.time() - _ORPHANED_AFTER
                yield from self._forget([hit["id"] for hit in orphans if hit["metadata"]["written"] < old])
                return list(found.values())
            count = min(4 * count, _HITS_MAX)

    def _list_namespaces(self, op: ListNamespacesOp) -> Plan[list[NamespacePath]]:
        conditions = op.match_conditions or ()
        found: set[NamespacePath] = set()
        prefix, start = to_prefix(_common_prefix(conditions)), None
        while True:
            entries, after = yield self._state.entries(
                _BUCKET, prefix, start, None, False, False, None, _PAGE
            )
            found.update(split(entry[0])[0] for entry in entries)
            if after is None:
                break
            # `/` is the character after the dot: the next page skips the other keys of the last namespace.
            start = ".".join(split(after)[0]) + "./"
        matching = {path[: op.max_depth] for path in found if all(_match(path, one) for one in conditions)}
        return sorted(matching)[op.offset : op.offset + op.limit]


def _last_puts(ops: Sequence[Op]) -> dict[str, PutOp]:
    """Returns the writes by their keys. Of several writes to a key, the last one counts."""
    return {to_key(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}


def check_ops(ops: Iterable[Op]) -> list[Op]:
    """Returns the operations of a batch, or raises the error of LangGraph for a wrong namespace."""
    checked = list(ops)
    for op in checked:
        if not isinstance(op, GetOp | PutOp | SearchOp | ListNamespacesOp):
            raise invalid("langgraph.batch", "ops", f"has a `{type(op).__name__}`; pass operations")
        validate_op_namespace(op)
    return checked


def _tokenized(fields: Iterable[str]) -> list[Any]:
    return ["$" if field == "$" else tokenize_path(field) for field in fields]


def _ttl_ms(minutes: float | None) -> int | None:
    return milliseconds("ttl", None if minutes is None else minutes * 60)


def _ancestors(namespace: NamespacePath) -> list[str]:
    return [".".join(namespace[:length]) for length in range(1, len(namespace) + 1)]


def _chunks(writes: Iterable[_Write]) -> list[list[_Write]]:
    """Splits writes into batches that a store accepts."""
    chunks: list[list[_Write]] = []
    size = 0
    for write in writes:
        size += len(write[1] or b"")
        if not chunks or len(chunks[-1]) == _WRITES_MAX or size > _WRITES_BYTES_MAX:
            chunks.append([])
            size = len(write[1] or b"")
        chunks[-1].append(write)
    return chunks


def _common_prefix(conditions: Iterable[MatchCondition]) -> NamespacePath:
    """Returns the labels with which each matching namespace begins."""
    longest: NamespacePath = ()
    for condition in conditions:
        if condition.match_type == "prefix":
            fixed = condition.path[: condition.path.index("*")] if "*" in condition.path else condition.path
            longest = max(longest, fixed, key=len)
    return longest


def _match(namespace: NamespacePath, condition: MatchCondition) -> bool:
    path = condition.path
    if condition.match_type not in ("prefix", "suffix"):
        raise invalid("langgraph.list_namespaces", "match_type", "is unknown; pass `prefix` or `suffix`")
    if len(namespace) < len(path):
        return False
    part = (
        namespace[: len(path)]
        if condition.match_type == "prefix"
        else namespace[len(namespace) - len(path) :]
    )
    return all(wanted in ("*", label) for label, wanted in zip(part, path, strict=True))
