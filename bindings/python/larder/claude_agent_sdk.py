"""Claude Agent SDK: transcripts of sessions on any backend.

>>> import asyncio
>>> from larder.claude_agent_sdk import LarderSessionStore
>>> async def main():
...     async with LarderSessionStore.from_url("memory:") as store:
...         key = {"project_key": "project", "session_id": "session-1"}
...         await store.append(key, [{"type": "user", "uuid": "1"}])
...         return await store.load(key)
>>> asyncio.run(main())
[{'type': 'user', 'uuid': '1'}]
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import uuid
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote, unquote
from weakref import WeakValueDictionary

from larder._adapter import missing
from larder._closing import Owner
from larder._errors import Conflict, invalid
from larder._key_value import Delete, Entry, Put
from larder._stores import Stores, aopen, open

try:
    from claude_agent_sdk import fold_session_summary
except ModuleNotFoundError as _error:
    raise missing("larder.claude_agent_sdk", "the Claude Agent SDK", "claude-agent-sdk") from _error

if TYPE_CHECKING:
    from claude_agent_sdk.types import (
        SessionKey,
        SessionListSubkeysKey,
        SessionStoreEntry,
        SessionStoreListEntry,
        SessionSummaryEntry,
    )

__all__ = ["LarderSessionStore"]

_PART_BYTES = 2 * 1024 * 1024
_APPEND_BYTES = 12 * 1024 * 1024
_DELETES = 500
_ALL = 2**53
_PAUSE_S = 0.01

_Header = dict[str, Any]
"""The head of a transcript: `id`, the number of the `next` part, `mtime`, and the `data` of the summary."""


class LarderSessionStore(Owner):
    """Stores transcripts in a key-value store. Pass it as ``session_store`` in ``ClaudeAgentOptions``.

    An append writes its entries, the time and the summary in one atomic step. Several processes may append to
    one session. An entry whose ``uuid`` the transcript has already is not loaded a second time.

    :param stores: Open stores. The session store does not close them.
    :param prefix: The prefix of the buckets' names. Each project has a bucket.
    :raises Unsupported: if the stores have no key-value store.
    """

    def __init__(self, stores: Stores, *, prefix: str = "claude/") -> None:
        self._store = stores.key_value
        self._prefix = prefix
        # Appends to a transcript are in the order of their calls. A lock belongs to an event loop.
        self._locks: WeakValueDictionary[tuple[object, str, str], asyncio.Lock] = WeakValueDictionary()

    @classmethod
    def from_url(cls, *urls: str, namespace: str = "default", prefix: str = "claude/") -> Self:
        """Opens stores as :func:`larder.open` does. The object closes them: use it with ``async with``."""
        stores = open(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, prefix=prefix))

    @classmethod
    async def afrom_url(cls, *urls: str, namespace: str = "default", prefix: str = "claude/") -> Self:
        """As :meth:`from_url`."""
        stores = await aopen(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, prefix=prefix))

    async def append(self, key: SessionKey, entries: list[SessionStoreEntry]) -> None:
        """Adds entries to a transcript, all or none, after those that exist.

        :raises InvalidInput: if the entries are over 12 MiB, or JSON cannot represent one.
        """
        if not entries:
            return
        parts = _parts(entries)
        name = (asyncio.get_running_loop(), self._bucket(key), _head(key))
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            while not await self._append(key, entries, parts):
                # Another process was faster.
                await asyncio.sleep(random.random() * _PAUSE_S)

    async def _append(self, key: SessionKey, entries: list[SessionStoreEntry], parts: list[bytes]) -> bool:
        bucket, head = self._bucket(key), _head(key)
        entry = await self._store.aentry(bucket, head)
        header = _header(entry)
        writes = [
            Put(_part(header["id"], header["next"] + index), part, create=True)
            for index, part in enumerate(parts)
        ]
        header["next"] += len(parts)
        # Two appends of one session never have the same time.
        header["mtime"] = max(time.time_ns() // 1_000_000, header["mtime"] + 1)
        if not key.get("subpath"):
            header["data"] = _fold(header, key, entries)
        revision = None if entry is None else entry.revision
        writes.append(Put(head, json.dumps(header).encode(), create=entry is None, at=revision))
        try:
            await self._store.awrite(bucket, writes)
        except Conflict:
            return False
        return True

    async def load(self, key: SessionKey) -> list[SessionStoreEntry] | None:
        """Returns the entries of a transcript; ``None`` if it does not exist."""
        bucket, head = self._bucket(key), _head(key)
        entry = await self._store.aentry(bucket, head)
        while entry is not None:
            id = _header(entry)["id"]
            parts = await self._store.aentries(bucket, _parts_of(id), values=True, limit=_ALL)
            # If the transcript was deleted in between, parts are missing.
            entry = await self._store.aentry(bucket, head)
            if entry is not None and _header(entry)["id"] == id:
                return _entries(b"".join(item.value or b"" for item in parts))
        return None

    async def list_sessions(self, project_key: str) -> list[SessionStoreListEntry]:
        """Returns the sessions of a project with the times of their last appends."""
        return [
            {"session_id": session, "mtime": header["mtime"]}
            for session, header in await self._sessions(project_key)
        ]

    async def list_session_summaries(self, project_key: str) -> list[SessionSummaryEntry]:
        """Returns the summaries of the sessions of a project."""
        return [
            {"session_id": session, "mtime": header["mtime"], "data": header["data"]}
            for session, header in await self._sessions(project_key)
        ]

    async def _sessions(self, project_key: str) -> list[tuple[str, _Header]]:
        bucket = self._prefix + project_key
        items = await self._store.aentries(bucket, "m/", values=True, limit=_ALL)
        return [(unquote(item.key[2:]), json.loads(item.value or b"")) for item in items]

    async def delete(self, key: SessionKey) -> None:
        """Deletes a transcript. One without a ``subpath`` is deleted with those of its subagents."""
        bucket = self._bucket(key)
        heads = [_head(key)]
        if not key.get("subpath"):
            heads += [item.key for item in await self._store.aentries(bucket, _subs(key), limit=_ALL)]
        headers = await self._store.aget_many(bucket, heads)
        # Without its head, a transcript does not exist. If the process ends here, nobody reads its parts.
        for start in range(0, len(heads), _DELETES):
            await self._store.awrite(bucket, [Delete(head) for head in heads[start : start + _DELETES]])
        for header in headers:
            if header is not None:
                await self._store.adelete_prefix(bucket, _parts_of(json.loads(header)["id"]))

    async def list_subkeys(self, key: SessionListSubkeysKey) -> list[str]:
        """Returns the subpaths of a session."""
        prefix = _subs(key)
        items = await self._store.aentries(self._prefix + key["project_key"], prefix, limit=_ALL)
        return [item.key[len(prefix) :] for item in items]

    def _bucket(self, key: SessionKey) -> str:
        return self._prefix + key["project_key"]


def _head(key: SessionKey) -> str:
    """Returns the key of a transcript's head. A session's name has no slash there."""
    subpath = key.get("subpath")
    return _subs(key) + subpath if subpath else "m/" + quote(key["session_id"], safe="")


def _subs(key: SessionKey | SessionListSubkeysKey) -> str:
    return f"s/{quote(key['session_id'], safe='')}/"


def _parts_of(id: str) -> str:
    return f"p/{id}/"


def _part(id: str, number: int) -> str:
    return f"{_parts_of(id)}{number:012}"


def _header(entry: Entry | None) -> _Header:
    if entry is None:
        # The id is new, so that a deleted transcript does not return with a new one of its name.
        return {"id": uuid.uuid4().hex, "next": 0, "mtime": 0, "data": {}}
    return cast("_Header", json.loads(entry.value))


def _fold(header: _Header, key: SessionKey, entries: list[SessionStoreEntry]) -> dict[str, Any]:
    last: SessionSummaryEntry = {
        "session_id": key["session_id"],
        "mtime": header["mtime"],
        "data": header["data"],
    }
    return fold_session_summary(last if header["data"] else None, key, entries)["data"]


def _entries(lines: bytes) -> list[SessionStoreEntry]:
    """Reads the entries of a transcript. Of entries with the same `uuid`, the first one counts."""
    seen: set[str] = set()
    entries: list[SessionStoreEntry] = []
    for line in lines.splitlines():
        entry: SessionStoreEntry = json.loads(line)
        id = entry.get("uuid")
        if isinstance(id, str):
            if id in seen:
                continue
            seen.add(id)
        entries.append(entry)
    return entries


def _parts(entries: list[SessionStoreEntry]) -> list[bytes]:
    """Returns the JSON of entries, one a line, in parts that a key can hold."""
    try:
        # Escapes every character beyond ASCII, so that no text has a line break or a lone surrogate.
        lines = "".join(json.dumps(entry, separators=(",", ":")) + "\n" for entry in entries).encode()
    except (RecursionError, TypeError, ValueError):
        raise invalid("python", "entries", "has a value that JSON cannot represent; convert it") from None
    if len(lines) > _APPEND_BYTES:
        error = invalid(
            "python", "entries", f"is {len(lines)} bytes; the limit is {_APPEND_BYTES}; append fewer"
        )
        error.actual, error.limit = len(lines), _APPEND_BYTES
        raise error
    return [lines[start : start + _PART_BYTES] for start in range(0, len(lines), _PART_BYTES)]
