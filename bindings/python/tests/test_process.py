"""Signals, and the end of the interpreter."""

import sys
import time

import pytest

import larder
from programs import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs send signals of Unix")


def test_ctrl_c_ends_a_waiting_call(tmp_path):
    program = """
        import os, signal, sys, threading, time
        import larder
        from locked import locked

        # The call still waits when the signal arrives, also on a slow machine.
        stores = larder.open(f"sqlite:{sys.argv[1]}?busy_timeout_ms=60000")
        stores.key_value.set("b", "k", b"1")
        sent = []

        def interrupt():
            time.sleep(2)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        with locked(sys.argv[1]):
            try:
                stores.key_value.set("b", "k", b"2")
            except KeyboardInterrupt:
                late = time.monotonic() - sent[0]
            else:
                raise SystemExit("the call returned")
        stores.key_value.set("b", "l", b"3")
        assert stores.key_value.get("b", "k") in (b"1", b"2")
        print(late)
    """
    result = run(program, f"{tmp_path}/a.db")
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 0.2


@pytest.mark.parametrize("scheme", ["postgres", "redis"])
@pytest.mark.parametrize("call", ["open", "aopen"])
def test_ctrl_c_ends_a_call_that_waits_for_a_network(scheme, call):
    program = """
        import asyncio, os, signal, socket, sys, threading, time
        import larder

        # It accepts connections and never replies.
        server = socket.create_server(("127.0.0.1", 0))
        url = f"{sys.argv[1]}://127.0.0.1:{server.getsockname()[1]}"
        sent = []

        def interrupt():
            time.sleep(1)
            sent.append(time.monotonic())
            os.kill(os.getpid(), signal.SIGINT)

        threading.Thread(target=interrupt).start()
        try:
            larder.open(url) if sys.argv[2] == "open" else asyncio.run(larder.aopen(url))
        except KeyboardInterrupt:
            print(time.monotonic() - sent[0])
    """
    result = run(program, scheme, call)
    assert result.returncode == 0, result.stderr
    assert float(result.stdout) < 0.2


def test_models_that_are_called_during_the_exit_do_no_harm(url, namespace):
    program = """
        import asyncio, sys, threading, time
        from langchain_core.embeddings import Embeddings
        import larder
        from larder.langchain import LarderVectorStore
        from larder.langgraph import LarderStore

        called = threading.Event()

        class Model(Embeddings):
            def embed_documents(self, texts):
                called.set()
                time.sleep(0.002)
                return [[1.0, 0.0] for _ in texts]

            def embed_query(self, text):
                return self.embed_documents([text])[0]

        stores = larder.open(sys.argv[1], namespace=sys.argv[2])
        memories = LarderStore(stores, index={"dims": 2, "embed": Model()})
        vectors = LarderVectorStore(stores, Model())
        calls = [
            lambda: memories.put(("n",), "k", {"text": "a"}),
            lambda: asyncio.run(memories.asearch(("n",), query="a")),
            lambda: vectors.similarity_search("a"),
            lambda: asyncio.run(vectors.aadd_texts(["a"], ids=["1"])),
        ]

        def forever(call):
            while True:
                call()

        vectors.add_texts(["a"], ids=["1"])
        for call in calls:
            threading.Thread(target=forever, args=(call,), daemon=True).start()
        called.wait()
        time.sleep(0.3)
    """
    for _ in range(3):
        result = run(program, url, namespace, limit=60)
        assert result.returncode == 0, result.stderr
        assert "Fatal" not in result.stderr and "panicked" not in result.stderr, result.stderr
    if url != "memory:":
        with larder.open(url, namespace=namespace) as stores:
            stores.erase()


def test_an_interpreter_that_exits_with_open_stores_flushes(url, namespace, tmp_path):
    program = """
        import asyncio, sys, threading
        import larder

        stores = larder.open(sys.argv[1], namespace=sys.argv[2])

        async def main():
            tasks = [asyncio.create_task(stores.key_value.aset("b", f"{n}", b"v")) for n in range(50)]
            await asyncio.sleep(0)
            for _ in range(2):
                await stores.key_value.aset("b", "last", b"v")

        asyncio.run(main())

        def forever():
            while True:
                asyncio.run(stores.key_value.aset("b", "thread", b"v"))

        threading.Thread(target=forever, daemon=True).start()
    """
    start = time.monotonic()
    for _ in range(3):
        result = run(program, url, namespace, limit=60)
        assert result.returncode == 0, result.stderr
        assert "Fatal" not in result.stderr and "panicked" not in result.stderr, result.stderr
    assert time.monotonic() - start < 60
    if url != "memory:":
        with larder.open(url, namespace=namespace) as stores:
            assert stores.key_value.get("b", "last") == b"v"
            stores.erase()


def test_a_store_that_nobody_holds_is_closed(tmp_path):
    program = """
        import gc, sys
        import larder

        for _ in range(50):
            stores = larder.open(sys.argv[1])
            stores.key_value.set("b", "k", b"v")
            handle = stores.key_value
            del stores
            assert handle.get("b", "k") == b"v"
            del handle
        gc.collect()
        import os
        print(len([name for name in os.listdir("/proc/self/fd")]))
    """
    result = run(program, f"sqlite:{tmp_path}/a.db")
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 40


def test_the_handler_of_a_signal_runs_during_a_call(tmp_path):
    """A handler that raises nothing does not end the call."""
    program = """
        import os, signal, sys, threading, time
        import larder
        from locked import locked

        seen = []
        signal.signal(signal.SIGUSR1, lambda *_: seen.append(time.monotonic()))
        stores = larder.open(f"sqlite:{sys.argv[1]}")
        stores.key_value.set("b", "k", b"1")
        lock = locked(sys.argv[1])
        lock.__enter__()

        def end():
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGUSR1)
            time.sleep(0.6)
            sent.append(len(seen))
            lock.__exit__(None, None, None)

        sent = []
        thread = threading.Thread(target=end)
        thread.start()
        stores.key_value.set("b", "k", b"2")
        thread.join()
        assert sent == [1] and stores.key_value.get("b", "k") == b"2"
    """
    result = run(program, f"{tmp_path}/a.db")
    assert result.returncode == 0, result.stderr
