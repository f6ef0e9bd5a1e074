"""Saved pipelines of Haystack, the stores that a document store opens, and Haystack's example."""

import asyncio
import copy
import os
import pickle

import pytest
from haystack import Document, Pipeline
from haystack.components.writers import DocumentWriter
from haystack.core.serialization_security import DeserializationError
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.utils import Secret
from model_server import model_server
from programs import output

import larder
from larder.haystack import LarderDocumentStore, LarderEmbeddingRetriever

RECENT = {"field": "meta.n", "operator": ">", "value": 1}


def test_a_pipeline_is_saved_without_the_url_of_its_environment_variable(tmp_path, monkeypatch):
    monkeypatch.setenv("LARDER_URL", f"sqlite:{tmp_path}/secret-name.db")
    pipeline = Pipeline()
    store = LarderDocumentStore(embedding_dimension=2, collection="docs", namespace="tenant")
    pipeline.add_component("writer", DocumentWriter(store, DuplicatePolicy.SKIP))
    retriever = LarderEmbeddingRetriever(store, RECENT, 7, True, True, FilterPolicy.MERGE)
    pipeline.add_component("retriever", retriever)
    text = pipeline.dumps()
    assert (
        "secret-name" not in text and "LARDER_URL" in text and "larder.haystack.LarderDocumentStore" in text
    )
    with pytest.raises(DeserializationError):
        Pipeline.loads(text)
    loaded = Pipeline.loads(text, allowed_modules=["larder.haystack"])
    assert loaded.dumps() == text
    document = Document(id="1", meta={"n": 2}, embedding=[1.0, 0.0])
    loaded.run({"writer": {"documents": [document]}, "retriever": {"query_embedding": [1.0, 0.0]}})
    [found] = loaded.get_component("retriever").run([1.0, 0.0])["documents"]
    assert (found.id, found.score, found.embedding) == ("1", 1, [1.0, 0.0])
    with larder.open(f"sqlite:{tmp_path}/secret-name.db", namespace="tenant") as stores:
        assert stores.vectors.count("docs") == 1
    loaded.get_component("retriever").document_store.close()
    loaded.get_component("writer").document_store.close()


def test_a_url_with_a_password_is_never_saved():
    for url in (
        "postgres://user:pass-word@localhost/none",
        "postgres://localhost/none?password=pass-word",
        "sqlite:./a.db?pass-word=1",
        Secret.from_token("memory:pass-word"),
    ):
        store = LarderDocumentStore(url)
        for call in (store.to_dict, LarderEmbeddingRetriever(store).to_dict):
            with pytest.raises(ValueError, match="serialize") as caught:
                call()
            assert "pass-word" not in str(caught.value)
        assert "pass-word" not in repr(store) + repr(vars(store)) + repr(vars(store._connection))
    plain = LarderDocumentStore("sqlite:./a.db", embedding_dimension=3)
    assert plain.to_dict() == {
        "type": "larder.haystack.LarderDocumentStore",
        "init_parameters": {
            "url": "sqlite:./a.db",
            "namespace": "default",
            "collection": "haystack",
            "embedding_dimension": 3,
        },
    }
    assert LarderDocumentStore.from_dict(plain.to_dict()).to_dict() == plain.to_dict()
    assert not os.path.exists("a.db")


def test_a_store_is_opened_once_and_closed(url, namespace, monkeypatch):
    opened, aopen = [], larder.aopen

    async def counting(*urls, **options):
        opened.append(await aopen(*urls, **options))
        return opened[-1]

    monkeypatch.setattr("larder._haystack_connection.aopen", counting)

    async def main():
        async with LarderDocumentStore(url, namespace=namespace) as store:
            assert opened == []
            await asyncio.gather(*(store.write_documents_async([Document(id=f"{n}")]) for n in range(8)))
            assert await store.count_documents_async() == 8 == store.count_documents()
            await store.delete_all_documents_async()
            assert sum(not stores.closed for stores in opened) == 1
        with pytest.raises(larder.Unavailable):
            await store.count_documents_async()

    asyncio.run(main())
    assert all(stores.closed for stores in opened)
    for copied in (copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="belongs to its process"):
            copied(LarderDocumentStore(url))
    with LarderDocumentStore(url):
        pass


def test_an_environment_variable_that_is_missing_is_named(monkeypatch, tmp_path):
    monkeypatch.delenv("LARDER_URL", raising=False)
    with pytest.raises(ValueError, match="LARDER_URL"):
        LarderDocumentStore().count_documents()
    with pytest.raises(larder.Unsupported):
        LarderDocumentStore(f"file:{tmp_path}/blobs").count_documents()


INDEX = """
import os, sys
from haystack import Document, Pipeline
from haystack.components.embedders import OpenAIDocumentEmbedder
from haystack.components.writers import DocumentWriter
from larder.haystack import LarderDocumentStore

document_store = LarderDocumentStore(namespace=sys.argv[1], embedding_dimension=64)
documents = [
    Document(content="There are over 7,000 languages spoken around the world today."),
    Document(content="Elephants have been observed to behave in a way that indicates a high level of intelligence."),
    Document(content="In certain places, you can witness the phenomenon of bioluminescent waves."),
]
indexing = Pipeline()
indexing.add_component("embedder", OpenAIDocumentEmbedder(progress_bar=False))
indexing.add_component("writer", DocumentWriter(document_store))
indexing.connect("embedder.documents", "writer.documents")
print(indexing.run({"embedder": {"documents": documents}})["writer"])
"""

QUERY = """
import os, sys
from haystack import Pipeline
from haystack.components.embedders import OpenAITextEmbedder
from larder.haystack import LarderDocumentStore, LarderEmbeddingRetriever

document_store = LarderDocumentStore(namespace=sys.argv[1], embedding_dimension=64)
query_pipeline = Pipeline()
query_pipeline.add_component("text_embedder", OpenAITextEmbedder())
query_pipeline.add_component("retriever", LarderEmbeddingRetriever(document_store=document_store))
query_pipeline.connect("text_embedder.embedding", "retriever.query_embedding")
query = "How many languages are there?"
result = query_pipeline.run({"text_embedder": {"text": query}})
print(result["retriever"]["documents"][0].content)
"""


def test_one_process_indexes_and_another_one_queries(postgres, namespace):
    """The example of Haystack's page on the retriever by embedding, with a process for each pipeline."""
    with model_server() as (model_url, _):
        environment = {
            **os.environ,
            "LARDER_URL": postgres,
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{model_url}/v1",
        }
        outputs = [
            output(program, namespace, env=environment)
            for program in (INDEX, QUERY)
        ]
    assert outputs == [
        "{'documents_written': 3}\n",
        "There are over 7,000 languages spoken around the world today.\n",
    ]
