# pyright: strict
"""The types that a checker infers from the package. mypy and pyright check this file; nothing runs it."""

from array import array
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, assert_type

import larder


def conversations(stores: larder.Stores, thread: larder.Thread) -> None:
    history = stores.history
    appended = history.append(thread, [larder.Message.user("Hello"), larder.Message.assistant("Hi")])
    assert_type(appended, larder.Appended)
    assert_type(appended.last, larder.Position)
    for stored in history.tail(("assistant", "session-1"), 20, before=appended.last):
        assert_type(stored, larder.StoredMessage)
        assert_type(stored.message.metadata["tokens"], Any)
    assert_type(history.pop(thread), larder.StoredMessage | None)
    assert_type(history.info(thread).messages, int)


def small_state(stores: larder.Stores) -> None:
    state = stores.key_value
    assert_type(state.get("trips", "basel"), bytes | None)
    assert_type(state.get_many("trips", ["basel", "oslo"]), list[bytes | None])
    revision = state.set("trips", "basel", memoryview(b"booked"), ttl=timedelta(days=1))
    assert_type(revision, larder.Position)
    state.write("trips", [larder.Put("oslo", b"booked"), larder.Delete("basel", at=revision)])


def documents(stores: larder.Stores) -> None:
    document = larder.Document("basel", "Zoo", array("f", [1.0, 0.0]), {"year": 2026})
    assert_type(stores.vectors.put("cities", document), larder.PutReport)
    filter = larder.Filter.gte("year", 2020) & ~larder.Filter.eq("city", "Oslo")
    for hit in stores.vectors.search("cities", [0.9, 0.1], limit=5, filter=filter):
        assert_type(hit.score, float)
        assert_type(hit.metadata, dict[str, Any])


def the_others(stores: larder.Stores) -> None:
    assert_type(stores.blobs.get("a"), bytes)
    assert_type(stores.graph.count(), tuple[int, int])
    assert_type(stores.tasks.claim(("trip", "agent"), "worker", lease=60), larder.Claim | None)


async def twins(thread: larder.Thread) -> None:
    async with await larder.aopen("memory:") as stores:
        assert_type(stores, larder.Stores)
        assert_type(await stores.key_value.aget("trips", "basel"), bytes | None)
        assert_type(await stores.history.atail(thread, 20), larder.MessagePage)
        events = stores.history.asubscribe(thread)
        assert_type(events, AsyncIterator[larder.Event])


def errors() -> None:
    try:
        with larder.open("memory:") as stores:
            stores.erase()
    except larder.InvalidInput as error:
        assert_type(error.field, str | None)
        assert_type(error.limit, int | None)
    except larder.Error as error:
        assert_type(error.retryable, bool)
        assert_type(error.context, dict[str, int | str])
