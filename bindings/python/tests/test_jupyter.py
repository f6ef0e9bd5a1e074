"""A notebook: its cells share an event loop, and an interrupt ends a cell."""

import queue
import time

import pytest
from jupyter_client.manager import KernelManager

import larder
from locked import locked


@pytest.fixture
def kernel():
    manager = KernelManager()
    manager.start_kernel()
    client = manager.client()
    client.start_channels()
    try:
        client.wait_for_ready(timeout=120)
        yield manager, client
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def result(client, request, limit=60):
    """Waits for a cell and returns the text of its value, or the name of its exception."""
    text = ""
    while True:
        message = client.get_iopub_msg(timeout=limit)
        kind, content = message["msg_type"], message["content"]
        if message["parent_header"].get("msg_id") != request:
            continue
        if kind == "execute_result":
            text = content["data"]["text/plain"]
        elif kind == "error":
            text = content["ename"]
        elif kind == "status" and content["execution_state"] == "idle":
            return text


def test_cells_use_both_kinds_of_methods_on_one_loop(kernel, url, namespace):
    _, client = kernel

    def cell(program):
        return result(client, client.execute(program))

    assert cell(f"import asyncio, larder; stores = larder.open({url!r}, namespace={namespace!r})") == ""
    assert cell("stores.key_value.set('b', 'k', b'1'); await stores.key_value.aget('b', 'k')") == "b'1'"
    # The loop runs while a cell calls a method without `await`.
    assert cell("async def both(): return stores.key_value.get('b', 'k')") == ""
    assert cell("await both()") == "b'1'"
    # A task begins in one cell and ends in another one.
    thread = "larder.Thread('a', 's')"
    assert cell(f"events = stores.history.asubscribe({thread})") == ""
    assert cell("task = asyncio.ensure_future(anext(events))") == ""
    assert cell(f"_ = await stores.history.aappend({thread}, larder.Message.user('Hello'))") == ""
    assert cell("(await task).message.text") == "'Hello'"
    assert cell("await stores.key_value.aget('b', 'k' * 513)") == "InvalidInput"
    assert cell("await stores.aerase()") == ""
    assert cell("await stores.aclose(); stores.closed") == "True"


def test_an_interrupt_ends_a_waiting_cell_and_the_kernel_exits_with_open_stores(kernel, tmp_path):
    manager, client = kernel
    opened = f"import larder; stores = larder.open('sqlite:{tmp_path}/a.db?busy_timeout_ms=60000')"
    assert result(client, client.execute(f"{opened}; _ = stores.key_value.set('b', 'k', b'1')")) == ""
    with locked(tmp_path / "a.db"):
        waiting = client.execute("stores.key_value.set('b', 'k', b'2')")
        with pytest.raises(queue.Empty):
            result(client, waiting, limit=2)
        manager.interrupt_kernel()
        assert result(client, waiting, limit=20) == "KeyboardInterrupt"
    assert result(client, client.execute("_ = stores.key_value.set('b', 'l', b'3')")) == ""
    begun = time.monotonic()
    manager.shutdown_kernel()
    assert time.monotonic() - begun < 30
    with larder.open(f"sqlite:{tmp_path}/a.db") as stores:
        assert stores.key_value.get("b", "l") == b"3"
