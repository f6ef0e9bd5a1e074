"""Compares LarderSaver with the savers of LangGraph: a turn and the state at turns 10, 100 and 1,000, and the bytes.

    pip install 'larder-store[langgraph]' langgraph langgraph-checkpoint-sqlite
    python bench/langgraph.py [--turns 1000] [--postgres postgres://...]

With `--postgres`, which also needs `langgraph-checkpoint-postgres` and `psycopg[binary]`, it creates a database for
each side on that server and drops it afterwards.

Measure a release build: `maturin build --release`.

A turn is one `invoke` of a graph with one node. The time is that of the saver's methods alone, without the time of the
serializer, which both sides share; that of the serializer is printed. All figures of one line come from one run, in
which the sides take turns. The bytes are those since the saver was opened.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from operator import add
from pathlib import Path
from typing import Annotated, TypedDict

# The package `langgraph`, not this file, which has its name.
sys.path[:] = [folder for folder in sys.path if Path(folder).resolve() != Path(__file__).resolve().parent]

from langgraph.channels.delta import DeltaChannel  # noqa: E402
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer  # noqa: E402
from langgraph.graph import START, StateGraph  # noqa: E402

from larder.langgraph import LarderSaver  # noqa: E402

CONFIG = {"configurable": {"thread_id": "trip-1"}}
MESSAGE = "A message of about one hundred bytes, as a user or a model writes it in a chat. " + "x" * 20
COUNT_PAGES = """
import sqlite3, sys
count, free, size = (
    sqlite3.connect(sys.argv[1]).execute(f"PRAGMA {name}").fetchone()[0]
    for name in ("page_count", "freelist_count", "page_size")
)
print((count - free) * size)
"""
KINDS = ("plain", "delta", "constant")


def concat(state, writes):
    return [*state, *(message for write in writes for message in write)]


class Clock:
    """Measures the methods of a saver, and the serializer within them."""

    def __init__(self):
        self.saver = self.serde = 0.0
        self.bytes = 0

    def reset(self):
        self.saver = self.serde = 0.0

    @property
    def storage(self):
        return self.saver - self.serde


class TimedSerializer:
    def __init__(self, clock):
        self.inner, self.clock = JsonPlusSerializer(), clock

    def dumps_typed(self, value):
        begun = time.perf_counter()
        result = self.inner.dumps_typed(value)
        self.clock.serde += time.perf_counter() - begun
        self.clock.bytes += len(result[1] or b"")
        return result

    def loads_typed(self, data):
        begun = time.perf_counter()
        result = self.inner.loads_typed(data)
        self.clock.serde += time.perf_counter() - begun
        return result


def timed(saver, clock):
    """Replaces the methods that a graph calls by methods that measure themselves."""
    inside = threading.local()

    def wrap(method):
        def call(*args, **kwargs):
            # A method of a saver may call another one.
            if getattr(inside, "call", False):
                return method(*args, **kwargs)
            inside.call = True
            begun = time.perf_counter()
            try:
                return method(*args, **kwargs)
            finally:
                clock.saver += time.perf_counter() - begun
                inside.call = False

        return call

    for name in ("put", "put_writes", "get_tuple", "get_delta_channel_history"):
        setattr(saver, name, wrap(getattr(saver, name)))
    return saver


def graph(saver, kind):
    channel = {
        "plain": Annotated[list[str], add],
        "delta": Annotated[list[str], DeltaChannel(concat)],
        "constant": list[str],
    }[kind]
    builder = StateGraph(TypedDict("State", {"messages": channel}))
    builder.add_node("answer", lambda state: {"messages": [MESSAGE]})
    builder.add_edge(START, "answer")
    return builder.compile(checkpointer=saver)


class Side:
    """One saver with one graph."""

    def __init__(self, open_saver, size_of, kind):
        self.clock = Clock()
        self.closing = contextlib.ExitStack()
        saver = self.closing.enter_context(open_saver(TimedSerializer(self.clock)))
        self.graph, self.size_of = graph(timed(saver, self.clock), kind), size_of
        self.empty = size_of()
        self.turns, self.reads = [], []

    @property
    def size(self):
        return self.size_of() - self.empty

    def turn(self):
        self.clock.reset()
        self.graph.invoke({"messages": [MESSAGE]}, CONFIG, durability="sync")
        self.turns.append((self.clock.storage, self.clock.serde))

    def read(self):
        self.clock.reset()
        self.graph.get_state(CONFIG)
        self.reads.append((self.clock.storage, self.clock.serde))


def larder_on(url):
    return lambda serde: LarderSaver.from_url(url, namespace=f"bench-{uuid.uuid4()}", serde=serde)


def sqlite_sides(folder, kind):
    from langgraph.checkpoint.sqlite import SqliteSaver

    @contextlib.contextmanager
    def peer(serde):
        with SqliteSaver.from_conn_string(f"{folder}/peer.db") as saver:
            saver.serde = serde
            saver.setup()
            yield saver

    def size_of(name):
        # In another process: two copies of SQLite in one process release each other's locks.
        command = [sys.executable, "-c", COUNT_PAGES, f"{folder}/{name}.db"]
        return lambda: int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    yield Side(larder_on(f"sqlite:{folder}/larder.db"), size_of("larder"), kind)
    yield Side(peer, size_of("peer"), kind)


def postgres_sides(url, closing, kind):
    import psycopg
    from langgraph.checkpoint.postgres import PostgresSaver

    admin = closing.enter_context(psycopg.connect(url, autocommit=True))

    def database():
        name = f"larder_bench_{uuid.uuid4().hex[:12]}"
        admin.execute(f"CREATE DATABASE {name}")
        closing.callback(admin.execute, f"DROP DATABASE {name} WITH (FORCE)")
        return name, url.rpartition("/")[0] + "/" + name

    def size_of(name):
        return lambda: admin.execute("SELECT pg_database_size(%s)", (name,)).fetchone()[0]

    @contextlib.contextmanager
    def peer(serde):
        with PostgresSaver.from_conn_string(other_url) as saver:
            saver.serde = serde
            saver.setup()
            yield saver

    own, own_url = database()
    other, other_url = database()
    yield Side(larder_on(own_url), size_of(own), kind)
    yield Side(peer, size_of(other), kind)


def median(samples):
    return [statistics.median(column) for column in zip(*samples, strict=True)]


def report(place, kind, turn, sides, name):
    medians = [median(getattr(side, name)) for side in sides]
    (own, own_serde), (peer, _) = medians
    label = "turn" if name == "turns" else "state"
    print(
        f"{place:8} {kind:8} {label:5} at {turn:5}: {peer / own:6.2f} times as fast as the peer "
        f"({own * 1e3:.3f} ms, peer {peer * 1e3:.3f} ms, serializer {own_serde * 1e3:.3f} ms)",
        flush=True,
    )
    return own, own_serde


def measure(place, kind, sides, turns):
    """Runs the turns, and measures around 10, 100 and 1,000 of them."""
    figures = {}
    marks = [mark for mark in (10, 100, 1000) if mark <= turns]
    done = 0
    for mark in marks:
        around = max(mark // 20, 4)
        while done < mark + around:
            if done == mark - around:
                for side in sides:
                    side.turns, side.reads = [], []
            for side in sides:
                side.turn()
                if done >= mark - around:
                    side.read()
            done += 1
        figures[mark] = [report(place, kind, mark, sides, name) for name in ("turns", "reads")]
        sizes = [(side.size, side.clock.bytes) for side in sides]
        (own, own_data), (peer, peer_data) = sizes
        print(
            f"{place:8} {kind:8} bytes at {mark:5}: {own / peer:6.2f} of the peer's ({own:,} of {peer:,}; "
            f"serialized {own_data:,} of {peer_data:,})",
            flush=True,
        )
    for index, name in enumerate(("turn", "state")):
        first, last = (figures[mark][index] for mark in (marks[0], marks[-1]))
        print(
            f"{place:8} {kind:8} {name:5} at {marks[-1]:,} takes {last[0] / first[0]:.2f} times as long as at "
            f"{marks[0]}, without the serializer, which takes {last[1] / first[1]:.2f} times as long",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--postgres", default=os.environ.get("LARDER_POSTGRES_URL"))
    options = parser.parse_args()
    for kind in options.kinds:
        with contextlib.ExitStack() as closing:
            folder = closing.enter_context(tempfile.TemporaryDirectory())
            sides = list(sqlite_sides(folder, kind))
            for side in sides:
                closing.push(side.closing)
            measure("sqlite", kind, sides, options.turns)
        if options.postgres:
            with contextlib.ExitStack() as closing:
                sides = list(postgres_sides(options.postgres, closing, kind))
                for side in sides:
                    closing.push(side.closing)
                measure("postgres", kind, sides, options.turns)


if __name__ == "__main__":
    main()
