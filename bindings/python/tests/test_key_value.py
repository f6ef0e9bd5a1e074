"""Small state."""

import array
import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

import larder


def test_values_are_any_buffer_of_bytes(stores):
    state = stores.key_value
    for value in (b"", b"\0\xff", bytearray(b"ab"), memoryview(b"abc")[1:], array.array("B", [1, 2])):
        state.set("b", "k", value)
        assert state.get("b", "k") == bytes(value)
    large = bytes(range(256)) * 4096 * 4
    state.set("b", "k", large)
    assert state.get("b", "k") == large
    assert state.get("b", "missing") is None


def test_revisions_order_writes_and_guard_them(stores):
    state = stores.key_value
    first = state.set("b", "k", b"1", create=True)
    second = state.set("b", "k", b"2", at=first)
    assert second > first
    assert larder.Position(second.text) == second and larder.Position(second.text).text == second.text
    with pytest.raises(larder.Conflict):
        state.set("b", "k", b"3", at=first)
    with pytest.raises(larder.Conflict):
        state.delete("b", "k", at=first)
    entry = state.entry("b", "k")
    assert (entry.value, entry.revision, entry.expires_at) == (b"2", second, None)
    assert state.delete("b", "k", at=second)
    assert not state.delete("b", "k")
    assert state.entry("b", "k") is None


def test_a_value_expires(stores):
    state = stores.key_value
    before = datetime.now(UTC)
    state.set("b", "long", b"1", ttl=timedelta(hours=1))
    left = state.entry("b", "long").expires_at - before
    assert timedelta(minutes=59) < left < timedelta(minutes=61)
    state.set("b", "short", b"1", ttl=0.2)
    deadline = time.monotonic() + 30
    while state.get("b", "short") is not None:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_batches_are_all_or_nothing_and_listings_are_ordered(stores):
    state = stores.key_value
    revisions = state.write("b", [larder.Put(f"k{index}", bytes([index])) for index in range(9)])
    assert len(set(revisions)) == 9
    state.write("b", [larder.Delete("k0"), larder.Put("k1", b"new", at=revisions[1])])
    assert state.get_many("b", ["k0", "k1", "k2"]) == [None, b"new", b"\2"]
    keys = [item.key for item in state.entries("b", "k", start="k3", end="k7")]
    assert keys == ["k3", "k4", "k5", "k6"]
    newest = state.entries("b", "k", descending=True, values=True, limit=2)
    assert [(item.key, item.value) for item in newest] == [("k8", b"\x08"), ("k7", b"\x07")]
    assert [item.key for item in state.entries("b", after="k6")] == ["k7", "k8"]
    assert state.entries("b", limit=0) == []
    assert state.buckets() == {"b": 8}
    assert state.delete_prefix("b", "k") == 8


def test_the_async_twins_do_the_same(url, namespace):
    async def main():
        async with await larder.aopen(url, namespace=namespace) as stores:
            state = stores.key_value
            revision = await state.aset("b", "k", b"1")
            assert (await state.aentry("b", "k")).revision == revision
            await state.awrite("b", [larder.Put("l", b"2")])
            assert await state.aget_many("b", ["k", "l", "m"]) == [b"1", b"2", None]
            assert [item.key for item in await state.aentries("b")] == ["k", "l"]
            assert await state.abuckets() == {"b": 2}
            assert await state.adelete("b", "k")
            assert await state.adelete_prefix("b", "") == 1
            values = await asyncio.gather(*(state.aset("b", f"{n}", b"") for n in range(50)))
            assert len(values) == 50
            await stores.aerase()

    asyncio.run(main())


def test_entries_of_several_keys_have_revisions(stores):
    state = stores.key_value
    state.set("b", "k", b"1", ttl=3600)
    found, missing = state.entry_many("b", ["k", "none"])
    assert found == state.entry("b", "k") and found.expires_at is not None and missing is None
    assert state.get_many("b", ["none", "k", "k"]) == [None, b"1", b"1"]
    assert asyncio.run(state.aentry_many("b", ["k"])) == [found]


def test_changes_are_watched(stores):
    state = stores.key_value
    first = state.set("b", "p/1", b"1")
    state.set("b", "q", b"2")
    changes = state.watch("b", "p/")
    assert next(changes) == larder.Change("p/1", b"1", first, None)
    timer = threading.Timer(0.2, state.delete, ("b", "p/1"))
    timer.start()
    change = next(changes)
    assert (change.key, change.value) == ("p/1", None) and change.revision > first
    timer.join()
    with pytest.raises(larder.Conflict):
        next(state.watch("b", after=larder.Position(1_000_000)))

    async def watch():
        async for change in state.awatch("b", after=first):
            return change.key

    assert asyncio.run(watch()) == "q"
