"""Graphs of LangGraph with the saver."""

import asyncio
import os
import subprocess
import sys
import textwrap
import threading
from operator import add
from typing import Annotated, TypedDict

import pytest
from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from programs import output

import larder
from larder.langgraph import LarderSaver


class State(TypedDict):
    foo: str
    bar: Annotated[list[str], add]


def graph(saver, **nodes):
    builder = StateGraph(State)
    nodes = nodes or {
        "node_a": lambda state: {"foo": "a", "bar": ["a"]},
        "node_b": lambda state: {"foo": "b", "bar": ["b"]},
    }
    previous = START
    for name, node in nodes.items():
        builder.add_node(name, node)
        builder.add_edge(previous, name)
        previous = name
    builder.add_edge(previous, END)
    return builder.compile(checkpointer=saver)


def config(thread="1", **more):
    return {"configurable": {"thread_id": thread, **more}}


@pytest.fixture
def saver(stores):
    return LarderSaver(stores)


def test_the_example_of_the_documentation(saver):
    app = graph(saver)
    assert app.invoke({"foo": "", "bar": []}, config()) == {"foo": "b", "bar": ["a", "b"]}
    history = list(app.get_state_history(config()))
    assert [state.metadata["step"] for state in history] == [2, 1, 0, -1]
    assert [state.next for state in history] == [(), ("node_b",), ("node_a",), ("__start__",)]
    assert app.get_state(config()).values == {"foo": "b", "bar": ["a", "b"]}
    assert app.invoke({"bar": ["c"]}, config())["bar"] == ["a", "b", "c", "a", "b"]


def test_the_async_graph_does_the_same(url, namespace):
    async def main():
        async with await LarderSaver.afrom_url(url, namespace=namespace) as saver:
            app = graph(saver)
            assert (await app.ainvoke({"foo": "", "bar": []}, config()))["bar"] == ["a", "b"]
            steps = [state.metadata["step"] async for state in app.aget_state_history(config())]
            assert steps == [2, 1, 0, -1]
            await asyncio.gather(*(app.ainvoke({"bar": ["x"]}, config(f"t{n}")) for n in range(10)))
            for n in range(10):
                assert (await app.aget_state(config(f"t{n}"))).values["bar"] == ["x", "a", "b"]
            await saver._owned.aerase()

    asyncio.run(main())


def test_a_second_process_continues_the_thread_and_the_memories(postgres, namespace):
    program = textwrap.dedent(
        """
        import sys
        from operator import add
        from typing import Annotated, TypedDict
        from langgraph.graph import END, START, StateGraph
        from langgraph.runtime import Runtime
        import larder
        from larder.langgraph import LarderSaver, LarderStore

        class State(TypedDict):
            foo: str
            bar: Annotated[list[str], add]

        def node_a(state: State, runtime: Runtime):
            known = runtime.store.search(("users", "ada"))
            runtime.store.put(("users", "ada"), f"memory-{len(known)}", {"fact": "likes trains"})
            return {"foo": "a", "bar": ["a", *(item.key for item in known)]}

        builder = StateGraph(State)
        builder.add_node("node_a", node_a)
        builder.add_edge(START, "node_a")
        builder.add_edge("node_a", END)
        with larder.open(sys.argv[1], namespace=sys.argv[2]) as stores:
            app = builder.compile(checkpointer=LarderSaver(stores), store=LarderStore(stores))
            config = {"configurable": {"thread_id": "1"}}
            print(*app.invoke({"bar": []}, config)["bar"])
        """
    )
    outputs = [
        output(program, postgres, namespace).split()
        for _ in range(3)
    ]
    second = ["a", "a", "memory-0"]
    assert outputs == [["a"], second, [*second, "a", "memory-1", "memory-0"]]


def test_the_memory_of_the_documentation_needs_no_index(postgres, namespace):
    """LangGraph's example of a store for production: the first process remembers, the second one is asked."""
    program = textwrap.dedent(
        """
        import sys, uuid
        from dataclasses import dataclass
        from langchain_core.messages import AIMessage
        from langgraph.graph import START, MessagesState, StateGraph
        from langgraph.runtime import Runtime
        from larder.langgraph import LarderSaver, LarderStore

        @dataclass
        class Context:
            user_id: str

        def model(system):
            return AIMessage(f"I know: {system}")

        def call_model(state: MessagesState, runtime: Runtime[Context]):
            memories, asked = ("memories", runtime.context.user_id), state["messages"][-1].content
            known = [item.value["data"] for item in runtime.store.search(memories, query=asked)]
            if "remember" in asked.lower():
                runtime.store.put(memories, str(uuid.uuid4()), {"data": "the name is Bob"})
            return {"messages": model(known)}

        url, namespace, thread, text = sys.argv[1:]
        with (
            LarderStore.from_url(url, namespace=namespace) as store,
            LarderSaver.from_url(url, namespace=namespace) as checkpointer,
        ):
            builder = StateGraph(MessagesState, context_schema=Context)
            builder.add_node(call_model)
            builder.add_edge(START, "call_model")
            graph = builder.compile(checkpointer=checkpointer, store=store)
            found = graph.invoke(
                {"messages": [{"role": "user", "content": text}]},
                {"configurable": {"thread_id": thread}},
                context=Context(user_id="1"),
            )
            print(found["messages"][-1].content)
        """
    )
    turns = [("1", "Hi! Remember: my name is Bob"), ("2", "what is my name?")]
    results = [
        subprocess.run(
            [sys.executable, "-c", program, postgres, namespace, *turn],
            capture_output=True,
            text=True,
            check=True,
        )
        for turn in turns
    ]
    assert [result.stdout for result in results] == ["I know: []\n", "I know: ['the name is Bob']\n"]
    assert all("QueryIgnored" in result.stderr for result in results)


def test_an_interrupt_is_resumed(saver):
    def ask(state):
        return {"bar": [interrupt("Which city?")]}

    app = graph(saver, node_a=lambda state: {"bar": ["a"]}, ask=ask)
    found = app.invoke({"foo": "", "bar": []}, config())
    assert found["__interrupt__"][0].value == "Which city?"
    assert app.get_state(config()).next == ("ask",)
    assert app.invoke(Command(resume="Basel"), config())["bar"] == ["a", "Basel"]


def test_a_run_branches_from_an_earlier_checkpoint(saver):
    app = graph(saver)
    app.invoke({"foo": "", "bar": []}, config())
    [before_b] = [state for state in app.get_state_history(config()) if state.next == ("node_b",)]
    # A replay, an update and new input, each a branch.
    assert app.invoke(None, before_b.config)["bar"] == ["a", "b"]
    updated = app.update_state(before_b.config, {"bar": ["edited"]})
    assert app.invoke(None, updated)["bar"] == ["a", "edited", "b"]
    assert app.invoke({"bar": ["new"]}, before_b.config)["bar"] == ["a", "new", "a", "b"]
    assert app.invoke({"bar": ["last"]}, config())["bar"] == ["a", "new", "a", "b", "last", "a", "b"]


def test_a_copied_checkpoint_has_the_values_of_its_source(saver):
    app, expected = graph(saver), graph(InMemorySaver())
    for one in (app, expected):
        one.invoke({"foo": "", "bar": []}, config())
        history = list(one.get_state_history(config()))
        copied = one.update_state(history[1].config, None, as_node="__copy__")
        assert one.get_state(copied).values == history[1].values
        assert one.invoke(None, copied)["bar"] == ["a", "b"]


@pytest.mark.parametrize("first", [True, False])
def test_of_two_runs_that_continue_one_checkpoint_one_wins(saver, first):
    barrier = threading.Barrier(2)

    def wait(state):
        barrier.wait(60)
        return {"bar": ["a"]}

    app = graph(saver, wait=wait)
    if not first:
        graph(saver).invoke({"foo": "", "bar": []}, config())
    results = []

    def run(name):
        try:
            app.invoke({"foo": "", "bar": [name]}, config())
            results.append("done")
        except larder.Conflict as error:
            results.append(error.field)
            barrier.abort()
        except threading.BrokenBarrierError:
            results.append("broken")

    start = threading.Barrier(2)

    def begin(name):
        start.wait(60)
        run(name)

    for _ in range(5):
        results.clear()
        barrier.reset()
        threads = [threading.Thread(target=begin, args=(name,)) for name in "xy"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if "parent" in results:
            break
    assert results.count("done") <= 1 and "parent" in results, results


def test_of_concurrent_puts_after_one_checkpoint_one_succeeds(saver):
    app = graph(saver)
    app.invoke({"foo": "", "bar": []}, config())
    head = saver.get_tuple(config())
    start, results = threading.Barrier(8), []

    def put():
        checkpoint = {**head.checkpoint, "id": str(uuid6(clock_seq=9))}
        start.wait(60)
        try:
            saver.put(head.config, checkpoint, {"source": "loop", "step": 9}, {})
            results.append("done")
        except larder.Conflict as error:
            results.append(error.field)

    threads = [threading.Thread(target=put) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == ["done"] + ["parent"] * 7


def test_a_subgraph_has_a_namespace_of_its_own(saver):
    inner = StateGraph(State)
    inner.add_node("ask", lambda state: {"bar": [interrupt("?")]})
    inner.add_edge(START, "ask")
    outer = StateGraph(State)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    app = outer.compile(checkpointer=saver)
    app.invoke({"foo": "", "bar": []}, config())
    state = app.get_state(config(), subgraphs=True)
    assert state.tasks[0].state.next == ("ask",)
    assert app.invoke(Command(resume="yes"), config())["bar"] == ["yes"]


def concat(state, writes):
    return state + [part for write in writes for part in write]


class Log(TypedDict):
    plain: str
    log: Annotated[list[str], DeltaChannel(concat, snapshot_frequency=5)]


def logging_graph(saver):
    builder = StateGraph(Log)
    builder.add_node("x", lambda state: {"log": ["x"], "plain": "x"})
    builder.add_node("y", lambda state: {"log": ["y1", "y2"]})
    builder.add_node("z", lambda state: {"log": ["z"]})
    builder.add_edge(START, "x")
    builder.add_edge("x", "y")
    builder.add_edge("x", "z")
    return builder.compile(checkpointer=saver)


def test_delta_channels_are_rebuilt_as_by_langgraph(saver):
    app, expected = logging_graph(saver), logging_graph(InMemorySaver())
    for turn in range(12):
        for one in (app, expected):
            one.invoke({"log": [f"input {turn}"]}, config())
        assert app.get_state(config()).values == expected.get_state(config()).values
    states, others = list(app.get_state_history(config())), list(expected.get_state_history(config()))
    assert [state.values for state in states] == [state.values for state in others]
    # A branch from the middle.
    for one, history in ((app, states), (expected, others)):
        branch = one.update_state(history[17].config, {"log": ["edited"]})
        one.invoke(None, branch)
        one.invoke({"log": ["more"]}, config())
    assert app.get_state(config()).values == expected.get_state(config()).values
    # Pruning keeps what the newest checkpoint needs.
    before = app.get_state(config()).values
    saver.prune(["1"])
    assert len(list(app.get_state_history(config()))) == 1
    assert app.get_state(config()).values == before
    app.invoke({"log": ["after"]}, config())
    assert app.get_state(config()).values["log"][: len(before["log"])] == before["log"]


def test_the_exit_durability_stores_the_last_checkpoint(saver):
    app, expected = logging_graph(saver), logging_graph(InMemorySaver())
    for turn in range(7):
        for one in (app, expected):
            one.invoke({"log": [f"{turn}"]}, config(), durability="exit")
        assert app.get_state(config()).values == expected.get_state(config()).values


def test_threads_of_another_saver_keep_their_versions(saver):
    assert saver.get_next_version(None, None) == 1
    assert saver.get_next_version(1, None) == 2
    current = InMemorySaver().get_next_version(None, None)
    following = saver.get_next_version(current, None)
    assert following > current and following.startswith("0" * 31 + "2.")


def test_large_values_and_many_writes(saver):
    stored = {"configurable": {"thread_id": "t", "checkpoint_ns": "", "checkpoint_id": "1"}}
    saver.put_writes(stored, [(f"c{n}", n) for n in range(1000)], "task")
    large = os.urandom(3 * 1024 * 1024)
    app = graph(saver, a=lambda state: {"foo": large.hex()})
    app.invoke({"foo": "", "bar": []}, config())
    assert app.get_state(config()).values["foo"] == large.hex()


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda saver: saver.get_tuple({"configurable": {}}), "thread_id"),
        (lambda saver: saver.put_writes(config(), [("c", 1)], "task"), "checkpoint_id"),
        (lambda saver: saver.get_tuple(config("")), "thread"),
        (lambda saver: saver.get_tuple(config("t" * 401)), "thread"),
        (lambda saver: list(saver.list(config(), filter={"source": {1}})), "filter"),
        (lambda saver: saver.prune(["1"], strategy="newest"), "strategy"),
        (lambda saver: saver.copy_thread("1", "1"), "target"),
    ],
)
def test_wrong_arguments_are_refused(call, field):
    with LarderSaver.from_url("memory:") as saver:
        with pytest.raises(larder.InvalidInput) as caught:
            call(saver)
        assert caught.value.field == field


def test_stores_without_small_state_are_refused(tmp_path):
    with pytest.raises(larder.Unsupported):
        LarderSaver.from_url(f"file:{tmp_path}")
