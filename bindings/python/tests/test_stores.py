"""Opening, closing, and errors."""

import asyncio
import copy
import pickle
import sqlite3

import pytest

import larder
from larder.langchain import LarderByteStore
from larder.langgraph import LarderSaver, LarderStore

CONTRACTS = ["history", "vectors", "graph", "blobs", "tasks", "key_value"]


def test_stores_close_with_their_block(url, namespace):
    with larder.open(url, namespace=namespace) as stores:
        state = stores.key_value
        state.set("b", "k", b"v")
        assert stores.namespace == namespace
        assert {"history", "key_value"} <= set(stores.contracts)
    assert stores.closed
    for call in (lambda: state.get("b", "k"), lambda: stores.namespace, lambda: stores.history):
        with pytest.raises(larder.Unavailable, match="closed") as caught:
            call()
        assert caught.value.outcome == "not_applied"
    stores.close()


def test_stores_close_with_their_async_block(url, namespace):
    async def main():
        async with await larder.aopen(url, namespace=namespace) as stores:
            await stores.key_value.aset("b", "k", b"v")
            assert await stores.key_value.aget("b", "k") == b"v"
            await stores.aerase()
            assert await stores.key_value.aget("b", "k") is None
        with pytest.raises(larder.Unavailable):
            await stores.key_value.aget("b", "k")
        await stores.aclose()

    asyncio.run(main())


def test_a_closed_sqlite_file_is_complete(tmp_path):
    with larder.open(f"sqlite:{tmp_path}/a.db") as stores:
        stores.key_value.set("b", "k", b"v")
    assert not (tmp_path / "a.db-wal").exists()
    with sqlite3.connect(f"file:{tmp_path}/a.db?mode=ro", uri=True) as database:
        assert database.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("nothing", larder.InvalidInput),
        ("unknown://host", larder.InvalidInput),
        ("memory:?wrong=1", larder.InvalidInput),
    ],
)
def test_a_wrong_url_is_refused_as_in_rust(url, kind):
    with pytest.raises(kind) as caught:
        larder.open(url)
    assert caught.value.field == "url"


def test_errors_have_the_facts_of_the_rust_library(stores):
    state = stores.key_value
    with pytest.raises(larder.InvalidInput) as caught:
        state.get("b", "k" * 513)
    error = caught.value
    assert isinstance(error, ValueError)
    assert (error.kind, error.field, error.actual, error.limit) == ("InvalidInput", "key", 513, 512)
    assert (error.outcome, error.retryable) == ("not_applied", False)
    assert "kkk" not in str(error)
    with pytest.raises(larder.InvalidInput) as caught:
        state.set("b", "k", bytes(4 * 1024 * 1024 + 1))
    assert (caught.value.field, caught.value.limit) == ("value", 4 * 1024 * 1024)
    state.set("b", "k", b"v")
    with pytest.raises(larder.Conflict) as caught:
        state.set("b", "k", b"w", create=True)
    assert caught.value.operation == "key_value.put"
    with pytest.raises(larder.Conflict) as caught:
        state.write("b", [larder.Put("x", b"1"), larder.Put("k", b"w", create=True)])
    assert caught.value.context == {"write": 1}
    assert state.get("b", "x") is None


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda state: state.get(1, "k"), "bucket"),
        (lambda state: state.get("b", None), "key"),
        (lambda state: state.get("b", "\ud800"), "key"),
        (lambda state: state.set("b", "k", "text"), "value"),
        (lambda state: state.set("b", "k", 1.5), "value"),
        (lambda state: state.set("b", "k", b"", ttl="long"), "ttl"),
        (lambda state: state.set("b", "k", b"", ttl=-1), "ttl"),
        (lambda state: state.set("b", "k", b"", ttl=float("nan")), "ttl"),
        (lambda state: state.set("b", "k", b"", at="x"), "position"),
        (lambda state: state.entries("b", limit=-1), "limit"),
        (lambda state: state.entries("b", limit="2"), "limit"),
    ],
)
def test_a_type_that_does_not_fit_is_invalid_input(call, field):
    with larder.open("memory:") as stores, pytest.raises(larder.InvalidInput) as caught:
        call(stores.key_value)
    assert caught.value.field == field


def test_errors_are_pickled_and_stores_are_not():
    error = pytest.raises(larder.InvalidInput, larder.open, "nothing").value
    other = pickle.loads(pickle.dumps(error))
    assert (type(other), str(other), other.field) == (type(error), str(error), "url")
    with larder.open("memory:") as stores:
        for thing in (stores, *(getattr(stores, contract) for contract in CONTRACTS)):
            with pytest.raises(TypeError, match="belongs to its process"):
                pickle.dumps(thing)
            with pytest.raises(TypeError, match="belongs to its process"):
                copy.copy(thing)
        events = stores.history.subscribe(larder.Thread("a", "s"))
        for thing in (events, LarderSaver(stores), LarderStore(stores), LarderByteStore(stores)):
            with pytest.raises((TypeError, AttributeError)):
                pickle.dumps(thing)


def test_a_contract_without_a_backend_is_unsupported(tmp_path):
    with larder.open(f"file:{tmp_path}") as stores:
        assert stores.contracts == ["blobs"]
        with pytest.raises(larder.Unsupported):
            _ = stores.key_value


def test_a_read_only_store_refuses_writes(tmp_path):
    url = f"sqlite:{tmp_path}/a.db"
    with larder.open(url) as stores:
        stores.key_value.set("b", "k", b"v")
    with larder.open(url, read_only=True) as stores:
        assert stores.key_value.get("b", "k") == b"v"
        with pytest.raises(larder.Error):
            stores.key_value.set("b", "k", b"w")
