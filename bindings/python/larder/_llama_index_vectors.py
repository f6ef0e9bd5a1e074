"""Vector store of LlamaIndex."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.indices.query.embedding_utils import get_top_k_mmr_embeddings
from llama_index.core.schema import BaseNode, MetadataMode
from llama_index.core.vector_stores.types import (
    BasePydanticVectorStore,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
    VectorStoreQueryResult,
)
from llama_index.core.vector_stores.utils import metadata_dict_to_node, node_to_metadata_dict

from larder._adapter import Steps, aperform, perform, step
from larder._errors import invalid, unsupported
from larder._filter import Filter
from larder._llama_index_filter import both, read
from larder._run import Unpicklable
from larder._stores import Stores
from larder._vectors import Document, SearchHit, Vectors

_PAGE = 1_000
_NODE_ID = "_node_id"
_PREFETCH_FACTOR = 4.0
_SEARCH_LIMIT_MAX = 10_000


class LarderVectorStore(Unpicklable, BasePydanticVectorStore):
    """Stores nodes with embeddings in a collection, and searches it exactly by cosine similarity.

    A node has at most 1 MiB of text. Its metadata is stored twice, in at most 64 KiB: for filters, and as
    JSON text that reads back in the same order.

    >>> import larder
    >>> from llama_index.core import MockEmbedding, StorageContext, VectorStoreIndex
    >>> from larder.llama_index import LarderVectorStore
    >>> with larder.open("memory:") as stores:
    ...     context = StorageContext.from_defaults(vector_store=LarderVectorStore(stores))
    ...     index = VectorStoreIndex([], storage_context=context, embed_model=MockEmbedding(embed_dim=8))

    :param stores: Open stores. The vector store does not close them.
    :param collection: The collection. Its first node sets the dimensions.
    :raises Unsupported: if the stores have no vectors.
    """

    stores_text: bool = True
    collection: str
    _vectors: Vectors = PrivateAttr()

    def __init__(self, stores: Stores, *, collection: str = "llama-index") -> None:
        super().__init__(collection=collection)  # type: ignore[call-arg]
        self._vectors = stores.vectors

    @classmethod
    def class_name(cls) -> str:
        """Returns the name of the class."""
        return "LarderVectorStore"

    @property
    def client(self) -> Vectors:
        """The vectors of the stores."""
        return self._vectors

    def add(self, nodes: Sequence[BaseNode], **add_kwargs: Any) -> list[str]:
        """Writes nodes, up to 1,000 in one atomic write, and returns their ids."""
        return perform(self._add(nodes))

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """As :meth:`add`."""
        return await aperform(self._add(nodes))

    def _add(self, nodes: Sequence[BaseNode]) -> Steps[list[str]]:
        # Of equal ids, the last node counts.
        documents = list({document.id: document for document in map(_document, nodes)}.values())
        for start in range(0, len(documents), _PAGE):
            yield step(self._vectors.put, self.collection, documents[start : start + _PAGE])
        return [node.node_id for node in nodes]

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Deletes the nodes of a source document."""
        self._vectors.delete_matching(self.collection, Filter.eq("ref_doc_id", ref_doc_id))

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """As :meth:`delete`."""
        await self._vectors.adelete_matching(self.collection, Filter.eq("ref_doc_id", ref_doc_id))

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Deletes the nodes that have one of the ids and match the filters. Without both, deletes nothing."""
        perform(self._delete_nodes(node_ids, filters))

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """As :meth:`delete_nodes`."""
        await aperform(self._delete_nodes(node_ids, filters))

    def _delete_nodes(self, node_ids: list[str] | None, filters: MetadataFilters | None) -> Steps[None]:
        condition = read(filters)
        if condition is not None:
            for names in _pages(node_ids):
                both_of = both(_one_of(_NODE_ID, names), condition)
                yield step(self._vectors.delete_matching, self.collection, both_of)
        elif node_ids is not None:
            for names in _pages(node_ids):
                yield step(self._vectors.delete, self.collection, names)

    def clear(self) -> None:
        """Deletes the collection."""
        self._vectors.drop_collection(self.collection)

    async def aclear(self) -> None:
        """As :meth:`clear`."""
        await self._vectors.adrop_collection(self.collection)

    def get_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **kwargs: Any
    ) -> list[BaseNode]:
        """Returns the nodes that have one of the ids and match the filters, with their embeddings.

        Nodes come in the order of the ids, or without ids in their byte order.
        """
        return perform(self._get_nodes(node_ids, filters))

    async def aget_nodes(
        self, node_ids: list[str] | None = None, filters: MetadataFilters | None = None, **kwargs: Any
    ) -> list[BaseNode]:
        """As :meth:`get_nodes`."""
        return await aperform(self._get_nodes(node_ids, filters))

    def _get_nodes(
        self, node_ids: list[str] | None, filters: MetadataFilters | None
    ) -> Steps[list[BaseNode]]:
        condition = read(filters)
        chosen = node_ids
        if node_ids is None or condition is not None:
            found: dict[str, None] = {}
            for names in _pages(node_ids):
                both_of = both(_one_of(_NODE_ID, names), condition)
                page = yield step(self._vectors.documents, self.collection, both_of, limit=sys.maxsize)
                found.update((document.id, None) for document in page)
            chosen = [name for name in (found if node_ids is None else node_ids) if name in found]
        # A listing has no embeddings.
        documents = yield from self._read(chosen or [])
        return [_node(document) for document in documents]

    def _read(self, ids: Sequence[str]) -> Steps[list[Document]]:
        found: list[Document] = []
        for names in _pages(ids):
            page = yield step(self._vectors.get_many, self.collection, names)
            found += [document for document in page if document is not None]
        return found

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Returns the nodes that are most similar to the embedding of a query, best first.

        The mode ``MMR`` chooses nodes that are similar and diverse. It takes ``mmr_threshold``, from 0 for
        the greatest diversity to 1, and ``mmr_prefetch_k`` or ``mmr_prefetch_factor``, the number of nodes
        from which it chooses.

        :raises Unsupported: for the other modes, and for filters that search in text.
        """
        return perform(self._query(query, **kwargs))

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """As :meth:`query`."""
        return await aperform(self._query(query, **kwargs))

    def _query(self, query: VectorStoreQuery, **kwargs: Any) -> Steps[VectorStoreQueryResult]:
        diverse = query.mode == VectorStoreQueryMode.MMR
        if not diverse and query.mode != VectorStoreQueryMode.DEFAULT:
            raise unsupported("python", f"the query mode is `{query.mode.value}`; use `default` or `mmr`")
        if query.query_embedding is None:
            raise invalid("python", "query_embedding", "is missing; set an embedding model")
        condition = both(_one_of("ref_doc_id", query.doc_ids), read(query.filters))
        limit = _prefetch(query, **kwargs) if diverse else query.similarity_top_k
        hits: list[SearchHit] = []
        # An index passes an empty list of nodes if it does not select nodes.
        for names in _pages(query.node_ids or None) if limit > 0 and query.doc_ids != [] else []:
            both_of = both(condition, _one_of(_NODE_ID, names))
            hits += yield step(
                self._vectors.search, self.collection, query.query_embedding, limit=limit, filter=both_of
            )
        hits = sorted(hits, key=lambda hit: -hit.score)[:limit]
        if diverse:
            return (yield from self._diverse(query, [hit.id for hit in hits], **kwargs))
        return VectorStoreQueryResult(
            nodes=[metadata_dict_to_node(hit.metadata, hit.content) for hit in hits],
            similarities=[hit.score for hit in hits],
            ids=[hit.id for hit in hits],
        )

    def _diverse(
        self, query: VectorStoreQuery, ids: list[str], **kwargs: Any
    ) -> Steps[VectorStoreQueryResult]:
        # A node that was deleted in between is left out.
        documents = yield from self._read(ids)
        found = {document.id: document for document in documents}
        if not found:
            return VectorStoreQueryResult(nodes=[], similarities=[], ids=[])
        scores, chosen = get_top_k_mmr_embeddings(
            query.query_embedding or [],
            [_embedding(document) for document in documents],
            similarity_top_k=query.similarity_top_k,
            embedding_ids=list(found),
            mmr_threshold=kwargs.get("mmr_threshold", query.mmr_threshold),
        )
        return VectorStoreQueryResult(
            nodes=[_node(found[name]) for name in chosen], similarities=scores, ids=chosen
        )


def _prefetch(
    query: VectorStoreQuery,
    mmr_prefetch_k: int | None = None,
    mmr_prefetch_factor: float | None = None,
    **_: Any,
) -> int:
    top = query.similarity_top_k
    if top <= 0:
        return 0
    if mmr_prefetch_k is not None and mmr_prefetch_factor is not None:
        raise invalid("python", "mmr_prefetch_k", "conflicts with `mmr_prefetch_factor`; pass one of them")
    if mmr_prefetch_k is not None:
        return max(top, mmr_prefetch_k)
    factor = _PREFETCH_FACTOR if mmr_prefetch_factor is None else mmr_prefetch_factor
    return max(top, min(int(top * factor), _SEARCH_LIMIT_MAX))


def _document(node: BaseNode) -> Document:
    if not isinstance(node, BaseNode):
        raise invalid("python", "nodes", f"has a `{type(node).__name__}`; pass nodes of LlamaIndex")
    if node.embedding is None:
        raise invalid("python", "nodes", "has a node without an embedding; embed it first")
    metadata = node_to_metadata_dict(node, remove_text=True, flat_metadata=False)
    content = node.get_content(metadata_mode=MetadataMode.NONE)
    return Document(node.node_id, content, node.embedding, {**metadata, _NODE_ID: node.node_id})


def _node(document: Document) -> BaseNode:
    node = metadata_dict_to_node(dict(document.metadata), document.content)
    node.embedding = _embedding(document)
    return node


def _embedding(document: Document) -> list[float]:
    values: Any = document.embedding
    return list(values)


def _one_of(field: str, names: Sequence[str] | None) -> Filter | None:
    return None if names is None else Filter.is_in(field, names)


def _pages(names: Sequence[str] | None) -> list[list[str] | None]:
    if names is None:
        return [None]
    unique = list(dict.fromkeys(names))
    return [unique[start : start + _PAGE] for start in range(0, len(unique), _PAGE)]
