"""Artifacts of Google ADK."""

from __future__ import annotations

import json
from typing import Any, Self
from urllib.parse import quote, unquote

from google.adk.artifacts import BaseArtifactService, artifact_util
from google.adk.artifacts.base_artifact_service import ArtifactVersion, ensure_part
from google.adk.errors.input_validation_error import InputValidationError
from google.adk.platform import time as platform_time
from google.genai import types

from larder._adapter import settled
from larder._blobs import BlobInfo
from larder._closing import Owner
from larder._errors import Conflict, NotFound, invalid
from larder._stores import Stores, aopen, open

_REFERENCES_MAX = 5
_USER = "user:"
_FACTS = "adk"
"""The key of the metadata of a blob that has the JSON of what ADK needs."""
_ABSENT = types.Part(inline_data=types.Blob(mime_type="application/octet-stream", data=b""))
"""What a rewind saves in place of an artifact that did not exist."""


class LarderArtifactService(Owner, BaseArtifactService):
    """Stores artifacts as blobs, with a blob for each version.

    Of concurrent calls of :meth:`save_artifact`, each creates a version. The blob has the bytes and the MIME type of the
    file or the text, so that other programs can read it. Of a part, the data, the MIME type and the name to display
    are stored, or the text, or the URI. The custom metadata has at most about 1,900 bytes of JSON.

    :param stores: Open stores. The service does not close them.
    :param prefix: The prefix of the blobs' keys.
    :raises Unsupported: if the stores have no blobs.
    """

    def __init__(self, stores: Stores, *, prefix: str = "adk/") -> None:
        self._blobs = stores.blobs
        self._prefix = prefix

    @classmethod
    def from_url(cls, *urls: str, namespace: str = "default", prefix: str = "adk/") -> Self:
        """Opens stores as :func:`larder.open` does. The service closes them: use it with ``async with``."""
        stores = open(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, prefix=prefix))

    @classmethod
    async def afrom_url(cls, *urls: str, namespace: str = "default", prefix: str = "adk/") -> Self:
        """As :meth:`from_url`."""
        stores = await aopen(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, prefix=prefix))

    async def save_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        artifact: types.Part | dict[str, Any],
        session_id: str | None = None,
        custom_metadata: dict[str, Any] | None = None,
    ) -> int:
        """Saves a new version of an artifact, and returns its number, from 0.

        :raises InputValidationError: if the part has no data, no text and no URI.
        """
        folder = self._folder(app_name, user_id, session_id, filename)
        content, mime, facts = _encode(ensure_part(artifact), app_name, user_id, _trimmed(session_id))
        facts.update(created=platform_time.get_time(), custom=custom_metadata or {})
        metadata = {_FACTS: _json(facts)}
        version = (await self._last(folder)) + 1
        while True:
            put = self._blobs.aput(
                _key(folder, version), content, content_type=mime, metadata=metadata, create=True
            )
            try:
                await settled(put)
            except Conflict:
                version += 1
            else:
                return version

    async def load_artifact(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> types.Part | None:
        """Returns a version of an artifact, or the latest one; ``None`` if it does not exist.

        A reference to another artifact is followed.
        """
        rest = _REFERENCES_MAX
        while True:
            folder = self._folder(app_name, user_id, session_id, filename)
            found = await self._info(folder, version)
            if found is None:
                return None
            uri = _facts(found).get("uri", "")
            if not uri.startswith("artifact://"):
                return await self._part(found)
            target = artifact_util.resolve_artifact_reference(
                file_uri=uri,
                app_name=app_name,
                user_id=user_id,
                session_id=_trimmed(session_id),
                remaining_depth=rest,
            )
            session_id, filename, version = target.session_id, target.filename, target.version
            rest -= 1

    async def _part(self, found: BlobInfo) -> types.Part | None:
        facts = _facts(found)
        if facts["kind"] == "uri":
            return types.Part(file_data=types.FileData(file_uri=facts["uri"], mime_type=found.content_type))
        try:
            content = await self._blobs.aget(found.key)
        except NotFound:
            return None
        if facts["kind"] == "text":
            return types.Part(text=content.decode())
        data = types.Blob(data=content, mime_type=found.content_type, display_name=facts.get("name"))
        part = types.Part(inline_data=data)
        return None if part == _ABSENT else part

    async def list_artifact_keys(
        self, *, app_name: str, user_id: str, session_id: str | None = None
    ) -> list[str]:
        """Returns the names of a session's artifacts and of the user's; without a session, of the user's alone."""
        folders = [self._scope(app_name, user_id, None)]
        if session_id is not None:
            folders.append(self._scope(app_name, user_id, session_id))
        names = {
            unquote(found.key.removeprefix(folder).partition("/")[0])
            for folder in folders
            for found in await self._blobs.alist(folder)
        }
        return sorted(names)

    async def delete_artifact(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> None:
        """Deletes all versions of an artifact."""
        folder = self._folder(app_name, user_id, session_id, filename)
        # The latest one is deleted last, so that the numbers of versions continue if this is interrupted.
        for found in await self._blobs.alist(folder):
            await self._blobs.adelete(found.key)

    async def list_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[int]:
        """Returns the numbers of the versions of an artifact."""
        folder = self._folder(app_name, user_id, session_id, filename)
        return [_number(found) for found in await self._blobs.alist(folder)]

    async def list_artifact_versions(
        self, *, app_name: str, user_id: str, filename: str, session_id: str | None = None
    ) -> list[ArtifactVersion]:
        """Returns the metadata of the versions of an artifact, with a call for each version."""
        folder = self._folder(app_name, user_id, session_id, filename)
        versions = [await self._blobs.ainfo(found.key) for found in await self._blobs.alist(folder)]
        return [_version(found, app_name, user_id, session_id, filename) for found in versions if found]

    async def get_artifact_version(
        self,
        *,
        app_name: str,
        user_id: str,
        filename: str,
        session_id: str | None = None,
        version: int | None = None,
    ) -> ArtifactVersion | None:
        """Returns the metadata of a version, or of the latest one; ``None`` if it does not exist."""
        found = await self._info(self._folder(app_name, user_id, session_id, filename), version)
        return None if found is None else _version(found, app_name, user_id, session_id, filename)

    async def _info(self, folder: str, version: int | None) -> BlobInfo | None:
        number = await self._last(folder) if version is None else version
        return None if number < 0 else await self._blobs.ainfo(_key(folder, number))

    async def _last(self, folder: str) -> int:
        versions = await self._blobs.alist(folder)
        return _number(versions[-1]) if versions else -1

    def _scope(self, app_name: str, user_id: str, session_id: str | None) -> str:
        """Returns the prefix of the artifacts of a session; of those of a user if it is ``None``."""
        artifact_util.validate_path_segment(app_name, "app_name")
        artifact_util.validate_path_segment(user_id, "user_id")
        user = f"{self._prefix}{quote(app_name, safe='')}/{quote(user_id, safe='')}/"
        if session_id is None:
            return user + "u/"
        artifact_util.validate_path_segment(session_id, "session_id")
        return f"{user}s/{quote(session_id.strip(), safe='')}/"

    def _folder(self, app_name: str, user_id: str, session_id: str | None, filename: str) -> str:
        """Returns the prefix of the versions of an artifact."""
        if filename.startswith(_USER):
            session_id = None
        elif session_id is None:
            raise InputValidationError("Session ID must be provided for session-scoped artifacts.")
        return f"{self._scope(app_name, user_id, session_id)}{quote(filename, safe='')}/"


def _key(folder: str, version: int) -> str:
    return f"{folder}{version:010}"


def _number(found: BlobInfo) -> int:
    return int(found.key.rpartition("/")[2])


def _trimmed(session_id: str | None) -> str | None:
    """Returns the name of a session as the session service stores it."""
    return None if session_id is None else session_id.strip()


def _encode(
    part: types.Part, app_name: str, user_id: str, session_id: str | None
) -> tuple[bytes, str | None, dict[str, Any]]:
    """Returns the content and the MIME type of the blob of a part, and further facts."""
    if (data := part.inline_data) is not None:
        name = {} if data.display_name is None else {"name": data.display_name}
        return data.data or b"", data.mime_type, {"kind": "data", **name}
    if part.text is not None:
        return part.text.encode(), "text/plain", {"kind": "text"}
    if (file := part.file_data) is None or not file.file_uri:
        raise InputValidationError("Not supported artifact type.")
    if artifact_util.is_artifact_ref(part):
        target = artifact_util.parse_artifact_uri(file.file_uri)
        if target is None:
            raise InputValidationError(f"Invalid artifact reference URI: {file.file_uri}")
        artifact_util.validate_artifact_reference_scope(
            app_name=app_name, user_id=user_id, session_id=session_id, parsed_uri=target
        )
        return b"", None, {"kind": "uri", "uri": file.file_uri}
    return b"", file.mime_type, {"kind": "uri", "uri": file.file_uri}


def _version(
    found: BlobInfo, app_name: str, user_id: str, session_id: str | None, filename: str
) -> ArtifactVersion:
    facts = _facts(found)
    session_id = None if filename.startswith(_USER) else _trimmed(session_id)
    return ArtifactVersion(
        version=_number(found),
        canonical_uri=artifact_util.get_artifact_uri(app_name, user_id, filename, _number(found), session_id),
        custom_metadata=facts["custom"],
        create_time=facts["created"],
        mime_type=found.content_type,
    )


def _facts(found: BlobInfo) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads(found.metadata[_FACTS])
    return facts


def _json(facts: dict[str, Any]) -> str:
    try:
        # The metadata of a blob has visible ASCII only.
        return json.dumps(facts, separators=(",", ":")).replace("\x7f", "\\u007f")
    except (RecursionError, TypeError, ValueError):
        raise invalid(
            "python", "custom_metadata", "has a value that JSON cannot represent; convert it"
        ) from None
