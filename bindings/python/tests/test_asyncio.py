"""Event loops: no blocking, several loops, cancellation."""

import asyncio
import random
import socket
import sys
import threading
import time

import anyio
import pytest

import larder
from locked import locked


def loops():
    yield asyncio.new_event_loop
    if sys.platform != "win32":
        import uvloop

        yield uvloop.new_event_loop


@pytest.mark.parametrize("new_loop", list(loops()))
def test_stores_work_on_several_loops_and_after_a_loop_was_closed(stores, new_loop):
    state = stores.key_value
    for number in range(3):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(state.aset("b", f"{number}", b"v"))
            assert runner.run(state.aget("b", f"{number}")) == b"v"

    async def many(name):
        await asyncio.gather(*(state.aset("b", f"{name}/{number}", b"v") for number in range(20)))

    def work(name):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(many(name))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(state.entries("b")) == 63


@pytest.mark.parametrize("options", [{}, {"use_uvloop": True}])
def test_stores_work_under_anyio(stores, options):
    async def main():
        async with anyio.create_task_group() as group:
            for number in range(20):
                group.start_soon(stores.key_value.aset, "b", f"{number}", b"v")
        with anyio.move_on_after(30):
            assert await stores.key_value.aget("b", "7") == b"v"
            return
        raise AssertionError("late")

    anyio.run(main, backend_options=options)


def test_a_call_without_an_asyncio_loop_says_so(tmp_path):
    with larder.open(f"sqlite:{tmp_path}/a.db") as stores:
        call = stores.key_value.aset("b", "k", b"v")
        with pytest.raises(RuntimeError, match="no running event loop"):
            call.send(None)


def test_a_call_that_waits_for_a_lock_does_not_block_the_loop(tmp_path):
    """Another process holds the write lock of SQLite."""

    async def main():
        async with await larder.aopen(f"sqlite:{tmp_path}/a.db") as stores:
            await stores.key_value.aset("b", "k", b"1")
            with locked(tmp_path / "a.db"):
                waiting = asyncio.create_task(stores.key_value.aset("b", "k", b"2"))
                longest, end = 0.0, time.monotonic() + 0.5
                while (start := time.monotonic()) < end:
                    await asyncio.sleep(0.01)
                    longest = max(longest, time.monotonic() - start)
                assert not waiting.done()
                assert await stores.key_value.aget("b", "k") == b"1"
            await waiting
            assert await stores.key_value.aget("b", "k") == b"2"
            assert longest < 0.4, longest

    asyncio.run(main())


@pytest.mark.parametrize("scheme", ["postgres", "redis"])
def test_a_call_that_waits_for_a_network_does_not_block_the_loop(scheme):
    """The server accepts connections and never replies."""

    async def main(url):
        waiting = asyncio.create_task(larder.aopen(url))
        longest, end = 0.0, time.monotonic() + 0.5
        while (start := time.monotonic()) < end:
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - start)
        assert not waiting.done()
        assert longest < 0.4, longest
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(waiting, 10)

    with socket.create_server(("127.0.0.1", 0)) as server:
        asyncio.run(main(f"{scheme}://127.0.0.1:{server.getsockname()[1]}"))


def test_the_interpreter_runs_while_a_call_waits(tmp_path):
    """A sync call releases the interpreter."""
    with larder.open(f"sqlite:{tmp_path}/a.db") as stores:
        stores.key_value.set("b", "k", b"1")
        with locked(tmp_path / "a.db"):
            thread = threading.Thread(target=stores.key_value.set, args=("b", "k", b"2"))
            thread.start()
            end, steps = time.monotonic() + 0.3, 0
            while time.monotonic() < end:
                steps += 1
            assert thread.is_alive() and steps > 1000
        thread.join(30)
        assert stores.key_value.get("b", "k") == b"2"


def test_a_canceled_write_is_whole_or_absent_and_the_store_stays_usable(stores):
    history, thread = stores.history, larder.Thread("a", "s")
    chance = random.Random(7)

    async def main():
        canceled = 0
        for number in range(150):
            batch = [larder.Message.user(f"{number}/{part}") for part in range(5)]
            task = asyncio.create_task(history.aappend(thread, batch))
            await asyncio.sleep(chance.random() * 0.002)
            task.cancel()
            try:
                await task
            except asyncio.CancelledError:
                canceled += 1
        await history.aappend(thread, larder.Message.user("last"))
        texts = [stored.text for stored in await history.atail(thread, 10_000)]
        texts.remove("last")
        # A server may finish a canceled write late, so the order of the batches is open.
        whole = list(dict.fromkeys(text.split("/")[0] for text in texts))
        assert texts == [f"{number}/{part}" for number in whole for part in range(5)]
        return canceled

    asyncio.run(main())


def test_a_canceled_task_wakes_even_if_the_call_waits(tmp_path):
    async def main():
        async with await larder.aopen(f"sqlite:{tmp_path}/a.db") as stores:
            await stores.key_value.aset("b", "k", b"1")
            with locked(tmp_path / "a.db"), pytest.raises(TimeoutError):
                await asyncio.wait_for(stores.key_value.aset("b", "k", b"2"), 0.1)
            await stores.key_value.aset("b", "l", b"3")
            assert await stores.key_value.aget("b", "k") in (b"1", b"2")

    asyncio.run(main())


def test_a_loop_that_ends_during_a_call_does_no_harm(stores):
    for _ in range(20):
        loop = asyncio.new_event_loop()
        task = loop.create_task(stores.key_value.aset("b", "k", b"v"))
        loop.run_until_complete(asyncio.sleep(0))
        task.cancel()
        loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()
    # A loop that is closed without waiting for its tasks.
    loop = asyncio.new_event_loop()
    task = loop.create_task(stores.key_value.aset("b", "k", b"w"))
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    del task, loop
    time.sleep(0.2)
    assert stores.key_value.get("b", "k") in (b"v", b"w")


def test_a_subscription_ends_with_its_task(stores):
    thread = larder.Thread("a", "s")
    stores.history.append(thread, larder.Message.user("1"))

    async def main():
        seen = []

        async def read():
            async for event in stores.history.asubscribe(thread):
                seen.append(event.message.text)

        task = asyncio.create_task(read())
        while seen != ["1"]:
            await asyncio.sleep(0.01)
        await stores.history.aappend(thread, larder.Message.user("2"))
        while seen != ["1", "2"]:
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(main(), 60))
