"""Files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from larder._key_value import Buffer
from larder._native import Blobs as NativeBlobs
from larder._native import Call
from larder._page import wanted
from larder._run import Plan, Unpicklable, adrive, drive, run
from larder._time import Duration, from_text, milliseconds

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


class BlobVersion(NamedTuple):
    """A version of a blob."""

    id: str
    current: bool
    """``True`` for the version that :meth:`Blobs.get` reads."""
    size: int
    """The size in bytes."""
    etag: str
    modified_at: datetime


class PresignedUrl(NamedTuple):
    """A URL that allows one request without credentials. It is a secret."""

    url: str
    method: str
    """``GET`` or ``PUT``."""
    expires_at: datetime
    headers: dict[str, str]
    """The headers that the request must have."""

    def __repr__(self) -> str:
        return f"<larder.PresignedUrl, {self.method}>"


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

    def get(self, key: str, *, start: int = 0, end: int | None = None, version: str | None = None) -> bytes:
        """Returns the content of a blob, or the bytes from ``start`` to before ``end``.

        :param version: The version to read; the current one if it is ``None``.
        :raises NotFound: if the blob or the version does not exist.
        """
        return self._get(key, start, end, version).wait()

    async def aget(
        self, key: str, *, start: int = 0, end: int | None = None, version: str | None = None
    ) -> bytes:
        """As :meth:`get`."""
        return await run(self._get(key, start, end, version))

    def _get(self, key: str, start: int, end: int | None, version: str | None) -> Call[bytes]:
        if version is None:
            return self._native.get(key, start, end)
        return self._native.get_version(key, version, start, end)

    def versions(self, key: str) -> _Versions:
        """Lists the versions of a blob, newest first.

        :raises Unsupported: if the backend keeps no versions; URLs such as ``file:./folder?blob_versions=true`` do.
        """
        return _versions(self._native.versions(key).wait())

    async def aversions(self, key: str) -> _Versions:
        """As :meth:`versions`."""
        return _versions(await run(self._native.versions(key)))

    def delete_version(self, key: str, version: str) -> bool:
        """Deletes an earlier version of a blob, and returns whether it existed.

        :raises Conflict: if the version is the current one.
        """
        return self._native.delete_version(key, version).wait()

    async def adelete_version(self, key: str, version: str) -> bool:
        """As :meth:`delete_version`."""
        return await run(self._native.delete_version(key, version))

    def presign(
        self, key: str, *, valid_for: Duration, write: bool = False, content_type: str | None = None
    ) -> PresignedUrl:
        """Creates a URL that reads a blob without credentials, from 1 s up to 7 days.

        :param valid_for: The time in seconds during which the URL is valid.
        :param write: ``True`` for a URL that writes the blob.
        :param content_type: The content type that the write must have.
        :raises Unsupported: if the backend has no such URLs; S3 does.
        """
        valid_ms = milliseconds("valid_for", valid_for) or 0
        return _presigned(self._native.presign(key, write, valid_ms, content_type).wait())

    async def apresign(
        self, key: str, *, valid_for: Duration, write: bool = False, content_type: str | None = None
    ) -> PresignedUrl:
        """As :meth:`presign`."""
        valid_ms = milliseconds("valid_for", valid_for) or 0
        return _presigned(await run(self._native.presign(key, write, valid_ms, content_type)))

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
_Versions = list[BlobVersion]
"""The class has a method `list`, so its annotations cannot name these types."""


def _versions(text: str) -> _Versions:
    return [
        BlobVersion(
            found["id"], found["current"], found["size"], found["etag"], from_text(found["modified_at"])
        )
        for found in json.loads(text)
    ]


def _presigned(text: str) -> PresignedUrl:
    found = json.loads(text)
    return PresignedUrl(found["url"], found["method"], from_text(found["expires_at"]), found["headers"])


def _info(found: dict[str, Any]) -> BlobInfo:
    return BlobInfo(
        found["key"],
        found["size"],
        found["etag"],
        from_text(found["modified_at"]),
        found.get("content_type"),
        found.get("metadata", {}),
    )
