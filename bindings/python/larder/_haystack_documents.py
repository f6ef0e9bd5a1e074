"""Documents of Haystack as documents of the stores, and their dates."""

from __future__ import annotations

import base64
from array import array
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from haystack.dataclasses import ByteStream, Document, SparseEmbedding

from larder import _vectors
from larder._errors import invalid
from larder._filter import Filter
from larder._vectors import SearchHit

FIELDS = "_haystack"
"""The metadata key of the fields of a document that are neither text nor metadata."""
EMBEDDED = Filter.ne([FIELDS, "embedded"], False)
"""Matches the documents that have an embedding."""

_DATE = "_haystack.date."
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def encode(document: object, dimensions: int) -> _vectors.Document:
    """Returns the document of the stores, which always has an embedding."""
    if not isinstance(document, Document):
        raise invalid("python", "documents", f"has a `{type(document).__name__}`; pass Document of Haystack")
    fields: dict[str, Any] = {"id": document.id, "embedded": document.embedding is not None}
    if document.content is None:
        fields["no_content"] = True
    if document.blob is not None:
        fields["blob"] = {**document.blob.to_dict(), "data": base64.b64encode(document.blob.data).decode()}
    if document.sparse_embedding is not None:
        fields["sparse_embedding"] = document.sparse_embedding.to_dict()
    embedding = document.embedding
    if embedding is None:
        # A search leaves it out.
        embedding = array("f", [1.0] + [0.0] * (dimensions - 1))  # type: ignore[assignment]
    elif len(embedding) != dimensions:
        raise invalid(
            "python",
            "documents",
            f"has an embedding with {len(embedding)} dimensions; the document store has {dimensions}",
        )
    instants = {key: value for key, value in with_dates(document.meta).items() if value is not None}
    return _vectors.Document(
        document.id, document.content or "", embedding, {**document.meta, **instants, FIELDS: fields}
    )


def decode(
    document: _vectors.Document | SearchHit, *, embedding: Any = None, score: float | None = None
) -> Document:
    """Returns the document of Haystack, also of one that another program wrote."""
    fields = document.metadata.get(FIELDS, {})
    blob, sparse = fields.get("blob"), fields.get("sparse_embedding")
    if blob is not None:
        blob = ByteStream(base64.b64decode(blob["data"]), blob["meta"], blob["mime_type"])
    return Document(
        id=document.id,
        content=None if fields.get("no_content") else document.content,
        blob=blob,
        meta=meta(document.metadata),
        score=score,
        embedding=list(embedding) if embedding is not None and is_embedded(document) else None,
        sparse_embedding=None if sparse is None else SparseEmbedding.from_dict(sparse),
    )


def is_embedded(document: _vectors.Document | SearchHit) -> bool:
    """Returns whether a document has an embedding, as :data:`EMBEDDED` selects it."""
    return document.metadata.get(FIELDS, {}).get("embedded") is not False


def meta(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the metadata of Haystack."""
    return {key: value for key, value in metadata.items() if key != FIELDS and not key.startswith(_DATE)}


def with_dates(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the instants in metadata under the keys that :func:`dated` names; ``None`` for no date."""
    for key in given:
        if key == FIELDS or key.startswith(_DATE):
            raise invalid("python", "meta", f"has a key that begins with `{FIELDS}`; rename it")
    return {_DATE + key: _dates(value) for key, value in given.items()}


def dated(path: list[str]) -> list[str]:
    """Returns the path of the instant of a date in metadata."""
    return [_DATE + path[0], *path[1:]]


def _dates(value: Any) -> Any:
    if isinstance(value, Mapping):
        found = {key: date for key, one in value.items() if (date := _dates(one)) is not None}
        return found or None
    return instant(value)


def instant(value: Any) -> int | None:
    """Returns a date as microseconds since 1970; ``None`` for a value that is none.

    A date is a ``datetime`` or a text in ISO 8601 with year, month and day. One without a time zone is in UTC.
    """
    date = value
    if isinstance(value, str) and len(value) >= 10 and value[4] == value[7] == "-":
        try:
            date = datetime.fromisoformat(value)
        except ValueError:
            return None
    if not isinstance(date, datetime):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return (date - _EPOCH) // timedelta(microseconds=1)
