"""Forks, signals, and the end of the interpreter."""

import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

import larder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")


def run(program, *arguments, limit=120):
    """Runs a program in another interpreter."""
    program = textwrap.dedent(program)
    command = [sys.executable, "-X", "faulthandler", "-c", program, *arguments]
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, timeout=limit, env=environment)


FORK = """
    import gc, os, sys, threading
    import larder

    url, namespace, other = sys.argv[1:]
    stores = larder.open(url, namespace=namespace)
    blobs = larder.open(other)
    history, thread = stores.history, larder.Thread("a", "s")
    stop, written = threading.Event(), []

    def write():
        while not stop.is_set():
            history.append(thread, larder.Message.user(str(len(written))))
            written.append(1)

    writer = threading.Thread(target=write)
    writer.start()
    for _ in range(10):
        before = len(written)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                history.tail(thread, 1)
            except larder.Unsupported as error:
                code = 0 if "forked" in str(error) else 2
            try:
                stores.close()
                code = 3
            except larder.Unsupported:
                pass
            del history, stores, blobs
            gc.collect()
            with larder.open("memory:") as own:
                own.key_value.set("b", "k", b"v")
                if own.key_value.get("b", "k") != b"v":
                    code = 4
            sys.stdout.flush()
            if _ % 2:
                os._exit(code)
            # The exit hooks of the interpreter run in this child.
            stop.set()
            raise SystemExit(code)
        _, status = os.waitpid(child, 0)
        assert os.waitstatus_to_exitcode(status) == 0, status
        while len(written) < before + 3:
            pass
    stop.set()
    writer.join()
    count = history.info(thread).messages
    assert count == len(written), (count, len(written))
    texts = [stored.text for stored in history.tail(thread, 10_000)]
    assert texts == [str(number) for number in range(max(count - 10_000, 0), count)]
    stores.erase()
    stores.close()
    blobs.close()
    print("parent", count)
"""


def test_a_forked_child_leaves_the_stores_of_its_parent_alone(url, namespace, tmp_path):
    result = run(FORK, url, namespace, f"file:{tmp_path}/files")
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("parent "), result.stdout


def test_a_forked_child_opens_stores_of_its_own(namespace):
    url = os.environ.get("LARDER_POSTGRES_URL")
    if not url:
        pytest.skip("LARDER_POSTGRES_URL names no Postgres; run .ci/python, which starts one")
    program = """
        import asyncio, multiprocessing, sys
        import larder

        url, namespace = sys.argv[1:]
        stores = larder.open(url, namespace=namespace)
        stores.key_value.set("b", "k", b"parent")

        def child():
            with larder.open(url, namespace=namespace) as stores:
                assert stores.key_value.get("b", "k") == b"parent"
                asyncio.run(stores.key_value.aset("b", "k", b"child"))

        process = multiprocessing.get_context("fork").Process(target=child)
        process.start()
        process.join()
        assert process.exitcode == 0, process.exitcode
        assert stores.key_value.get("b", "k") == b"child"
        stores.erase()
    """
    result = run(program, url, namespace)
    assert result.returncode == 0, result.stderr


def test_a_forked_child_of_a_parent_with_sqlite_may_not_open_sqlite(tmp_path):
    program = """
        import os, sys
        import larder

        def in_child(work):
            child = os.fork()
            if child == 0:
                try:
                    work()
                except larder.Unsupported as error:
                    assert error.field == "url", error
                    os._exit(7)
                os._exit(0)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

        def use():
            with larder.open(sys.argv[1]) as stores:
                stores.key_value.set("b", "k", b"v")

        use()
        assert in_child(use) == 0
        stores = larder.open(sys.argv[1])
        assert in_child(use) == 7
        stores.close()
        assert in_child(use) == 0
    """
    result = run(program, f"sqlite:{tmp_path}/a.db")
    assert result.returncode == 0, result.stderr


def test_ctrl_c_ends_a_waiting_call(tmp_path):
    program = """
        import os, signal, sys, threading, time
        import larder
        from locked import locked

        # A program that a shell started in the background ignores the signal.
        signal.signal(signal.SIGINT, signal.default_int_handler)
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
