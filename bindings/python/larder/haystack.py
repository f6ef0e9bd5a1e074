"""Haystack: a document store and an embedding retriever on any backend.

>>> from haystack import Document
>>> from larder.haystack import LarderDocumentStore, LarderEmbeddingRetriever
>>> with LarderDocumentStore("memory:", embedding_dimension=2) as store:
...     _ = store.write_documents([Document(content="Basel", embedding=[1.0, 0.0])])
...     retriever = LarderEmbeddingRetriever(store)
...     [found.content for found in retriever.run([0.9, 0.1])["documents"]]
['Basel']
"""

from larder._adapter import missing

try:
    import haystack as _
except ModuleNotFoundError as _error:
    raise missing("larder.haystack", "Haystack", "haystack") from _error

from larder._haystack_retriever import LarderEmbeddingRetriever
from larder._haystack_store import LarderDocumentStore

__all__ = ["LarderDocumentStore", "LarderEmbeddingRetriever"]
