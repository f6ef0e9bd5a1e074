"""Documents with embeddings."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, SupportsFloat

from larder._errors import invalid
from larder._filter import Filter, encode
from larder._messages import to_json
from larder._native import Call
from larder._native import Vectors as NativeVectors
from larder._page import wanted
from larder._run import Plan, Unpicklable, adrive, drive, run

Embedding = Sequence[SupportsFloat] | Any
"""An array of NumPy, another buffer of 32-bit or 64-bit floats, or a sequence of numbers."""

_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Document:
    """A document, at most 1 MiB, with its embedding of up to 16,000 dimensions."""

    id: str
    content: str = ""
    embedding: Embedding | None = None
    """``None`` if the stores have an embedder. A document that was read has an ``array`` of floats."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SearchHit(NamedTuple):
    """A document in the result of a search."""

    id: str
    score: float
    """The cosine similarity, from -1 to 1."""
    content: str
    metadata: dict[str, Any]


class PutReport(NamedTuple):
    """The ids of the documents that a put wrote, and of those that existed."""

    written: list[str]
    ignored: list[str]


class CollectionInfo(NamedTuple):
    """A collection."""

    collection: str
    dimensions: int
    documents: int


class Vectors(Unpicklable):
    """Documents with embeddings, in collections.

    >>> import larder
    >>> with larder.open("memory:") as stores:
    ...     _ = stores.vectors.put("trips", larder.Document("basel", "Zoo", [1.0, 0.0]))
    ...     [hit.id for hit in stores.vectors.search("trips", [0.9, 0.1])]
    ['basel']
    """

    __slots__ = ("_native", "_stores")

    def __init__(self, native: NativeVectors, stores: object) -> None:
        self._native = native
        # The stores are closed when nobody holds them.
        self._stores = stores

    def put(
        self, collection: str, documents: Document | Iterable[Document], *, if_absent: bool = False
    ) -> PutReport:
        """Writes up to 1,000 documents, all or none. The first document sets the collection's dimensions.

        :param if_absent: ``True`` to leave documents that exist as they are.
        """
        return _report(self._put(collection, documents, if_absent).wait())

    async def aput(
        self, collection: str, documents: Document | Iterable[Document], *, if_absent: bool = False
    ) -> PutReport:
        """As :meth:`put`."""
        return _report(await run(self._put(collection, documents, if_absent)))

    def _put(self, collection: str, documents: Document | Iterable[Document], if_absent: bool) -> Call[str]:
        given = [documents] if isinstance(documents, Document) else list(documents)
        for document in given:
            if not isinstance(document, Document):
                raise invalid(
                    "python", "documents", f"has a `{type(document).__name__}`; pass larder.Document"
                )
        fields = [{"id": one.id, "content": one.content, "metadata": dict(one.metadata)} for one in given]
        embeddings = [document.embedding for document in given]
        return self._native.put(collection, to_json("documents", fields), embeddings, if_absent)

    def get(self, collection: str, document: str) -> Document | None:
        """Returns a document; ``None`` if it does not exist."""
        return _documents(self._native.get(collection, [document]).wait())[0]

    async def aget(self, collection: str, document: str) -> Document | None:
        """As :meth:`get`."""
        return _documents(await run(self._native.get(collection, [document])))[0]

    def get_many(self, collection: str, documents: Iterable[str]) -> list[Document | None]:
        """Returns up to 1,000 documents in the order of their ids; ``None`` for one that does not exist."""
        return _documents(self._native.get(collection, list(documents)).wait())

    async def aget_many(self, collection: str, documents: Iterable[str]) -> list[Document | None]:
        """As :meth:`get_many`."""
        return _documents(await run(self._native.get(collection, list(documents))))

    def search(
        self,
        collection: str,
        embedding: Embedding,
        *,
        limit: int = 5,
        filter: Filter | None = None,
        score_min: float | None = None,
    ) -> list[SearchHit]:
        """Returns the documents that are most similar, best first; at most 10,000."""
        return _hits(self._native.search(collection, [embedding], limit, encode(filter), score_min).wait())[0]

    async def asearch(
        self,
        collection: str,
        embedding: Embedding,
        *,
        limit: int = 5,
        filter: Filter | None = None,
        score_min: float | None = None,
    ) -> list[SearchHit]:
        """As :meth:`search`."""
        call = self._native.search(collection, [embedding], limit, encode(filter), score_min)
        return _hits(await run(call))[0]

    def search_many(
        self,
        collection: str,
        embeddings: Iterable[Embedding],
        *,
        limit: int = 5,
        filter: Filter | None = None,
        score_min: float | None = None,
    ) -> list[list[SearchHit]]:
        """Makes up to 256 searches in one call, and returns their results in the same order."""
        given = list(embeddings)
        return _hits(self._native.search(collection, given, limit, encode(filter), score_min).wait())

    async def asearch_many(
        self,
        collection: str,
        embeddings: Iterable[Embedding],
        *,
        limit: int = 5,
        filter: Filter | None = None,
        score_min: float | None = None,
    ) -> list[list[SearchHit]]:
        """As :meth:`search_many`."""
        given = list(embeddings)
        return _hits(await run(self._native.search(collection, given, limit, encode(filter), score_min)))

    def update_metadata(
        self, collection: str, updates: Mapping[str, Mapping[str, Any]], *, replace: bool = False
    ) -> list[str]:
        """Merges metadata into documents, all or none, and returns the ids that do not exist.

        :param replace: ``True`` to replace the metadata.
        """
        return _missing(self._native.update_metadata(collection, _updates(updates), replace).wait())

    async def aupdate_metadata(
        self, collection: str, updates: Mapping[str, Mapping[str, Any]], *, replace: bool = False
    ) -> list[str]:
        """As :meth:`update_metadata`."""
        return _missing(await run(self._native.update_metadata(collection, _updates(updates), replace)))

    def delete(self, collection: str, documents: Iterable[str]) -> int:
        """Deletes up to 1,000 documents, and returns the number that existed."""
        return self._native.delete(collection, list(documents)).wait()

    async def adelete(self, collection: str, documents: Iterable[str]) -> int:
        """As :meth:`delete`."""
        return await run(self._native.delete(collection, list(documents)))

    def delete_matching(self, collection: str, filter: Filter) -> int:
        """Deletes the documents that a filter matches, and returns their number."""
        return self._native.delete_matching(collection, to_json("filter", filter.condition)).wait()

    async def adelete_matching(self, collection: str, filter: Filter) -> int:
        """As :meth:`delete_matching`."""
        return await run(self._native.delete_matching(collection, to_json("filter", filter.condition)))

    def count(self, collection: str, filter: Filter | None = None) -> int:
        """Returns the number of documents, or of those that a filter matches."""
        return self._native.count(collection, encode(filter)).wait()

    async def acount(self, collection: str, filter: Filter | None = None) -> int:
        """As :meth:`count`."""
        return await run(self._native.count(collection, encode(filter)))

    def documents(
        self,
        collection: str,
        filter: Filter | None = None,
        *,
        after: str | None = None,
        limit: int = 10_000,
    ) -> list[Document]:
        """Lists up to ``limit`` documents by their ids, or those that a filter matches.

        :param after: The id after which the listing begins; it need not exist.
        """
        return drive(self._list(collection, filter, after, limit))

    async def adocuments(
        self,
        collection: str,
        filter: Filter | None = None,
        *,
        after: str | None = None,
        limit: int = 10_000,
    ) -> list[Document]:
        """As :meth:`documents`."""
        return await adrive(self._list(collection, filter, after, limit))

    def _list(
        self, collection: str, filter: Filter | None, after: str | None, limit: int
    ) -> Plan[list[Document]]:
        found: list[Document] = []
        while True:
            count = wanted(limit, len(found), _PAGE)
            page = yield self._native.documents(collection, encode(filter), after, count)
            found += [document for document in _documents(page) if document is not None]
            after = page[2]
            if after is None or len(found) >= limit:
                return found

    def collections(self) -> list[CollectionInfo]:
        """Lists the collections, in byte order."""
        return drive(self._collections())

    async def acollections(self) -> list[CollectionInfo]:
        """As :meth:`collections`."""
        return await adrive(self._collections())

    def _collections(self) -> Plan[list[CollectionInfo]]:
        found: list[CollectionInfo] = []
        after: str | None = None
        while True:
            page = json.loads((yield self._native.collections(after, _PAGE)))
            found += [CollectionInfo(**info) for info in page["items"]]
            after = page["next"]
            if after is None:
                return found

    def drop_collection(self, collection: str) -> bool:
        """Deletes a collection with its documents and its dimensions, and returns whether it existed."""
        return self._native.drop_collection(collection).wait()

    async def adrop_collection(self, collection: str) -> bool:
        """As :meth:`drop_collection`."""
        return await run(self._native.drop_collection(collection))


def _documents(found: tuple[str, list[bytes | None], str | None]) -> list[Document | None]:
    documents: list[Document | None] = []
    for fields, embedding in zip(json.loads(found[0]), found[1], strict=True):
        values = None if embedding is None else array("f", embedding)
        if fields is None:
            documents.append(None)
        else:
            documents.append(Document(fields["id"], fields["content"], values, fields.get("metadata", {})))
    return documents


def _hits(text: str) -> list[list[SearchHit]]:
    return [
        [SearchHit(hit["id"], hit["score"], hit["content"], hit.get("metadata", {})) for hit in hits]
        for hits in json.loads(text)
    ]


def _report(text: str) -> PutReport:
    return PutReport(**json.loads(text))


def _updates(updates: Mapping[str, Mapping[str, Any]]) -> str:
    given = [{"id": document, "metadata": dict(metadata)} for document, metadata in updates.items()]
    return to_json("updates", given)


def _missing(text: str) -> list[str]:
    missing: list[str] = json.loads(text)["missing"]
    return missing
