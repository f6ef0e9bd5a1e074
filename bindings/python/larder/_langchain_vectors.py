"""Vector store and document index of LangChain."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Self

from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.indexing import DeleteResponse, DocumentIndex, UpsertResponse
from langchain_core.vectorstores import VectorStore
from langchain_core.vectorstores.utils import maximal_marginal_relevance
from pydantic import ConfigDict, Field

from larder import _vectors
from larder._adapter import Steps, aperform, perform, step
from larder._errors import invalid
from larder._filter_dict import read
from larder._stores import Stores

_PAGE = 1_000
_Found = tuple[Document, float]


class LarderVectorStore(VectorStore):
    """Stores documents with embeddings in a collection, and searches it exactly by cosine similarity.

    Searches take a ``filter``: a :class:`larder.Filter`, or a dictionary such as
    ``{"year": {"$gte": 2020}, "city": "Oslo"}``.

    :param stores: Open stores.
    :param embedding: The model that embeds texts.
    :param collection: The collection. Its first document sets the dimensions.
    :raises Unsupported: if the stores have no vectors.
    """

    def __init__(self, stores: Stores, embedding: Embeddings, *, collection: str = "langchain") -> None:
        self._vectors = stores.vectors
        self._embedding = embedding
        self._collection = collection

    @property
    def embeddings(self) -> Embeddings:
        """The model that embeds texts."""
        return self._embedding

    def add_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """Embeds and writes texts, up to 1,000 in one atomic write, and returns their ids.

        :param ids: The ids; ``None``, as a list or as an element, creates new ones.
        """
        return perform(self._add(list(texts), metadatas, ids))

    async def aadd_texts(
        self,
        texts: Iterable[str],
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        **kwargs: Any,
    ) -> list[str]:
        """As :meth:`add_texts`."""
        return await aperform(self._add(list(texts), metadatas, ids))

    def add_documents(
        self, documents: list[Document], *, ids: list[str] | None = None, **kwargs: Any
    ) -> list[str]:
        """Embeds and writes documents, up to 1,000 in one atomic write, and returns their ids."""
        return perform(self._add_documents(documents, ids))

    async def aadd_documents(
        self, documents: list[Document], *, ids: list[str] | None = None, **kwargs: Any
    ) -> list[str]:
        """As :meth:`add_documents`."""
        return await aperform(self._add_documents(documents, ids))

    def _add_documents(self, documents: Sequence[Document], ids: list[str] | None) -> Steps[list[str]]:
        texts = [document.page_content for document in documents]
        metadatas = [document.metadata for document in documents]
        return self._add(texts, metadatas, ids or [document.id for document in documents])

    def _add(
        self,
        texts: list[str],
        metadatas: list[dict[str, Any]] | None,
        ids: Sequence[str | None] | None,
    ) -> Steps[list[str]]:
        for name, values in (("metadatas", metadatas), ("ids", ids)):
            if values and len(values) != len(texts):
                raise invalid("langchain.add", name, "has not one element for each text; pass as many")
        names = [id or str(uuid.uuid4()) for id in ids or [None] * len(texts)]
        if not texts:
            return names
        embeddings = yield step(self._embedding.embed_documents, texts)
        documents = map(_vectors.Document, names, texts, embeddings, metadatas or [{}] * len(texts))
        # Of several documents with one id, the last one counts.
        given = list({document.id: document for document in documents}.values())
        for start in range(0, len(given), _PAGE):
            yield step(self._vectors.put, self._collection, given[start : start + _PAGE])
        return names

    def get_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """Returns the documents with these ids, in their order, without those that do not exist."""
        return perform(self._get(ids))

    async def aget_by_ids(self, ids: Sequence[str], /) -> list[Document]:
        """As :meth:`get_by_ids`."""
        return await aperform(self._get(ids))

    def _get(self, ids: Sequence[str]) -> Steps[list[Document]]:
        found: list[Document] = []
        for start in range(0, len(ids), _PAGE):
            page = yield step(self._vectors.get_many, self._collection, ids[start : start + _PAGE])
            found += [_document(document) for document in page if document is not None]
        return found

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """Deletes the documents with these ids; all documents if ``ids`` is ``None``."""
        perform(self._delete(ids))
        return True

    async def adelete(self, ids: list[str] | None = None, **kwargs: Any) -> bool:
        """As :meth:`delete`."""
        await aperform(self._delete(ids))
        return True

    def _delete(self, ids: Sequence[str] | None) -> Steps[int]:
        if ids is None:
            return int((yield step(self._vectors.drop_collection, self._collection)))
        deleted, names = 0, list(dict.fromkeys(ids))
        for start in range(0, len(names), _PAGE):
            deleted += yield step(self._vectors.delete, self._collection, names[start : start + _PAGE])
        return deleted

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """Returns the ``k`` documents most similar to a text, best first."""
        return [document for document, _ in self.similarity_search_with_score(query, k, **kwargs)]

    async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        """As :meth:`similarity_search`."""
        return [document for document, _ in await self.asimilarity_search_with_score(query, k, **kwargs)]

    def similarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[_Found]:
        """As :meth:`similarity_search`, with the cosine similarity, from -1 to 1."""
        return perform(self._search(query, None, k, **kwargs))

    async def asimilarity_search_with_score(self, query: str, k: int = 4, **kwargs: Any) -> list[_Found]:
        """As :meth:`similarity_search_with_score`."""
        return await aperform(self._search(query, None, k, **kwargs))

    def similarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """Returns the ``k`` documents most similar to an embedding, best first."""
        return [document for document, _ in perform(self._search(None, embedding, k, **kwargs))]

    async def asimilarity_search_by_vector(
        self, embedding: list[float], k: int = 4, **kwargs: Any
    ) -> list[Document]:
        """As :meth:`similarity_search_by_vector`."""
        return [document for document, _ in await aperform(self._search(None, embedding, k, **kwargs))]

    def _search(
        self, query: str | None, embedding: list[float] | None, k: int, filter: object = None, **_: Any
    ) -> Steps[list[_Found]]:
        condition = read(filter)
        if k <= 0:
            return []
        if query is not None:
            embedding = yield step(self._embedding.embed_query, query)
        hits = yield step(self._vectors.search, self._collection, embedding, limit=k, filter=condition)
        return [
            (Document(id=hit.id, page_content=hit.content, metadata=hit.metadata), hit.score) for hit in hits
        ]

    def _select_relevance_score_fn(self) -> Callable[[float], float]:
        return lambda similarity: min(max(similarity, 0.0), 1.0)

    def max_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """Returns ``k`` of the ``fetch_k`` most similar documents, chosen to be similar and diverse.

        :param lambda_mult: 0 for the greatest diversity, 1 for the greatest similarity.
        """
        return perform(self._diverse(query, None, k, fetch_k, lambda_mult, **kwargs))

    async def amax_marginal_relevance_search(
        self, query: str, k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """As :meth:`max_marginal_relevance_search`."""
        return await aperform(self._diverse(query, None, k, fetch_k, lambda_mult, **kwargs))

    def max_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """As :meth:`max_marginal_relevance_search`, by an embedding."""
        return perform(self._diverse(None, embedding, k, fetch_k, lambda_mult, **kwargs))

    async def amax_marginal_relevance_search_by_vector(
        self, embedding: list[float], k: int = 4, fetch_k: int = 20, lambda_mult: float = 0.5, **kwargs: Any
    ) -> list[Document]:
        """As :meth:`max_marginal_relevance_search_by_vector`."""
        return await aperform(self._diverse(None, embedding, k, fetch_k, lambda_mult, **kwargs))

    def _diverse(
        self,
        query: str | None,
        embedding: list[float] | None,
        k: int,
        fetch_k: int,
        lambda_mult: float,
        **kwargs: Any,
    ) -> Steps[list[Document]]:
        import numpy

        if query is not None:
            embedding = yield step(self._embedding.embed_query, query)
        found = yield from self._search(None, embedding, fetch_k, **kwargs)
        ids = [document.id for document, _ in found]
        stored = []
        for start in range(0, len(ids), _PAGE):
            stored += yield step(self._vectors.get_many, self._collection, ids[start : start + _PAGE])
        # A document that was deleted in between is left out.
        pairs = [(document, one) for (document, _), one in zip(found, stored, strict=True) if one is not None]
        embeddings = [list(one.embedding) for _, one in pairs]
        chosen = maximal_marginal_relevance(
            numpy.array(embedding, dtype=numpy.float32), embeddings, k=k, lambda_mult=lambda_mult
        )
        return [pairs[index][0] for index in chosen]

    @classmethod
    def from_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        stores: Stores | None = None,
        collection: str = "langchain",
        **kwargs: Any,
    ) -> Self:
        """Creates a vector store and adds texts.

        :param stores: Open stores; required.
        """
        store = cls(_required(stores), embedding, collection=collection)
        store.add_texts(texts, metadatas, ids=ids)
        return store

    @classmethod
    async def afrom_texts(
        cls,
        texts: list[str],
        embedding: Embeddings,
        metadatas: list[dict[str, Any]] | None = None,
        *,
        ids: list[str] | None = None,
        stores: Stores | None = None,
        collection: str = "langchain",
        **kwargs: Any,
    ) -> Self:
        """As :meth:`from_texts`."""
        store = cls(_required(stores), embedding, collection=collection)
        await store.aadd_texts(texts, metadatas, ids=ids)
        return store


class LarderDocumentIndex(DocumentIndex):
    """Writes, reads and searches the documents of a vector store. The interface of LangChain is a beta.

    :param vectorstore: The vector store.
    :param search_kwargs: Arguments of searches, such as ``k`` and ``filter``.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(arbitrary_types_allowed=True)

    vectorstore: LarderVectorStore
    search_kwargs: dict[str, Any] = Field(default_factory=dict)

    def upsert(self, items: Sequence[Document], /, **kwargs: Any) -> UpsertResponse:
        """Writes documents, up to 1,000 in one atomic write."""
        return {"succeeded": self.vectorstore.add_documents(list(items)), "failed": []}

    async def aupsert(self, items: Sequence[Document], /, **kwargs: Any) -> UpsertResponse:
        """As :meth:`upsert`."""
        return {"succeeded": await self.vectorstore.aadd_documents(list(items)), "failed": []}

    def delete(self, ids: list[str] | None = None, **kwargs: Any) -> DeleteResponse:
        """Deletes the documents with these ids, which are required."""
        return {"num_deleted": perform(self.vectorstore._delete(_named(ids))), "num_failed": 0}

    async def adelete(self, ids: list[str] | None = None, **kwargs: Any) -> DeleteResponse:
        """As :meth:`delete`."""
        return {"num_deleted": await aperform(self.vectorstore._delete(_named(ids))), "num_failed": 0}

    def get(self, ids: Sequence[str], /, **kwargs: Any) -> list[Document]:
        """Returns the documents with these ids, in their order, without those that do not exist."""
        return self.vectorstore.get_by_ids(ids)

    async def aget(self, ids: Sequence[str], /, **kwargs: Any) -> list[Document]:
        """As :meth:`get`."""
        return await self.vectorstore.aget_by_ids(ids)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun
    ) -> list[Document]:
        return self.vectorstore.similarity_search(query, **self.search_kwargs)

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun
    ) -> list[Document]:
        return await self.vectorstore.asimilarity_search(query, **self.search_kwargs)


def _document(document: _vectors.Document) -> Document:
    return Document(id=document.id, page_content=document.content, metadata=dict(document.metadata))


def _required(stores: Stores | None) -> Stores:
    if not isinstance(stores, Stores):
        raise invalid("langchain.from_texts", "stores", "is missing; pass open stores")
    return stores


def _named(ids: list[str] | None) -> list[str]:
    if ids is None:
        raise invalid("langchain.delete", "ids", "is missing; pass the ids to delete")
    return ids
