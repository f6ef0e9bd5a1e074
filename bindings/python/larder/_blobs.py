"""Files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from larder._key_value import Buffer
from larder._native import Blobs as NativeBlobs
from larder._page import wanted
from larder._run import Plan, Unpicklable, adrive, drive, run
from larder._time import from_text

_PAGE = 10_000


class BlobInfo(NamedTuple):
    """A blob without its content."""

    key: str
    size: int
    """The size in bytes."""
    etag: str
    """The version of the content."""
    modified_at: datetime
    content_type: str | None = None
    metadata: dict[str, str] = {}


class Blobs(Unpicklable):
    """Files under keys.

    >>> import larder
    >>> with larder.open("memory:") as stores:
    ...     info = stores.blobs.put("reports/1", b"content", content_type="text/plain")
    ...     stores.blobs.get("reports/1", start=3)
    b'tent'
    """

    __slots__ = ("_native", "_stores")

    def __init__(self, native: NativeBlobs, stores: object) -> None:
        self._native = native
        # The stores are closed when nobody holds them.
        self._stores = stores

    def put(
        self,
        key: str,
        content: Buffer,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        create: bool = False,
        etag: str | None = None,
    ) -> BlobInfo:
        """Writes a blob.

        :param create: ``True`` if the key must have no blob.
        :param etag: The version that the stored blob must have.
        :raises Conflict: if the condition does not hold.
        """
        given = dict(metadata or {})
        return _info(json.loads(self._native.put(key, content, content_type, given, create, etag).wait()))

    async def aput(
        self,
        key: str,
        content: Buffer,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        create: bool = False,
        etag: str | None = None,
    ) -> BlobInfo:
        """As :meth:`put`."""
        call = self._native.put(key, content, content_type, dict(metadata or {}), create, etag)
        return _info(json.loads(await run(call)))

    def get(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        """Returns the content of a blob, or the bytes from ``start`` to before ``end``.

        :raises NotFound: if the blob does not exist.
        """
        return self._native.get(key, start, end).wait()

    async def aget(self, key: str, *, start: int = 0, end: int | None = None) -> bytes:
        """As :meth:`get`."""
        return await run(self._native.get(key, start, end))

    def info(self, key: str) -> BlobInfo | None:
        """Returns a blob without its content; ``None`` if it does not exist."""
        found = json.loads(self._native.info(key).wait())
        return None if found is None else _info(found)

    async def ainfo(self, key: str) -> BlobInfo | None:
        """As :meth:`info`."""
        found = json.loads(await run(self._native.info(key)))
        return None if found is None else _info(found)

    def list(self, prefix: str = "", *, after: str | None = None, limit: int | None = None) -> _Infos:
        """Lists the blobs whose keys begin with a prefix, in byte order, without content types and metadata.

        :param after: The key after which the listing begins; it need not exist.
        """
        return drive(self._list(prefix, after, limit))

    async def alist(self, prefix: str = "", *, after: str | None = None, limit: int | None = None) -> _Infos:
        """As :meth:`list`."""
        return await adrive(self._list(prefix, after, limit))

    def _list(self, prefix: str, after: str | None, limit: int | None) -> Plan[_Infos]:
        found: _Infos = []
        while True:
            count = wanted(limit, len(found), _PAGE)
            page = json.loads((yield self._native.entries(prefix, after, count)))
            found += map(_info, page)
            if len(page) < count or not page or len(found) == limit:
                return found
            after = found[-1].key

    def copy(self, source: str, target: str) -> BlobInfo:
        """Copies a blob within the store."""
        return _info(json.loads(self._native.copy(source, target).wait()))

    async def acopy(self, source: str, target: str) -> BlobInfo:
        """As :meth:`copy`."""
        return _info(json.loads(await run(self._native.copy(source, target))))

    def rename(self, source: str, target: str, *, replace: bool = False) -> BlobInfo:
        """Moves a blob to another key in one step.

        :param replace: ``True`` to replace a blob at the target.
        :raises Unsupported: if the backend cannot do it in one step.
        """
        return _info(json.loads(self._native.rename(source, target, replace).wait()))

    async def arename(self, source: str, target: str, *, replace: bool = False) -> BlobInfo:
        """As :meth:`rename`."""
        return _info(json.loads(await run(self._native.rename(source, target, replace))))

    def delete(self, key: str) -> bool:
        """Deletes a blob and returns whether it existed."""
        return self._native.delete(key).wait()

    async def adelete(self, key: str) -> bool:
        """As :meth:`delete`."""
        return await run(self._native.delete(key))


_Infos = list[BlobInfo]
"""The class has a method `list`, so its annotations cannot name the type."""


def _info(found: dict[str, Any]) -> BlobInfo:
    return BlobInfo(
        found["key"],
        found["size"],
        found["etag"],
        from_text(found["modified_at"]),
        found.get("content_type"),
        found.get("metadata", {}),
    )
