"""The first steps of a user who has nothing but the wheel: ``python smoke.py``.

Prints the size of the compiled module and the time of the import.
"""

import asyncio
import importlib
import os
import sys
import tempfile
import time

begun = time.perf_counter()
import larder  # noqa: E402

imported = time.perf_counter() - begun


def sync(url: str) -> None:
    with larder.open(url) as stores:
        thread = larder.Thread("assistant", "session-1")
        stores.history.append(thread, larder.Message.user("Hello"))
        assert [stored.text for stored in stores.history.tail(thread, 20)] == ["Hello"]
        stores.key_value.set("trips", "basel", b"booked")
        stores.vectors.put("cities", larder.Document("basel", "Zoo", [1.0, 0.0]))
        assert [hit.id for hit in stores.vectors.search("cities", [0.9, 0.1])] == ["basel"]


async def twins(url: str) -> None:
    async with await larder.aopen(url) as stores:
        await asyncio.gather(*(stores.key_value.aset("trips", f"{number}", b"paid") for number in range(20)))
        try:
            await stores.key_value.aset("trips", "1", b"canceled", at=larder.Position(0))
        except larder.Conflict as error:
            assert error.outcome == "not_applied"
        else:
            raise AssertionError("no conflict")


def refused() -> None:
    try:
        larder.open("unknown:")
    except larder.InvalidInput as error:
        assert error.field == "url", error.field
    else:
        raise AssertionError("a URL with an unknown scheme was opened")
    for module, extra in (("langgraph", "langgraph"), ("openai_agents", "openai-agents")):
        try:
            importlib.import_module(f"larder.{module}")
        except ImportError as error:
            assert f"pip install 'larder-store[{extra}]'" in str(error), error


# On Windows, a program cannot remove files that are open.
with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
    for url in ("memory:", f"sqlite:{folder}/larder.db"):
        sync(url)
        asyncio.run(twins(url))
    if sys.platform != "win32":
        with larder.open(f"file:{folder}/files") as stores:
            stores.blobs.put("a/b", b"content")
            assert stores.blobs.get("a/b") == b"content"
refused()
native = importlib.import_module("larder._native").__file__
assert native is not None
print(
    f"larder on Python {sys.version.split()[0]}, {sys.platform}:"
    f" {os.path.getsize(native):,} bytes in the compiled module, imported in {imported * 1000:.0f} ms"
)
