"""Functions and coroutines as language models: where they run, how they fail, and how they end."""

import asyncio
import contextvars
import logging
import threading
import time

import pytest
from test_process import run as run_program
from test_toolkit import SHORT, counted, texts

import larder
from larder.toolkit import AgentContext, CompactionAgent, SummarySettings

FAILS = SummarySettings(on_failure="fail")


def test_a_model_summarizes_once_and_the_summary_is_kept(url, namespace):
    asked = []

    def model(request):
        asked.append(request)
        return "They count."

    with larder.open(url, namespace=namespace) as stores:
        context = AgentContext(stores, pipeline=[SHORT], model=model)
        context.append("s", counted(20))
        window = context.window("s")
        assert window[0].origin == "summary" and window[0].text.endswith("They count.")
        assert len(asked) == 1
        assert [message.role for message in asked[0].messages] == ["system", "user"]
        assert "now I am at 3." in asked[0].messages[1].text
        assert asked[0].output_tokens_max == 2_000
        if url != "memory:":
            stores.close()
            stores = larder.open(url, namespace=namespace)
        with stores:
            again = AgentContext(stores, pipeline=[SHORT], model=model)
            assert texts(again.window("s")) == texts(window)
            assert again.explain_window("s").began_with_summary_up_to == int(window[0].seq)
            assert len(asked) == 1
            stores.erase()


topic = contextvars.ContextVar("topic", default="none")


def test_a_coroutine_runs_on_the_event_loop_of_the_caller(stores):
    seen = []

    async def model(request):
        await asyncio.sleep(0)
        seen.append((asyncio.get_running_loop(), topic.get()))
        return larder.Message.assistant("They count.")

    async def main():
        topic.set("numbers")
        context = AgentContext(stores, pipeline=[SHORT], model=model)
        await context.aappend("s", counted(20))
        assert texts(await context.awindow("s"))[0].endswith("They count.")
        assert seen == [(asyncio.get_running_loop(), "numbers")]

    asyncio.run(main())
    # Without an event loop, it gets one of its own.
    context = AgentContext(stores, agent="other", pipeline=[SHORT], model=model)
    context.append("s", counted(20))
    assert context.window("s")[0].origin == "summary"
    assert len(seen) == 2


def test_a_function_blocks_neither_the_event_loop_nor_other_callers(stores):
    release = threading.Event()
    seen = []

    def model(request):
        seen.append((threading.current_thread(), topic.get()))
        assert release.wait(60)
        return "They count."

    async def main():
        topic.set("numbers")
        context = AgentContext(stores, pipeline=[SHORT], model=model)
        await context.aappend("s", counted(20))
        window = asyncio.create_task(context.awindow("s"))
        async with asyncio.timeout(30):
            while not seen:
                await asyncio.sleep(0.01)
        # The model is at work, and the loop and the stores go on.
        await stores.key_value.aset("b", "k", b"v")
        assert not window.done()
        release.set()
        assert (await window)[0].origin == "summary"
        assert seen[0][0] is not threading.current_thread() and seen[0][1] == "numbers"

    asyncio.run(main())


class Broken(Exception):
    """An exception of a program."""


@pytest.mark.parametrize("kind", ["function", "coroutine"])
def test_an_exception_of_a_model_arrives_as_it_is(stores, kind):
    broken = Broken("out of tokens")

    def model(request):
        raise broken

    async def coroutine(request):
        raise broken

    chosen = model if kind == "function" else coroutine
    context = AgentContext(stores, pipeline=[SHORT], model=chosen, summaries=FAILS)
    context.append("s", counted(20))
    with pytest.raises(Broken) as caught:
        context.window("s")
    assert caught.value is broken
    with pytest.raises(Broken) as caught:
        asyncio.run(context.aexplain_window("s"))
    assert caught.value is broken
    # No message is lost.
    assert len(stores.history.tail(("default", "s"), 100)) == 20
    agent = CompactionAgent(stores, chosen, bytes_threshold=100)
    with pytest.raises(Broken):
        agent.compact(("default", "s"))


def test_a_failed_summary_keeps_the_window_and_is_logged(stores, caplog):
    def model(request):
        raise Broken("out of tokens")

    context = AgentContext(stores, pipeline=[SHORT], model=model)
    context.append("s", counted(20))
    with caplog.at_level(logging.WARNING, "larder.toolkit"):
        assert len(context.window("s")) == 20
    assert caplog.records[0].exc_info[0] is Broken


def test_a_model_that_is_late_is_canceled(stores):
    ended = []

    async def model(request):
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            ended.append(True)
            raise
        return "late"

    async def main():
        summaries = SummarySettings(timeout=0.2, on_failure="fail")
        context = AgentContext(stores, pipeline=[SHORT], model=model, summaries=summaries)
        await context.aappend("s", counted(20))
        with pytest.raises(larder.Timeout):
            await context.awindow("s")
        async with asyncio.timeout(30):
            while not ended:
                await asyncio.sleep(0.01)
        window = asyncio.create_task(context.awindow("s"))
        await asyncio.sleep(0.05)
        window.cancel()
        with pytest.raises(asyncio.CancelledError):
            await window
        # The stores remain usable.
        assert (await stores.history.ainfo(("default", "s"))).messages == 20

    asyncio.run(main())


@pytest.mark.parametrize("reply", [None, 7, b"text", {"text": "x"}])
def test_a_reply_of_another_type_is_refused(stores, reply):
    context = AgentContext(stores, pipeline=[SHORT], model=lambda request: reply, summaries=FAILS)
    context.append("s", counted(20))
    with pytest.raises(larder.InvalidInput) as caught:
        context.window("s")
    assert caught.value.field == "model"


EXIT = """
    import asyncio, sys, threading, time
    import larder
    from larder.toolkit import AgentContext, Summarization

    stores = larder.open(sys.argv[1], namespace=sys.argv[2])
    begun = threading.Event()

    def model(request):
        begun.set()
        {work}
        return "They count."

    async def coroutine(request):
        return model(request)

    strategy = Summarization(recent_token_budget=20, min_old_tokens=20)
    chosen = coroutine if sys.argv[3] == "coroutine" else model
    context = AgentContext(stores, pipeline=[strategy], model=chosen)
    context.append("s", [larder.Message.user(f"I count, and now I am at {{n}}.") for n in range(20)])

    def use():
        if sys.argv[4] == "awaited":
            asyncio.run(context.awindow("s"))
        else:
            context.window("s")

    threading.Thread(target=use, daemon=True).start()
    assert begun.wait(60)
"""


@pytest.mark.parametrize("how", ["waited", "awaited"])
@pytest.mark.parametrize("kind", ["function", "coroutine"])
@pytest.mark.parametrize("work", ["time.sleep(30)", "pass", "time.sleep(0.02)"])
def test_an_interpreter_that_exits_does_not_wait_for_a_model(url, namespace, kind, how, work):
    begun = time.monotonic()
    for number in range(2):
        # A process that ended holds its claim on a summary for a while, so each one has a namespace.
        name = f"{namespace}-{number}"
        result = run_program(EXIT.format(work=work), url, name, kind, how, limit=60)
        assert result.returncode == 0, result.stderr
        assert "Fatal" not in result.stderr and "panicked" not in result.stderr, result.stderr
    assert time.monotonic() - begun < 25
