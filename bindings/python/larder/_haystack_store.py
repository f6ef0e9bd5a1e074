"""Document store of Haystack."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, Self

from haystack import Document, default_from_dict, default_to_dict
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.types import DuplicatePolicy
from haystack.utils import Secret

from larder import _haystack_metadata as metadata
from larder import _vectors
from larder._adapter import Steps, aperform, perform, step
from larder._closing import Closing
from larder._errors import invalid, unsupported
from larder._filter import Filter
from larder._haystack_connection import Connection, as_plain
from larder._haystack_documents import EMBEDDED, decode, encode, is_embedded, meta, with_dates
from larder._haystack_filter import EVERY, read
from larder._run import Unpicklable
from larder._vectors import PutReport, SearchHit, Vectors

_PAGE = 1_000
_Filters = dict[str, Any]


class LarderDocumentStore(Unpicklable, Closing):
    """Stores the documents of Haystack in a collection, and searches it exactly by cosine similarity.

    The stores are opened at the first use. Methods whose names end in ``_async`` are for ``asyncio``. A document
    has at most 1 MiB of text and 64 KiB of metadata. Embeddings are kept as 32-bit floats.

    >>> from haystack import Document
    >>> from larder.haystack import LarderDocumentStore
    >>> with LarderDocumentStore("memory:") as store:
    ...     _ = store.write_documents([Document(content="Basel", meta={"zoo": True})])
    ...     found = store.filter_documents({"field": "meta.zoo", "operator": "==", "value": True})
    >>> found[0].content
    'Basel'

    :param url: The URL of the stores, as in :func:`larder.open`, or a secret with the URL. A URL with a password
        or parameters becomes a secret that cannot be serialized; pass ``Secret.from_env_var``.
    :param namespace: The namespace of the stores.
    :param collection: The collection.
    :param embedding_dimension: The dimensions of the embeddings.
    """

    # Saved pipelines name the class by its module.
    __module__ = "larder.haystack"

    def __init__(
        self,
        url: Secret | str = Secret.from_env_var("LARDER_URL"),
        *,
        namespace: str = "default",
        collection: str = "haystack",
        embedding_dimension: int = 768,
    ) -> None:
        if isinstance(embedding_dimension, bool) or not isinstance(embedding_dimension, int):
            raise invalid("python", "embedding_dimension", "is not a whole number; pass one")
        if not 1 <= embedding_dimension <= 16_000:
            raise invalid("python", "embedding_dimension", "is not from 1 to 16000; pass one that is")
        self.collection = collection
        self.embedding_dimension = embedding_dimension
        self._connection = Connection(as_plain(url), namespace)

    def to_dict(self) -> dict[str, Any]:
        """Returns the store as a dictionary, in which a secret is the name of its environment variable.

        :raises ValueError: if the URL is a secret that cannot be serialized.
        """
        return default_to_dict(
            self,
            url=self._connection.url,
            namespace=self._connection.namespace,
            collection=self.collection,
            embedding_dimension=self.embedding_dimension,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """Creates the store of a dictionary."""
        return default_from_dict(cls, data)

    def close(self) -> None:
        """Closes the stores if they are open."""
        self._connection.close()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        await self._connection.aclose()

    def _open(self) -> Steps[Vectors]:
        vectors: Vectors = yield step(self._connection.vectors)
        return vectors

    def count_documents(self) -> int:
        """Returns the number of documents."""
        return perform(self._count(None))

    async def count_documents_async(self) -> int:
        """As :meth:`count_documents`."""
        return await aperform(self._count(None))

    def count_documents_by_filter(self, filters: _Filters) -> int:
        """Returns the number of documents that a filter matches."""
        return perform(self._count(filters))

    async def count_documents_by_filter_async(self, filters: _Filters) -> int:
        """As :meth:`count_documents_by_filter`."""
        return await aperform(self._count(filters))

    def _count(self, filters: _Filters | None) -> Steps[int]:
        condition = _condition(filters)
        vectors = yield from self._open()
        return int((yield step(vectors.count, self.collection, condition)))

    def filter_documents(self, filters: _Filters | None = None) -> list[Document]:
        """Returns the documents that a filter matches, in the byte order of their ids.

        :raises FilterError: if the filter is malformed.
        """
        return perform(self._filter(filters))

    async def filter_documents_async(self, filters: _Filters | None = None) -> list[Document]:
        """As :meth:`filter_documents`."""
        return await aperform(self._filter(filters))

    def _filter(self, filters: _Filters | None) -> Steps[list[Document]]:
        listed = yield from self._list(filters)
        # A listing has no embeddings.
        found = yield from self._read([document.id for document in listed])
        return [decode(document, embedding=document.embedding) for document in found]

    def _list(self, filters: _Filters | None) -> Steps[list[_vectors.Document]]:
        condition = _condition(filters)
        vectors = yield from self._open()
        listed: list[_vectors.Document] = yield step(
            vectors.documents, self.collection, condition, limit=sys.maxsize
        )
        return listed

    def _read(self, ids: list[str]) -> Steps[list[_vectors.Document]]:
        vectors = yield from self._open()
        found: list[_vectors.Document] = []
        for names in _pages(ids):
            page = yield step(vectors.get_many, self.collection, names)
            found += [document for document in page if document is not None]
        return found

    def write_documents(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """Writes documents, up to 1,000 in one atomic write, and returns the number of written ones.

        :param policy: ``OVERWRITE`` replaces documents that exist, and ``SKIP`` leaves them. ``FAIL`` and ``NONE``
            look for them first, and write nothing if there are any.
        :raises DuplicateDocumentError: if a document exists, or an id occurs twice.
        """
        return perform(self._write(documents, policy))

    async def write_documents_async(
        self, documents: list[Document], policy: DuplicatePolicy = DuplicatePolicy.NONE
    ) -> int:
        """As :meth:`write_documents`."""
        return await aperform(self._write(documents, policy))

    def _write(self, documents: Sequence[Document], policy: DuplicatePolicy) -> Steps[int]:
        if not isinstance(documents, list):
            raise invalid(
                "python", "documents", f"is a `{type(documents).__name__}`; pass a list of documents"
            )
        encoded = [encode(document, self.embedding_dimension) for document in documents]
        overwrite = policy == DuplicatePolicy.OVERWRITE
        # Of equal ids, the last document counts if documents are replaced, and else the first.
        ordered = encoded if overwrite else encoded[::-1]
        unique = list({document.id: document for document in ordered}.values())
        unique = unique if overwrite else unique[::-1]
        vectors = yield from self._open()
        if policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
            ids = [document.id for document in unique]
            existing = [] if len(unique) < len(encoded) else (yield from self._read(ids))
            if len(unique) < len(encoded) or existing:
                raise _duplicate(len(encoded) - len(unique) + len(existing))
        written = 0
        for page in _pages(unique):
            report: PutReport = yield step(vectors.put, self.collection, page, if_absent=not overwrite)
            written += len(report.written)
        if policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL) and written < len(unique):
            raise _duplicate(len(unique) - written)
        return len(encoded) if overwrite else written

    def delete_documents(self, document_ids: list[str]) -> None:
        """Deletes the documents with these ids, up to 1,000 in one atomic write."""
        perform(self._delete(document_ids))

    async def delete_documents_async(self, document_ids: list[str]) -> None:
        """As :meth:`delete_documents`."""
        await aperform(self._delete(document_ids))

    def _delete(self, document_ids: list[str]) -> Steps[None]:
        vectors = yield from self._open()
        for names in _pages(list(dict.fromkeys(document_ids))):
            yield step(vectors.delete, self.collection, names)

    def delete_all_documents(self, recreate_collection: bool = False) -> None:
        """Deletes all documents.

        :param recreate_collection: ``True`` to delete the collection, too, with its dimensions.
        """
        perform(self._delete_all(recreate_collection))

    async def delete_all_documents_async(self, recreate_collection: bool = False) -> None:
        """As :meth:`delete_all_documents`."""
        await aperform(self._delete_all(recreate_collection))

    def _delete_all(self, recreate: bool) -> Steps[None]:
        vectors = yield from self._open()
        if recreate:
            yield step(vectors.drop_collection, self.collection)
        else:
            yield step(vectors.delete_matching, self.collection, EVERY)

    def delete_by_filter(self, filters: _Filters) -> int:
        """Deletes the documents that a filter matches, and returns their number."""
        return perform(self._delete_by_filter(filters))

    async def delete_by_filter_async(self, filters: _Filters) -> int:
        """As :meth:`delete_by_filter`."""
        return await aperform(self._delete_by_filter(filters))

    def _delete_by_filter(self, filters: _Filters) -> Steps[int]:
        condition = read(filters)
        vectors = yield from self._open()
        return int((yield step(vectors.delete_matching, self.collection, condition)))

    def update_by_filter(self, filters: _Filters, meta: dict[str, Any]) -> int:
        """Merges metadata into the documents that a filter matches, and returns their number.

        The keys of the top level are replaced: of up to 1,000 documents in one atomic write.
        """
        return perform(self._update(filters, meta))

    async def update_by_filter_async(self, filters: _Filters, meta: dict[str, Any]) -> int:
        """As :meth:`update_by_filter`."""
        return await aperform(self._update(filters, meta))

    def _update(self, filters: _Filters, meta: dict[str, Any]) -> Steps[int]:
        merged = {**meta, **with_dates(meta)}
        listed = yield from self._list(filters)
        vectors = yield from self._open()
        updated = 0
        for page in _pages(listed):
            missing = yield step(
                vectors.update_metadata, self.collection, {document.id: merged for document in page}
            )
            updated += len(page) - len(missing)
        return updated

    def count_unique_metadata_by_filter(
        self, filters: _Filters, metadata_fields: list[str]
    ) -> dict[str, int]:
        """Returns the number of different values of each field, in the documents that a filter matches."""
        return metadata.counts(perform(self._metas(filters)), metadata_fields)

    async def count_unique_metadata_by_filter_async(
        self, filters: _Filters, metadata_fields: list[str]
    ) -> dict[str, int]:
        """As :meth:`count_unique_metadata_by_filter`."""
        return metadata.counts(await aperform(self._metas(filters)), metadata_fields)

    def get_metadata_fields_info(self) -> dict[str, dict[str, str]]:
        """Returns the type of each field of the metadata: ``boolean``, ``int``, ``float`` or ``keyword``."""
        return metadata.types(perform(self._metas(None)))

    async def get_metadata_fields_info_async(self) -> dict[str, dict[str, str]]:
        """As :meth:`get_metadata_fields_info`."""
        return metadata.types(await aperform(self._metas(None)))

    def get_metadata_field_min_max(self, metadata_field: str) -> dict[str, Any]:
        """Returns the least and the greatest number of a field, or text if it has no numbers."""
        return metadata.bounds(perform(self._metas(None)), metadata_field)

    async def get_metadata_field_min_max_async(self, metadata_field: str) -> dict[str, Any]:
        """As :meth:`get_metadata_field_min_max`."""
        return metadata.bounds(await aperform(self._metas(None)), metadata_field)

    def get_metadata_field_unique_values(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: _Filters | None = None,
    ) -> tuple[list[Any], int]:
        """Returns a page of the different values of a field, and their number.

        :param search_term: A part of the values, in upper or lower case.
        """
        return metadata.page(perform(self._metas(filters)), metadata_field, search_term, from_, size)

    async def get_metadata_field_unique_values_async(
        self,
        metadata_field: str,
        search_term: str | None = None,
        from_: int = 0,
        size: int = 10,
        filters: _Filters | None = None,
    ) -> tuple[list[Any], int]:
        """As :meth:`get_metadata_field_unique_values`."""
        return metadata.page(await aperform(self._metas(filters)), metadata_field, search_term, from_, size)

    def _metas(self, filters: _Filters | None) -> Steps[list[dict[str, Any]]]:
        listed = yield from self._list(filters)
        return [meta(document.metadata) for document in listed]

    def embedding_retrieval(
        self,
        query_embedding: list[float],
        filters: _Filters | None = None,
        top_k: int = 10,
        scale_score: bool = False,
        return_embedding: bool = False,
    ) -> list[Document]:
        """Returns the ``top_k`` documents whose embeddings are most similar, best first, with their scores.

        :param scale_score: ``True`` to map the cosine similarity to the range from 0 to 1.
        """
        return perform(self._retrieve(query_embedding, filters, top_k, scale_score, return_embedding))

    async def embedding_retrieval_async(
        self,
        query_embedding: list[float],
        filters: _Filters | None = None,
        top_k: int = 10,
        scale_score: bool = False,
        return_embedding: bool = False,
    ) -> list[Document]:
        """As :meth:`embedding_retrieval`."""
        return await aperform(self._retrieve(query_embedding, filters, top_k, scale_score, return_embedding))

    def _retrieve(
        self, embedding: list[float], filters: _Filters | None, top_k: int, scale: bool, with_embedding: bool
    ) -> Steps[list[Document]]:
        condition = _condition(filters)
        if top_k <= 0:
            return []
        vectors = yield from self._open()
        hits: list[SearchHit] = yield step(
            vectors.search, self.collection, embedding, limit=top_k, filter=condition
        )
        if not all(is_embedded(hit) for hit in hits):
            # A filter costs time, and documents without embeddings are seldom among the best.
            embedded = EMBEDDED if condition is None else condition & EMBEDDED
            hits = yield step(vectors.search, self.collection, embedding, limit=top_k, filter=embedded)
        embeddings: dict[str, Any] = {}
        if with_embedding:
            found = yield from self._read([hit.id for hit in hits])
            embeddings = {document.id: document.embedding for document in found}
        return [
            decode(hit, embedding=embeddings.get(hit.id), score=(hit.score + 1) / 2 if scale else hit.score)
            for hit in hits
        ]

    def bm25_retrieval(self, query: str, *arguments: Any, **options: Any) -> list[Document]:
        """Searches in the texts.

        :raises Unsupported: always.
        """
        raise unsupported("python", "a document store does not search in texts; retrieve by embedding")

    async def bm25_retrieval_async(self, query: str, *arguments: Any, **options: Any) -> list[Document]:
        """As :meth:`bm25_retrieval`."""
        return self.bm25_retrieval(query)


def _condition(filters: _Filters | None) -> Filter | None:
    return read(filters) if filters else None


def _pages(items: list[Any]) -> list[list[Any]]:
    return [items[start : start + _PAGE] for start in range(0, len(items), _PAGE)]


def _duplicate(number: int) -> DuplicateDocumentError:
    return DuplicateDocumentError(
        f"{number} of the documents exist or are repeated; pass DuplicatePolicy.SKIP or DuplicatePolicy.OVERWRITE"
    )
