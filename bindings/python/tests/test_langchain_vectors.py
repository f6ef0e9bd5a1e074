"""The vector store for LangChain, beyond LangChain's suite."""

import asyncio
from math import cos, radians, sin

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

import larder
from larder.langchain import LarderDocumentIndex, LarderVectorStore


class Plane(Embeddings):
    """Embeds a text as the angle that it names."""

    def embed_documents(self, texts):
        return [[cos(radians(float(text))), sin(radians(float(text)))] for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


@pytest.fixture
def angles(stores):
    store = LarderVectorStore(stores, Plane())
    metadatas = [
        {"n": n, "tags": ["even"] if n % 20 == 0 else [], "deep": {"n": n}} for n in range(0, 180, 10)
    ]
    texts = [f"{metadata['n']}" for metadata in metadatas]
    assert store.add_texts(texts, metadatas, ids=texts) == texts
    return store


def found(documents):
    return [document.page_content for document in documents]


def test_a_vector_store_searches_by_text_and_by_embedding(angles):
    assert found(angles.similarity_search("42", k=3)) == ["40", "50", "30"]
    assert found(angles.similarity_search_by_vector(Plane().embed_query("91"), k=1)) == ["90"]
    [(document, score)] = angles.similarity_search_with_score("60", k=1)
    assert document == Document("60", id="60", metadata={"n": 60, "tags": ["even"], "deep": {"n": 60}})
    assert abs(score - 1) < 1e-6
    [(_, relevance)] = angles.similarity_search_with_relevance_scores("200", k=1, filter={"n": 0})
    assert relevance == 0
    scored = angles.similarity_search_with_relevance_scores("42", k=5, score_threshold=0.99)
    assert [document.page_content for document, _ in scored] == ["40", "50"]
    assert angles.similarity_search("42", k=0) == []
    assert asyncio.run(angles.asimilarity_search_by_vector([1.0, 0.0], k=1))[0].id == "0"


@pytest.mark.parametrize(
    ("filter", "expected"),
    [
        ({"n": 90}, ["90"]),
        ({"n": {"$eq": 90}}, ["90"]),
        ({"n": {"$gt": 150}}, ["160", "170"]),
        ({"n": {"$gte": 150, "$lt": 170}}, ["150", "160"]),
        ({"n": {"$lte": 10}}, ["0", "10"]),
        ({"n": {"$in": [10, 30, 31]}}, ["10", "30"]),
        ({"n": {"$nin": list(range(0, 170, 10))}}, ["170"]),
        ({"n": {"$ne": 0, "$lt": 20}}, ["10"]),
        ({"$or": [{"n": 0}, {"$and": [{"n": {"$gt": 100}}, {"n": {"$lt": 120}}]}]}, ["0", "110"]),
        ({"$not": {"n": {"$gt": 0}}}, ["0"]),
        ({"tags": {"$exists": True}, "n": 20}, ["20"]),
        ({"tags": {"$exists": False}}, []),
        ({"deep": {"n": 40}}, ["40"]),
        (larder.Filter.contains_any("tags", ["even"]) & larder.Filter.lt("n", 50), ["0", "20", "40"]),
    ],
)
def test_a_search_takes_filters(angles, filter, expected):
    assert sorted(found(angles.similarity_search("0", k=20, filter=filter)), key=int) == expected


@pytest.mark.parametrize(
    "filter",
    [
        lambda document: True,
        {"n": {"$near": 1}},
        {"$nor": []},
        {"$and": {}},
        {"$or": []},
        {1: 2},
        {"n": {"$in": 1}},
        [],
    ],
)
def test_wrong_filters_are_refused(filter):
    with larder.open("memory:") as stores, pytest.raises(larder.InvalidInput) as caught:
        LarderVectorStore(stores, Plane()).similarity_search("0", filter=filter)
    assert caught.value.field == "filter"


def test_a_diverse_search_chooses_as_the_one_of_langchain(angles):
    ours, theirs = angles, InMemoryVectorStore(Plane())
    documents = ours.similarity_search("0", k=100)
    theirs.add_documents(documents)
    for options in (
        {},
        {"k": 6, "fetch_k": 9},
        {"k": 3, "lambda_mult": 0.1},
        {"k": 30, "fetch_k": 40},
        {"k": 2, "fetch_k": 1},
    ):
        expected = found(theirs.max_marginal_relevance_search("42", **options))
        assert found(ours.max_marginal_relevance_search("42", **options)) == expected
        assert found(asyncio.run(ours.amax_marginal_relevance_search("42", **options))) == expected
        vector = Plane().embed_query("42")
        assert found(ours.max_marginal_relevance_search_by_vector(vector, **options)) == expected
    retriever = ours.as_retriever(search_type="mmr", search_kwargs={"k": 2, "filter": {"n": {"$gte": 90}}})
    assert found(retriever.invoke("42"))[0] == "90"


def test_documents_are_deleted_and_the_collection_too(stores, angles):
    other = LarderVectorStore.from_texts(["1"], Plane(), [{"a": 1}], stores=stores, collection="other")
    assert angles.delete(["0", "0", "none"]) is True
    assert found(angles.get_by_ids(["10", "0", "20"])) == ["10", "20"]
    assert angles.delete() is True
    assert angles.similarity_search("0") == [] and angles.get_by_ids(["10"]) == []
    assert found(other.similarity_search("1")) == ["1"]
    again = asyncio.run(LarderVectorStore.afrom_texts(["2"], Plane(), stores=stores, collection="other"))
    assert sorted(found(again.similarity_search("1"))) == ["1", "2"]


def test_of_equal_ids_the_last_text_counts_and_many_are_written(stores):
    store = LarderVectorStore(stores, DeterministicFakeEmbedding(size=4))
    ids = store.add_texts(["a", "b"], ids=["1", "1"])
    assert (ids, found(store.get_by_ids(["1"]))) == (["1", "1"], ["b"])
    many = store.add_texts(f"{n}" for n in range(2_200))
    assert len(set(many)) == 2_200 and len(store.get_by_ids(many)) == 2_200
    assert stores.vectors.count("langchain") == 2_201


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda stores: LarderVectorStore(stores, Plane()).add_texts(["1"], ids=["a", "b"]), "ids"),
        (lambda stores: LarderVectorStore(stores, Plane()).add_texts(["1"], [{}, {}]), "metadatas"),
        (lambda stores: LarderVectorStore(stores, Plane()).add_texts(["1"], [{"a": {1}}]), "documents"),
        (lambda stores: LarderVectorStore.from_texts(["1"], Plane()), "stores"),
        (lambda stores: LarderDocumentIndex(vectorstore=LarderVectorStore(stores, Plane())).delete(), "ids"),
    ],
)
def test_wrong_arguments_are_refused(call, field):
    with larder.open("memory:") as stores, pytest.raises(larder.InvalidInput) as caught:
        call(stores)
    assert caught.value.field == field
