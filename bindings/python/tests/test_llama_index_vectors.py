"""The vector store for LlamaIndex, to the promises of LlamaIndex's own tests."""

import asyncio
import copy

import larder
import pytest
from larder.llama_index import LarderVectorStore
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import (
    ImageNode,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores import SimpleVectorStore
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryMode,
)

OPERATORS = {operator.value: operator for operator in FilterOperator}


def node(id, embedding, source, **metadata):
    return TextNode(
        text=f"text of {id} \0 é",
        id_=id,
        embedding=embedding,
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=source)},
        metadata=metadata,
    )


NODES = [
    node("a", [1.0, 0.0], "one", weight=1.0, rank="a", quality=["medium", "high"], identifier="6FTR78Yun"),
    node("b", [0.0, 1.0], "two", weight=2.0, rank="c", quality=["medium"], tags=[], note=None, doc_id="mine"),
    node(
        "c", [1.0, 1.0], "one", weight=3, rank="c", quality=["low", "medium", "high"], note="", **{"x.y": 1}
    ),
]


@pytest.fixture
def vectors(stores):
    store = LarderVectorStore(stores)
    assert store.add(NODES) == ["a", "b", "c"]
    return store


def query(embedding=(1.0, 1.0), top=10, **options):
    return VectorStoreQuery(query_embedding=list(embedding), similarity_top_k=top, **options)


def where(*conditions, condition="and"):
    parts = [
        part
        if isinstance(part, MetadataFilters)
        else MetadataFilter(key=part[0], operator=OPERATORS[part[1]], value=part[2])
        for part in conditions
    ]
    return MetadataFilters(filters=parts, condition=condition and FilterCondition(condition))


def test_a_query_returns_the_most_similar_nodes(vectors):
    found = vectors.query(query())
    assert found.ids[0] == "c" and sorted(found.ids) == ["a", "b", "c"]
    assert found.similarities == pytest.approx([1, 0.5**0.5, 0.5**0.5])
    assert [one.node_id for one in found.nodes] == found.ids
    best = vectors.query(query((1.0, 0.1), top=1)).nodes[0]
    assert best == NODES[0].model_copy(update={"embedding": None})
    assert list(best.metadata) == list(NODES[0].metadata)
    assert asyncio.run(vectors.aquery(query(top=2))).ids == found.ids[:2]
    assert vectors.query(query(top=0)).ids == [] and vectors.stores_text


FILTERS = [
    ([("rank", "==", "c")], "bc"),
    ([("weight", "==", 1.0)], "a"),
    ([("weight", "==", 3.0)], "c"),
    ([("weight", "==", 2), ("weight", "==", 3)], ""),
    ([("unknown", "==", "c")], ""),
    ([("weight", "!=", 1.0)], "bc"),
    ([("unknown", "!=", "c")], "abc"),
    ([("weight", ">", 1.5)], "bc"),
    ([("weight", ">=", 1)], "abc"),
    ([("weight", "<", 1.1)], "a"),
    ([("weight", "<=", 2.0)], "ab"),
    ([("rank", ">", "a")], "bc"),
    ([("rank", "in", ["a", "x"])], "a"),
    ([("rank", "nin", ["c"])], "a"),
    ([("unknown", "nin", ["c"])], "abc"),
    ([("quality", "contains", "high")], "ac"),
    ([("quality", "any", ["high", "low"])], "ac"),
    ([("quality", "all", ["medium", "high"])], "ac"),
    ([("unknown", "is_empty", None)], "abc"),
    ([("tags", "is_empty", None)], "abc"),
    ([("rank", "is_empty", None)], ""),
    ([("note", "is_empty", None)], "abc"),
    ([("x.y", "==", 1)], "c"),
    ([], "abc"),
]


@pytest.mark.parametrize("condition", ["and", None, "or", "not"])
def test_filters_match_as_in_the_simple_store(vectors, condition):
    simple = SimpleVectorStore()
    simple.add(NODES)
    for conditions, expected in FILTERS:
        filters = where(*conditions, condition=condition)
        found = sorted(vectors.query(query(filters=filters)).ids)
        if condition in ("and", None):
            assert "".join(found) == expected, conditions
        assert found == sorted(simple.query(query(filters=filters)).ids), conditions
    mixed = where(("rank", "==", "c"), ("weight", "==", 1.0), condition=condition)
    assert sorted(vectors.query(query(filters=mixed)).ids) == sorted(simple.query(query(filters=mixed)).ids)


def test_filters_contain_filters(vectors):
    heavy = where(("weight", ">", 1.5), ("rank", "==", "c"))
    either = where(heavy, ("weight", "==", 1.0), condition="or")
    assert sorted(vectors.query(query(filters=either)).ids) == ["a", "b", "c"]
    none = where(either, condition="not")
    assert vectors.query(query(filters=none)).ids == []
    assert vectors.query(query(filters=where(where(), ("rank", "==", "a")))).ids == ["a"]


def test_documents_nodes_and_filters_select_together(vectors):
    ids = lambda **options: sorted(vectors.query(query(**options)).ids)
    assert ids(doc_ids=["one"]) == ["a", "c"]
    assert ids(doc_ids=["one", "two"], node_ids=["b", "c", "none"]) == ["b", "c"]
    assert ids(doc_ids=["one"], node_ids=["a", "b"], filters=where(("rank", "==", "a"))) == ["a"]
    assert ids(doc_ids=["missing"]) == [] and ids(doc_ids=[]) == []
    assert ids(node_ids=["missing"]) == [] and ids(node_ids=[]) == ["a", "b", "c"]
    many = ["c", *(f"n{n}" for n in range(2_000)), "a"]
    assert vectors.query(query((1.0, 0.1), top=1, node_ids=many)).ids == ["a"]


@pytest.mark.parametrize("mode", [VectorStoreQueryMode.DEFAULT, VectorStoreQueryMode.MMR])
def test_an_index_searches_deletes_and_refreshes(stores, mode):
    store = LarderVectorStore(stores, collection="index")
    index = VectorStoreIndex.from_vector_store(store, embed_model=MockEmbedding(embed_dim=2))
    index.insert_nodes(NODES)

    def found(**options):
        retriever = index.as_retriever(similarity_top_k=10, vector_store_query_mode=mode, **options)
        bundle = QueryBundle("test", embedding=[1.0, 0.0])
        results = retriever.retrieve(bundle)
        assert asyncio.run(retriever.aretrieve(bundle)) == results
        return sorted(result.node.node_id for result in results)

    assert found() == ["a", "b", "c"] and found(doc_ids=["one"]) == ["a", "c"]
    assert found(filters=where(("rank", "==", "c"))) == ["b", "c"]
    index.delete_ref_doc("one")
    assert found() == ["b"]
    index.delete_nodes(["b"])
    assert found() == []


@pytest.mark.parametrize("threshold", [None, 0.1, 0.25, 0.5, 0.9, 1.0])
def test_a_diverse_query_chooses_as_the_simple_store(stores, threshold):
    ours, theirs = LarderVectorStore(stores), SimpleVectorStore()
    nodes = [node(f"{n:02}", [1.0, n * n / 40], "s", n=n) for n in range(12)]
    for store in (ours, theirs):
        store.add(nodes)
    for top in (1, 3, 12, 20):
        asked = query((1.0, 0.3), top=top, mode=VectorStoreQueryMode.MMR)
        expected = theirs.query(asked, mmr_threshold=threshold)
        for found in (
            ours.query(asked, mmr_threshold=threshold, mmr_prefetch_k=12),
            asyncio.run(ours.aquery(asked, mmr_threshold=threshold, mmr_prefetch_factor=12.0)),
        ):
            assert found.ids == expected.ids and [one.node_id for one in found.nodes] == expected.ids
            assert found.similarities == pytest.approx(expected.similarities, abs=1e-6)
    asked = query((1.0, 0.3), top=3, mode=VectorStoreQueryMode.MMR, mmr_threshold=threshold)
    assert ours.query(asked, mmr_prefetch_k=12).ids == theirs.query(asked, mmr_threshold=threshold).ids
    assert len(ours.query(query(top=2, mode=VectorStoreQueryMode.MMR, filters=where(("n", "<", 2)))).ids) == 2
    assert ours.query(query(top=0, mode=VectorStoreQueryMode.MMR)).ids == []
    assert len(ours.query(query(top=5_000, mode=VectorStoreQueryMode.MMR)).ids) == 12


@pytest.mark.parametrize(
    ("threshold", "options", "expected"),
    [
        (0.0, {}, ["a", "c"]),
        (0.25, {}, ["a", "c"]),
        (1.0, {}, ["a", "b"]),
        (None, {}, ["a", "b"]),
        (1.0, {"mmr_threshold": 0.0}, ["a", "c"]),
        (0.0, {"mmr_threshold": 1.0}, ["a", "b"]),
        (0.0, {"mmr_threshold": None}, ["a", "b"]),
    ],
)
def test_the_threshold_comes_from_the_call_or_the_query(threshold, options, expected):
    with larder.open("memory:") as stores:
        store = LarderVectorStore(stores)
        store.add([node("a", [1.0, 0.0], "s"), node("b", [1.0, 0.0], "s"), node("c", [0.0, 1.0], "s")])
        asked = query((1.0, 0.0), top=2, mode=VectorStoreQueryMode.MMR, mmr_threshold=threshold)
        assert store.query(asked, **options).ids == expected


def test_nodes_are_read_by_ids_and_filters(vectors):
    assert vectors.get_nodes(["c", "none", "a", "c"]) == [NODES[2], NODES[0]]
    assert vectors.get_nodes() == NODES == asyncio.run(vectors.aget_nodes())
    assert vectors.get_nodes(filters=where(("rank", "==", "c"))) == NODES[1:]
    assert vectors.get_nodes(["c", "b", "a"], where(("rank", "==", "c"))) == [NODES[2], NODES[1]]
    assert vectors.get_nodes(["a"], where(("rank", "==", "c"))) == [] == vectors.get_nodes([])
    assert vectors.get_nodes([], where(("rank", "==", "c"))) == []


def test_nodes_are_deleted_by_document_ids_and_filters(vectors):
    left = lambda: "".join(one.node_id for one in vectors.get_nodes())
    vectors.delete_nodes()
    vectors.delete_nodes(["none"])
    vectors.delete_nodes([])
    vectors.delete_nodes([], where(("rank", "==", "c")))
    vectors.delete_nodes(["a"], where(("rank", "==", "c")))
    vectors.delete("none")
    assert left() == "abc"
    vectors.delete_nodes(["a", "b"], where(("rank", "==", "c")))
    assert left() == "ac"
    asyncio.run(vectors.adelete_nodes(filters=where(("rank", "==", "a"))))
    assert left() == "c"
    vectors.add(NODES)
    asyncio.run(vectors.adelete("one"))
    assert left() == "b"
    asyncio.run(vectors.adelete_nodes(["b", "none"]))
    assert left() == ""


def test_a_cleared_store_takes_other_dimensions(stores, vectors):
    other = LarderVectorStore(stores, collection="other")
    other.add(NODES)
    vectors.clear()
    assert vectors.query(query()).ids == [] and vectors.get_nodes() == []
    assert asyncio.run(vectors.async_add([node("a", [1.0, 0, 0], "s")])) == ["a"]
    asyncio.run(vectors.aclear())
    assert vectors.get_nodes() == [] and len(other.get_nodes()) == 3


def test_kinds_of_nodes_read_back(stores):
    store = LarderVectorStore(stores)
    nodes = [
        node("text", [1.0, 0.0], "s", b=1, a={"z": [1], "y": None}),
        IndexNode(text="q", id_="index", index_id="text", embedding=[1.0, 0.5]),
        ImageNode(text="", id_="image", image="aGk=", embedding=[1.0, 0.25]),
        TextNode(text="no source", id_="plain", embedding=[1.0, 0.125], excluded_llm_metadata_keys=["k"]),
    ]
    store.add(nodes)
    found = {one.node_id: one for one in store.get_nodes()}
    assert found == {one.node_id: one for one in nodes}
    assert [type(found[one.node_id]) for one in nodes] == [type(one) for one in nodes]
    assert found["text"].get_content(MetadataMode.ALL) == nodes[0].get_content(MetadataMode.ALL)


def test_of_equal_ids_the_last_node_counts_and_many_are_written(stores):
    store = LarderVectorStore(stores)
    assert store.add([node("1", [1.0, 0.0], "s", n=1), node("1", [0.0, 1.0], "s", n=2)]) == ["1", "1"]
    assert [one.metadata for one in store.get_nodes()] == [{"n": 2}]
    assert store.add([]) == []
    many = [TextNode(text="", id_=f"{n}", embedding=[1.0, n]) for n in range(2_200)]
    assert len(store.add(many)) == 2_200 and len(store.get_nodes([one.node_id for one in many])) == 2_200
    store.delete_nodes([one.node_id for one in many[1:]])
    assert [one.node_id for one in store.get_nodes()] == ["0"]


@pytest.mark.parametrize("mode", ["sparse", "hybrid", "text_search", "semantic_hybrid", "svm"])
def test_other_modes_and_text_filters_are_unsupported(mode):
    with larder.open("memory:") as stores:
        store = LarderVectorStore(stores)
        with pytest.raises(larder.Unsupported, match=mode):
            store.query(query(mode=VectorStoreQueryMode(mode), query_str="x"))
        for operator in ("text_match", "text_match_insensitive"):
            with pytest.raises(larder.Unsupported, match=operator):
                store.query(query(filters=where(("identifier", operator, "6FTR"))))


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda store: store.add([TextNode(text="no embedding")]), "nodes"),
        (lambda store: store.add(["text"]), "nodes"),
        (lambda store: store.add([node("", [1.0], "s")]), "documents"),
        (lambda store: store.add([node("x", [0.0, 0.0], "s")]), "embedding"),
        (lambda store: store.query(VectorStoreQuery(query_str="x")), "query_embedding"),
        (lambda store: store.query(query(filters={"a": 1})), "filters"),
        (lambda store: store.query(query(filters=where(("rank", "in", "c")))), "filters"),
        (
            lambda store: store.query(
                query(mode=VectorStoreQueryMode.MMR), mmr_prefetch_k=1, mmr_prefetch_factor=1.0
            ),
            "mmr_prefetch_k",
        ),
    ],
)
def test_wrong_arguments_are_refused(call, field):
    with larder.open("memory:") as stores, pytest.raises(larder.InvalidInput) as caught:
        call(LarderVectorStore(stores))
    assert caught.value.field == field


def test_a_written_node_is_not_changed(stores):
    before = copy.deepcopy(NODES[0])
    LarderVectorStore(stores).add(NODES[:1])
    assert NODES[0] == before
