"""LarderStore: the tests of LangGraph's own store, the answers of its `InMemoryStore`, and what is Larder's own."""

import asyncio
import os
import random
import re
import subprocess
import sys
import threading
import time
import warnings
from datetime import timedelta
from pathlib import Path
from typing import TypedDict

import pytest
from langgraph.graph import START, StateGraph
from langgraph.runtime import Runtime
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

import larder
from larder.langgraph import LarderStore, QueryIgnored

HERE = Path(__file__).parent
UPSTREAM_TESTS = 74


def letters(texts):
    """A model whose embeddings count letters."""
    return [[1.0] + [float(text.count(letter)) for letter in "abcdefgh"] for text in texts]


INDEX = {"dims": 9, "embed": letters, "fields": ["text", "notes[*]"]}


@pytest.fixture
def store(stores):
    return LarderStore(stores)


def test_the_tests_of_langgraphs_own_store_pass(url, request):
    folder = os.environ.get("LARDER_LANGGRAPH_TESTS")
    if not folder:
        pytest.skip("LARDER_LANGGRAPH_TESTS names no folder; run .ci/python, which downloads it")
    tests = [f"{folder}/tests/{name}.py" for name in ("test_store", "test_async_store")]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "upstream_store", "-p", "no:cacheprovider", *tests]
    environment = {**os.environ, "LARDER_TEST_URL": url, "PYTHONPATH": str(HERE)}
    run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)
    assert run.returncode == 0, run.stdout[-20_000:] + run.stderr[-2000:]
    passed = int(re.search(r"(\d+) passed", run.stdout)[1])
    print(
        f"\nLarderStore on {request.node.callspec.params['url']}: {passed} tests of LangGraph's SqliteStore passed"
    )
    assert passed == UPSTREAM_TESTS and "skipped" not in run.stdout


def summary(items):
    """The parts of found items that two stores have in common, in an order of its own."""
    return sorted((item.namespace, item.key, repr(item.value)) for item in items)


def draw_operation(random):
    labels = ["a", "b", "ab", "a b", "A", "é", "!", "~", "/"]
    namespace = tuple(random.choices(labels, k=random.randint(1, 3)))
    path = tuple(random.choice([*labels[:3], "*"]) for _ in range(random.randint(0, 2)))
    key = random.choice(["k", ".k", "..", "", "k.l", "é"])
    value = {"n": random.choice([3, 2.5, "x", True, None, [1, {"m": 2}]]), "o": {"p": random.randint(0, 2)}}
    filters = [
        None,
        {"n": value["n"]},
        {"o": value["o"]},
        {"n": {"$ne": 3}, "o": {"p": {"$eq": 1}}},
        {"o": {"p": {"$gte": 1, "$lt": 2}}},
    ]
    kind = random.choice(["put", "put", "put", "delete", "get", "search", "list"])
    if kind == "put":
        return PutOp(namespace, key, value)
    if kind == "delete":
        return PutOp(namespace, key, None)
    if kind == "get":
        return GetOp(namespace, key)
    if kind == "search":
        return SearchOp(namespace[: random.randint(0, 2)], random.choice(filters), 1000, 0)
    conditions = (
        (MatchCondition(random.choice(["prefix", "suffix"]), path),) if random.random() < 0.7 else None
    )
    return ListNamespacesOp(
        conditions, random.choice([None, 1, 2]), random.randint(1, 20), random.randint(0, 3)
    )


@pytest.mark.parametrize("twin", [False, True])
def test_it_answers_as_the_store_in_memory_of_langgraph(store, twin):
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    draws, model = random.Random(seed), InMemoryStore()
    for _ in range(150):
        ops = [draw_operation(draws) for _ in range(draws.choice([1, 1, 5]))]
        # InMemoryStore lists namespaces whose items were deleted, or only read.
        for namespace in [namespace for namespace, items in model._data.items() if not items]:
            del model._data[namespace]
        if any(isinstance(op, ListNamespacesOp) for op in ops):
            ops = [op for op in ops if not isinstance(op, GetOp)]
        expected = model.batch(ops)
        found = asyncio.run(store.abatch(ops)) if twin else store.batch(ops)
        for op, one, other in zip(ops, expected, found, strict=True):
            if isinstance(op, SearchOp):
                assert summary(other) == summary(one), (seed, op)
            elif isinstance(op, GetOp) and one is not None:
                assert summary([other]) == summary([one]), (seed, op)
            else:
                assert other == one, (seed, op)


def test_it_finds_what_the_store_in_memory_of_langgraph_finds(stores):
    store, model = LarderStore(stores, index=INDEX), InMemoryStore(index=INDEX)
    draws = random.Random(7)
    for number in range(60):
        namespace = (draws.choice("xy"), draws.choice("xy"))
        texts = ["".join(draws.choices("abcdefgh", k=9)) for _ in range(3)]
        value = {"text": texts[0], "notes": texts[1:], "even": number % 2 == 0}
        for one in (store, model):
            one.put(namespace, f"{number % 40}", value)
    for query in ("aab", "hgfe", "c"):
        for prefix, filter, offset in (((), None, 0), (("x",), {"even": True}, 2), (("x", "y"), None, 0)):
            options = {"query": query, "filter": filter, "limit": 6, "offset": offset}
            found, expected = (one.search(prefix, **options) for one in (store, model))
            assert [item.score for item in found] == pytest.approx(
                [item.score for item in expected], abs=1e-5
            )
            assert len({(item.namespace, item.key) for item in found}) == len(found) == 6
            assert found == sorted(found, key=lambda item: -item.score)


def test_filters_compare_json(store):
    values = {"int": 1, "float": 1.0, "true": True, "text": "1", "null": None, "list": [1], "map": {"n": 1}}
    store.batch([PutOp(("n",), key, {"v": value}) for key, value in values.items()])
    store.put(("n",), "none", {})

    def found(condition):
        return sorted(item.key for item in store.search(("n",), filter={"v": condition}))

    assert found(1) == found({"$eq": 1}) == ["float", "int"]
    assert found(True) == ["true"] and found("1") == ["text"]
    assert found(None) == ["none", "null"]
    assert found([1]) == ["list"] and found((1,)) == ["list"] and found([1, 2]) == []
    assert found({"n": 1}) == ["map"] and found({"n": {"$gt": 0}}) == ["map"]
    assert found({"$gte": 1}) == ["float", "int"] and found({"$gt": 0, "$lt": 1}) == []
    assert found({"$gte": "1"}) == ["text"] and found({"$lte": True}) == []
    assert len(found({"$ne": 1})) == 6


def test_an_item_keeps_the_time_of_its_creation_and_the_newest_come_first(store):
    for key in ("1", "2", "3"):
        store.put(("n",), key, {"key": key})
    first = store.get(("n",), "1")
    assert first.created_at == first.updated_at
    store.put(("n",), "1", {"key": "new"})
    second = store.get(("n",), "1")
    assert (second.created_at, second.value) == (first.created_at, {"key": "new"})
    assert second.updated_at > first.updated_at
    assert [item.key for item in store.search(("n",))] == ["1", "3", "2"]
    assert [item.key for item in store.search(("n",), offset=1, limit=1)] == ["3"]
    assert store.search(("n",))[0].score is None


def test_a_batch_is_one_atomic_write(store):
    ops = [PutOp(("n",), str(number), {"number": number}) for number in range(5)]
    with pytest.raises(larder.InvalidInput):
        store.batch([*ops, PutOp(("n",), "k" * 600, {})])
    assert store.search(("n",)) == []
    store.batch([*ops, PutOp(("n",), "0", {"number": 9}), PutOp(("n",), "1", None)])
    assert sorted(item.value["number"] for item in store.search(("n",))) == [2, 3, 4, 9]
    many = [PutOp(("m",), str(number), {"text": "x" * 20_000}) for number in range(1200)]
    store.batch(many)
    assert len(store.search(("m",), limit=2000)) == 1200


def test_a_read_restarts_the_time_to_live(stores):
    store = LarderStore(stores, ttl={"default_ttl": 10, "refresh_on_read": False})
    store.put(("n",), "default", {})
    store.put(("n",), "own", {"own": True}, ttl=20)
    store.put(("n",), "kept", {}, ttl=None)

    def expiry(key):
        return stores.key_value.entry("larder.langgraph.store", f"n..{key}").expires_at

    first = {key: expiry(key) for key in ("default", "own", "kept")}
    assert first["kept"] is None
    assert timedelta(minutes=9) < first["own"] - first["default"] < timedelta(minutes=11)
    before = store.get(("n",), "own")
    time.sleep(0.01)
    store.get(("n",), "own")
    store.search(("n",))
    assert {key: expiry(key) for key in first} == first
    assert store.get(("n",), "own", refresh_ttl=True) == before
    second = expiry("own")
    assert second > first["own"] and expiry("default") == first["default"]
    time.sleep(0.01)
    store.search(("n",), filter={"own": True}, refresh_ttl=True)
    assert expiry("own") > second and expiry("default") == first["default"]
    assert [item.key for item in store.search(("n",), refresh_ttl=True)] == ["kept", "own", "default"]
    assert expiry("default") > first["default"] and expiry("kept") is None


def test_an_expired_item_is_gone(store):
    store.put(("n",), "kept", {})
    store.put(("m",), "short", {}, ttl=0.2 / 60)
    time.sleep(0.5)
    assert store.get(("m",), "short") is None
    assert [item.key for item in store.search(())] == ["kept"]
    assert store.list_namespaces() == [("n",)]


def test_a_refresh_never_undoes_a_write(stores):
    store = LarderStore(stores)
    store.put(("n",), "k", {"number": -1}, ttl=60)
    stop = threading.Event()

    def read():
        while not stop.wait(0.001):
            store.search(("n",))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    try:
        for number in range(40):
            store.put(("n",), "k", {"number": number}, ttl=60)
            assert store.get(("n",), "k").value == {"number": number}
    finally:
        stop.set()
        for reader in readers:
            reader.join()


def test_embeddings_follow_their_item(stores):
    store = LarderStore(stores, index=INDEX)

    def found(query):
        return [item.key for item in store.search((), query=query)]

    assert found("aaaa") == []
    store.put(("n",), "k", {"text": "aaaa", "notes": ["bbbb", "cccc"]})
    store.put(("n",), "not indexed", {"text": "aaaa"}, index=False)
    store.put(("n",), "other path", {"title": "dddd"}, index=["title"])
    assert found("aaaa")[0] == "k" and sorted(found("aaaa")) == ["k", "other path"]
    assert found("dddd")[0] == "other path"
    assert stores.vectors.count("larder.langgraph.store") == 4
    store.put(("n",), "k", {"text": "eeee"})
    assert stores.vectors.count("larder.langgraph.store") == 2
    store.delete(("n",), "k")
    store.put(("n",), "other path", {"title": "dddd"}, index=False)
    assert found("aaaa") == [] and stores.vectors.count("larder.langgraph.store") == 0


def test_a_query_without_an_index_is_ignored_with_a_warning(store):
    """Every store of LangGraph ignores it, and the examples of its documentation depend on that."""

    def search_without_a_warning(**options):
        with warnings.catch_warnings(action="error"):
            return store.search(("n",), **options)

    upstream = InMemoryStore()
    for one in (store, upstream):
        one.put(("n",), "first", {"text": "aaaa"})
        one.put(("n",), "last", {"text": "bbbb"})
    with pytest.warns(QueryIgnored, match="pass `index`") as caught:
        found = store.search(("n",), query="aaaa")
    assert {item.key for item in found} == {item.key for item in upstream.search(("n",), query="aaaa")}
    assert [(item.key, item.score) for item in found] == [("last", None), ("first", None)]
    # The warning names the line of the caller.
    assert [warning.filename for warning in caught] == [__file__]
    with pytest.warns(QueryIgnored):
        assert asyncio.run(store.asearch(("n",), query="aaaa")) == found
    assert found == search_without_a_warning() == search_without_a_warning(query="")
    with pytest.raises(QueryIgnored):
        search_without_a_warning(query="aaaa")


def test_embeddings_without_an_item_are_ignored_and_removed_later(stores):
    store = LarderStore(stores, index=INDEX)
    store.put(("n",), "k", {"text": "aaaa"})
    [new] = letters(["aaaa"])
    for name, written in (("old", time.time() - 7200), ("new", time.time())):
        metadata = {"key": "n..gone", "under": ["n"], "written": int(written)}
        stores.vectors.put("larder.langgraph.store", larder.Document(name, "", new, metadata))
    assert [item.key for item in store.search(("n",), query="aaaa")] == ["k"]
    documents = {document.id for document in stores.vectors.documents("larder.langgraph.store")}
    assert "new" in documents and "old" not in documents


def test_the_async_methods_embed_with_an_async_model(stores):
    async def model(texts):
        return letters(texts)

    async def main():
        store = LarderStore(stores, index={"dims": 9, "embed": model, "fields": ["text"]})
        await store.aput(("n",), "k", {"text": "aaaa"})
        await store.aput(("n",), "l", {"text": "bbbb"})
        assert [item.key for item in await store.asearch(("n",), query="bb")] == ["l", "k"]
        await store.adelete(("n",), "l")
        assert (await store.aget(("n",), "k")).value == {"text": "aaaa"}
        assert await store.alist_namespaces() == [("n",)]

    asyncio.run(main())


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda store: store.put(("a.b",), "k", {}), InvalidNamespaceError),
        (lambda store: store.batch([PutOp(("a.b",), "k", {})]), InvalidNamespaceError),
        (lambda store: store.batch([SearchOp(("",))]), InvalidNamespaceError),
        (lambda store: store.batch(["text"]), larder.InvalidInput),
        (lambda store: store.put(("n",), "k", {"n": float("nan")}), larder.InvalidInput),
        (lambda store: store.put(("n",), "k", {"n": {1}}), larder.InvalidInput),
        (lambda store: store.put(("n",), "k" * 511, {}), larder.InvalidInput),
        (lambda store: store.put(("n",), "k", {}, ttl=-1), larder.InvalidInput),
        (lambda store: store.search(("n",), filter={"n": {"$in": [1]}}), larder.InvalidInput),
        (lambda store: store.search(("n",), limit=-1), larder.InvalidInput),
        (lambda store: store.search(("n",), offset=-1), larder.InvalidInput),
    ],
)
def test_wrong_arguments_are_refused(call, error):
    with LarderStore.from_url("memory:") as store:
        store.put(("n",), "there", {"n": 1})
        with pytest.raises(error):
            call(store)
        assert len(store.search(())) == 1


def test_many_namespaces_are_listed_in_pages(store):
    store.batch([PutOp((f"n{number:04}", "x"), key, {}) for number in range(700) for key in "kl"])
    store.batch([PutOp(("n0003", "x"), f"{number}", {}) for number in range(1500)])
    listed = store.list_namespaces(limit=10_000)
    assert listed == [(f"n{number:04}", "x") for number in range(700)]
    assert store.list_namespaces(prefix=("n0003",)) == [("n0003", "x")]
    assert store.list_namespaces(suffix=("x",), limit=2, offset=1) == listed[1:3]


class State(TypedDict):
    answer: str


def test_a_graph_remembers_across_threads(url, namespace):
    def remember(state: State, runtime: Runtime):
        known = runtime.store.get(("users", "ada"), "prefs")
        runtime.store.put(("users", "ada"), "prefs", {"theme": "dark"})
        return {"answer": "unknown" if known is None else known.value["theme"]}

    builder = StateGraph(State)
    builder.add_node("remember", remember)
    builder.add_edge(START, "remember")
    with LarderStore.from_url(url, namespace=namespace) as store:
        graph = builder.compile(store=store)
        answers = [graph.invoke({"answer": ""})["answer"] for _ in range(2)]
        assert answers == ["unknown", "dark"]
        store._owned.erase()
