"""Forks: the child leaves the stores of its parent alone, and the parent goes on."""

import sys

import pytest

from conftest import BACKENDS, url_of
from programs import run

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fork")

FORK = """
    import gc, os, sys, threading, time
    import larder

    url, namespace, other = sys.argv[1:]
    stores = larder.open(url, namespace=namespace)
    blobs = larder.open(other)
    history, thread = stores.history, larder.Thread("a", "s")
    stop, written, files = threading.Event(), [], []

    def write():
        while not stop.is_set():
            history.append(thread, larder.Message.user(str(len(written))))
            written.append(1)

    def write_files():
        while not stop.is_set():
            blobs.blobs.put(f"{len(files) % 50}", str(len(files)).encode())
            files.append(1)

    writers = [threading.Thread(target=write), threading.Thread(target=write_files)]
    for writer in writers:
        writer.start()
    for _ in range(10):
        before = len(written), len(files)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                history.tail(thread, 1)
            except larder.Unsupported as error:
                code = 0 if "forked" in str(error) else 2
            for one in (stores, blobs):
                try:
                    one.close()
                    code = 3
                except larder.Unsupported:
                    pass
            del history, stores, blobs, one
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
        while len(written) < before[0] + 3 or len(files) < before[1] + 3:
            assert all(writer.is_alive() for writer in writers)
            time.sleep(0.001)
    stop.set()
    for writer in writers:
        writer.join()
    last = {number % 50: number for number in range(len(files))}
    found = {int(info.key): int(blobs.blobs.get(info.key)) for info in blobs.blobs.list()}
    assert found == last, (found, last)
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


LIVING_CHILDREN = """
    import os, sys, threading, time
    import larder

    url, namespace = sys.argv[1:]
    stores = larder.open(url, namespace=namespace)
    stop, written = threading.Event(), [0] * 4

    def write(number):
        while not stop.is_set():
            if url.startswith("file:"):
                # Each folder has a lock.
                stores.blobs.put(f"{number}/{written[number] % 20}", bytes(1000))
            else:
                stores.key_value.set("b", f"{number}", b"v")
            written[number] += 1

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    wait, end = os.pipe()
    for _ in range(40):
        time.sleep(0.01)
        if os.fork() == 0:
            os.close(end)
            os.read(wait, 1)
            os._exit(0)
    before = list(written)
    while any(now < then + 20 for now, then in zip(written, before)):
        assert all(writer.is_alive() for writer in writers), "a write failed"
        time.sleep(0.001)
    stop.set()
    for writer in writers:
        writer.join()
    stores.close()
    with larder.open(url, namespace=namespace) as stores:
        stores.erase()
    os.close(end)
"""


@pytest.mark.parametrize("backend", [*BACKENDS, "file"])
def test_a_forked_child_that_lives_on_holds_nothing_of_its_parent(backend, namespace, tmp_path):
    """The child has the files and the sockets of the parent open, and with them the locks of writes."""
    url = f"file:{tmp_path}/files" if backend == "file" else url_of(backend, tmp_path)
    result = run(LIVING_CHILDREN, url, namespace)
    assert result.returncode == 0, result.stderr


def test_a_forked_child_opens_stores_of_its_own(postgres, namespace):
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
    result = run(program, postgres, namespace)
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
