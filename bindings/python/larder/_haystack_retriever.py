"""Embedding retriever of Haystack."""

from __future__ import annotations

from typing import Any

from haystack import Document, component, default_from_dict, default_to_dict
from haystack.document_stores.types import FilterPolicy, apply_filter_policy

from larder._errors import invalid
from larder._haystack_store import LarderDocumentStore


@component
class LarderEmbeddingRetriever:
    """Retrieves the documents whose embeddings are most similar to that of a query.

    >>> from larder.haystack import LarderDocumentStore, LarderEmbeddingRetriever
    >>> retriever = LarderEmbeddingRetriever(LarderDocumentStore("memory:"), top_k=3)

    :param document_store: The document store.
    :param filters: The filters of each search.
    :param top_k: The greatest number of documents.
    :param scale_score: ``True`` to map the cosine similarity to the range from 0 to 1.
    :param return_embedding: ``True`` to return the documents with their embeddings.
    :param filter_policy: Whether the filters of a call replace these filters or are merged with them.
    """

    # Saved pipelines name the class by its module.
    __module__ = "larder.haystack"

    def __init__(
        self,
        document_store: LarderDocumentStore,
        filters: dict[str, Any] | None = None,
        top_k: int = 10,
        scale_score: bool = False,
        return_embedding: bool = False,
        filter_policy: str | FilterPolicy = FilterPolicy.REPLACE,
    ) -> None:
        if not isinstance(document_store, LarderDocumentStore):
            kind = type(document_store).__name__
            raise invalid("python", "document_store", f"is a `{kind}`; pass a LarderDocumentStore")
        if top_k <= 0:
            raise invalid("python", "top_k", "is not greater than 0; pass a greater one")
        self.document_store = document_store
        self.filters = filters
        self.top_k = top_k
        self.scale_score = scale_score
        self.return_embedding = return_embedding
        self.filter_policy: FilterPolicy = (
            FilterPolicy.from_str(filter_policy) if isinstance(filter_policy, str) else filter_policy
        )

    def to_dict(self) -> dict[str, Any]:
        """Returns the component as a dictionary."""
        return default_to_dict(
            self,
            document_store=self.document_store.to_dict(),
            filters=self.filters,
            top_k=self.top_k,
            scale_score=self.scale_score,
            return_embedding=self.return_embedding,
            filter_policy=self.filter_policy.value,
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> LarderEmbeddingRetriever:
        """Creates the component of a dictionary."""
        given = dict(data["init_parameters"])
        given["document_store"] = LarderDocumentStore.from_dict(given["document_store"])
        return default_from_dict(cls, {**data, "init_parameters": given})

    @component.output_types(documents=list[Document])
    def run(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        scale_score: bool | None = None,
        return_embedding: bool | None = None,
    ) -> dict[str, list[Document]]:
        """Retrieves documents. An argument that is not ``None`` counts instead of that of the constructor."""
        options = self._options(filters, top_k, scale_score, return_embedding)
        return {"documents": self.document_store.embedding_retrieval(query_embedding, **options)}

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query_embedding: list[float],
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        scale_score: bool | None = None,
        return_embedding: bool | None = None,
    ) -> dict[str, list[Document]]:
        """As :meth:`run`."""
        options = self._options(filters, top_k, scale_score, return_embedding)
        return {"documents": await self.document_store.embedding_retrieval_async(query_embedding, **options)}

    def _options(
        self,
        filters: dict[str, Any] | None,
        top_k: int | None,
        scale_score: bool | None,
        return_embedding: bool | None,
    ) -> dict[str, Any]:
        return {
            "filters": apply_filter_policy(self.filter_policy, self.filters, filters),
            "top_k": self.top_k if top_k is None else top_k,
            "scale_score": self.scale_score if scale_score is None else scale_score,
            "return_embedding": self.return_embedding if return_embedding is None else return_embedding,
        }
