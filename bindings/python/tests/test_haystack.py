"""The document store and the retriever for Haystack, beyond Haystack's tests."""

import asyncio
from datetime import UTC, datetime
from math import cos, radians, sin

import pytest
from haystack import Document
from haystack.dataclasses import ByteStream, SparseEmbedding
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy, FilterPolicy
from haystack.errors import FilterError
from haystack.utils import Secret
from haystack.utils.filters import document_matches_filter

import larder
from larder.haystack import LarderDocumentStore, LarderEmbeddingRetriever

DOCUMENTS = [
    Document(id="a", content="one", meta={"n": 1, "name": "x", "tags": ["s"], "date": "2024-05-01"}),
    Document(
        id="b", content="two", meta={"n": 2.5, "name": "y", "deep": {"n": 1, "at": "2024-05-01T02:00Z"}}
    ),
    Document(id="c", content=None, meta={"n": None, "flag": True, "date": "2024-05-01T02:00:00"}),
    Document(id="d", content="", meta={"n": -3, "name": "2024-05-01", "date": "2024-04-30T23:59:59.999999"}),
    Document(id="e", content="five \0 é", meta={"n": "1", "date": "soon", "name": "yy", "deep": {}}),
]


@pytest.fixture
def store(url, namespace):
    with LarderDocumentStore(url, namespace=namespace, embedding_dimension=2) as store:
        yield store
        store.delete_all_documents()


@pytest.fixture
def angles(store):
    documents = [
        Document(id=f"{n:03}", content=f"{n}", meta={"n": n}, embedding=[cos(radians(n)), sin(radians(n))])
        for n in range(0, 180, 10)
    ]
    store.write_documents([*documents, Document(id="none", content="without", meta={"n": 42})])
    return store


def on(field, operator, value):
    return {"field": field, "operator": operator, "value": value}


def group(operator, *conditions):
    return {"operator": operator, "conditions": list(conditions)}


FILTERS = [
    on("meta.n", "==", 1),
    on("n", "==", 1.0),
    on("meta.n", "!=", 1),
    on("meta.n", "==", None),
    on("meta.n", "!=", None),
    on("meta.none", "==", None),
    on("meta.deep.n", "==", 1),
    on("meta.deep.n", "==", None),
    on("meta.deep.n.m", "!=", 1),
    on("meta.tags", "==", ["s"]),
    on("meta.flag", "==", True),
    on("id", "==", "b"),
    on("id", "in", ["a", "c", "z"]),
    on("other.n", "==", None),
    on("meta.name", "in", ["x", "y", None]),
    on("meta.name", "not in", ["x", None]),
    on("meta.name", "in", []),
    on("meta.date", "==", "2024-05-01T00:00:00"),
    on("meta.date", "!=", "2024-05-01T00:00:00"),
    on("meta.date", "==", "2024-05-01T00:00:00Z"),
    on("meta.date", "in", ["2024-05-01 00:00", "soon", datetime(2024, 5, 1, 2)]),
    on("meta.deep.at", "==", "2024-05-01T04:00:00+02:00"),
    on("meta.deep.at", ">", "2024-05-01T00:00:00+00:00"),
    on("meta.deep.at", ">=", datetime(2024, 5, 1, 2, tzinfo=UTC)),
    on("meta.deep.at", "<", datetime(2024, 5, 1, 2, tzinfo=UTC)),
    on("meta.deep.n", ">", 0),
    on("meta.n", ">", None),
    group("AND"),
    group("OR"),
    group("NOT"),
    group("OR", on("meta.n", "==", 1), group("AND", on("id", "==", "c"), on("meta.flag", "==", True))),
    group("NOT", on("meta.name", "==", "x"), on("meta.n", "==", 1)),
    group("NOT", group("OR", on("id", "==", "a"), on("id", "==", "b"))),
]


def test_filters_match_as_in_haystack(store):
    store.write_documents(DOCUMENTS)
    for filters in FILTERS:
        expected = [one.id for one in DOCUMENTS if document_matches_filter(filters, one)]
        assert [one.id for one in store.filter_documents(filters)] == expected, filters
        assert store.count_documents_by_filter(filters) == len(expected)
    # Haystack refuses the other documents: it compares no date with a text or a number.
    found = [one.id for one in store.filter_documents(on("meta.date", ">=", "2024-05-01"))]
    assert found == ["a", "c"]
    # Haystack takes the time zone of the other date.
    found = [one.id for one in store.filter_documents(on("meta.date", "==", "2024-05-01T04:00:00+02:00"))]
    assert found == ["c"]
    assert [one.id for one in store.filter_documents(on("meta.n", "<=", 1))] == ["a", "d"]


@pytest.mark.parametrize(
    "filters",
    [
        [],
        {"operator": "AND", "conditions": on("id", "==", "a")},
        group("NOR", on("id", "==", "a")),
        group("AND", "id"),
        group("AND", {}),
        on("meta.n", "like", 1),
        on(1, "==", 1),
        on("meta.n", ">", {}),
        on("meta.n", ">", "soon"),
        on("meta.n", "in", "x"),
    ],
)
def test_malformed_filters_are_refused(filters):
    with LarderDocumentStore("memory:") as store:
        store.write_documents(DOCUMENTS)
        if filters == []:
            assert len(store.filter_documents(filters)) == 5
            return
        for call in (
            store.filter_documents,
            store.count_documents_by_filter,
            store.delete_by_filter,
            lambda filters: store.update_by_filter(filters, {"n": 1}),
            lambda filters: store.embedding_retrieval([1.0] * 768, filters),
        ):
            with pytest.raises(FilterError):
                call(filters)
        assert store.filter_documents() == DOCUMENTS


def test_text_search_is_unsupported():
    with LarderDocumentStore("memory:") as store:
        for call in (
            lambda: store.bm25_retrieval("query", top_k=3),
            lambda: asyncio.run(store.bm25_retrieval_async("query")),
            lambda: store.filter_documents(on("content", "==", "one")),
        ):
            with pytest.raises(larder.Unsupported):
                call()


def test_documents_read_back_equal(store):
    documents = [
        *DOCUMENTS,
        Document(content="sparse", sparse_embedding=SparseEmbedding([1, 7], [0.5, 0.25])),
        Document(blob=ByteStream(b"\0\xff", {"file": "a.png"}, "image/png"), embedding=[0.5, -0.25]),
        Document(content="scored", score=0.5),
    ]
    assert store.write_documents(documents) == len(documents)
    documents[-1] = Document(id=documents[-1].id, content="scored")
    assert store.filter_documents() == sorted(documents, key=lambda document: document.id)


def test_documents_of_other_programs_are_read(url, namespace):
    with larder.open(url, namespace=namespace) as stores, LarderDocumentStore("memory:") as store:
        store._connection._stores = stores
        store.write_documents([Document(id="own", embedding=[0.0, 1.0] + [0.0] * 766)])
        embedding = [1.0] + [0.0] * 767
        stores.vectors.put("haystack", larder.Document("other", "text", embedding, {"n": 1}))
        other = Document(id="other", content="text", meta={"n": 1}, embedding=embedding)
        assert store.filter_documents()[0] == other == store.filter_documents(on("meta.n", "==", 1))[0]
        store.write_documents([Document(id="without")])
        assert [one.id for one in store.embedding_retrieval(embedding)] == ["other", "own"]
        assert store.count_documents() == 3
        store.delete_all_documents()
        assert store.count_documents() == 0
        stores.erase()


def test_policies_decide_about_documents_that_exist(store):
    old, new = Document(id="1", content="old"), Document(id="1", content="new")
    other, third = Document(id="2", content="other"), Document(id="3", content="third")
    assert store.write_documents([old]) == 1
    for policy in (DuplicatePolicy.NONE, DuplicatePolicy.FAIL):
        for documents in ([other, new], [other, other]):
            with pytest.raises(DuplicateDocumentError, match=r"^1 of the documents"):
                store.write_documents(documents, policy)
            with pytest.raises(DuplicateDocumentError):
                asyncio.run(store.write_documents_async(documents, policy))
    assert store.filter_documents() == [old]
    assert store.write_documents([other, new, Document(id="2", content="")], DuplicatePolicy.SKIP) == 1
    assert store.filter_documents() == [old, other]
    assert store.write_documents([old, new, third], DuplicatePolicy.OVERWRITE) == 3
    assert store.filter_documents() == [new, other, third]
    assert store.write_documents([]) == 0


def test_many_documents_are_written_updated_and_deleted(store):
    documents = [Document(id=f"{n:04}", content=f"{n}", meta={"n": n}) for n in range(2_200)]
    assert store.write_documents(documents) == 2_200
    assert store.filter_documents() == documents
    day = {"day": "2024-05-01", "deep": {"day": "2024-05-01"}}
    assert store.update_by_filter(on("meta.n", ">=", 100), day) == 2_100
    assert asyncio.run(store.update_by_filter_async({}, {"day": "never"})) == 2_200
    assert store.count_documents_by_filter(on("meta.day", ">", "2024-04-01")) == 0
    assert store.count_documents_by_filter(on("meta.deep.day", ">", "2024-04-01")) == 2_100
    asyncio.run(store.delete_documents_async([document.id for document in documents[1:]]))
    assert store.filter_documents() == [Document(id="0000", content="0", meta={"n": 0, "day": "never"})]


def test_an_emptied_collection_keeps_its_dimensions_unless_it_is_recreated(store):
    store.write_documents([Document(id="1")])
    store.delete_all_documents()
    store.embedding_dimension = 3
    with pytest.raises(larder.InvalidInput):
        store.write_documents([Document(id="1")])
    store.delete_all_documents(recreate_collection=True)
    assert store.write_documents([Document(id="1")]) == 1


@pytest.mark.parametrize("scale", [True, False])
def test_a_retriever_finds_what_the_store_in_memory_finds(angles, scale):
    theirs = InMemoryDocumentStore(embedding_similarity_function="cosine")
    theirs.write_documents(angles.filter_documents())
    query = [cos(radians(42)), sin(radians(42))]
    for filters in (None, on("meta.n", ">", 90), group("NOT", on("meta.n", "==", 40))):
        options = {"top_k": 5, "filters": filters, "scale_score": scale, "return_embedding": scale}
        found = LarderEmbeddingRetriever(angles, **options).run(query)["documents"]
        for one in theirs.embedding_retrieval(query, **options):
            mine = found.pop(0)
            assert (mine.id, mine.content, mine.meta) == (one.id, one.content, one.meta)
            assert mine.score == pytest.approx(one.score, abs=1e-6)
            assert mine.embedding == (pytest.approx(one.embedding, abs=1e-6) if scale else None)
        assert found == []


def test_a_retriever_takes_arguments_of_the_call_and_merges_filters(angles):
    retriever = LarderEmbeddingRetriever(angles, on("meta.n", "<", 60), 3, filter_policy="merge")
    run = lambda **options: [one.id for one in retriever.run([1.0, 0.0], **options)["documents"]]
    assert run() == ["000", "010", "020"]
    assert run(filters=on("id", "in", ["050", "090"])) == ["050"]
    assert run(top_k=1) == ["000"] and run(top_k=0) == []
    retriever.filter_policy = FilterPolicy.REPLACE
    assert run(filters=on("meta.n", ">", 100)) == ["110", "120", "130"]
    found = asyncio.run(retriever.run_async([1.0, 0.0], top_k=2, scale_score=True, return_embedding=True))
    assert [one.score for one in found["documents"]] == pytest.approx([1, (1 + cos(radians(10))) / 2])
    assert found["documents"][0].embedding == pytest.approx([1, 0])


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda store: LarderDocumentStore(1), "url"),
        (lambda store: LarderDocumentStore(""), "url"),
        (lambda store: LarderDocumentStore("nosuch://host").count_documents(), "url"),
        (
            lambda store: LarderDocumentStore(Secret.from_env_var("NONE", strict=False)).count_documents(),
            "url",
        ),
        (lambda store: LarderDocumentStore("memory:", namespace="").count_documents(), "namespace"),
        (lambda store: LarderDocumentStore("memory:", collection="").count_documents(), "collection"),
        (lambda store: LarderDocumentStore("memory:", embedding_dimension=0), "embedding_dimension"),
        (lambda store: LarderDocumentStore("memory:", embedding_dimension=True), "embedding_dimension"),
        (lambda store: store.write_documents([Document(embedding=[1.0])]), "documents"),
        (lambda store: store.write_documents([Document(meta={"a": {1}})]), "documents"),
        (lambda store: store.write_documents([Document(meta={"_haystack": 1})]), "meta"),
        (lambda store: store.write_documents([Document(content="x" * 1_048_577)]), "document.content"),
        (lambda store: store.update_by_filter({}, {"_haystack.date.a": 1}), "meta"),
        (lambda store: store.embedding_retrieval([]), "embedding"),
        (lambda store: LarderEmbeddingRetriever(InMemoryDocumentStore()), "document_store"),
        (lambda store: LarderEmbeddingRetriever(store, top_k=0), "top_k"),
    ],
)
def test_wrong_arguments_are_refused(call, field):
    with LarderDocumentStore("memory:", embedding_dimension=2) as store:
        with pytest.raises(larder.InvalidInput) as caught:
            call(store)
        assert caught.value.field == field
        assert store.count_documents() == 0
