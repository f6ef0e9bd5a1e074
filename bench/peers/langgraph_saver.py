"""Appends of a message and reads of the last 50 through LangGraph's saver for Postgres.

    langgraph_saver.py SIZE...

LARDER_BENCH_PEER_URL names the database, where a schema of its own is made and removed. Prints the version, and for each
size the microseconds of an append to a thread of so many messages and of a read of its last 50. The saver is called as a
graph calls it after a step: with the whole state, whose messages are one channel.
"""

import os
import sys
from importlib.metadata import version

import psycopg
from langchain_core.messages import HumanMessage
from langgraph.checkpoint.base import create_checkpoint, empty_checkpoint
from langgraph.checkpoint.postgres import PostgresSaver
from psycopg.rows import dict_row

from payload import LAST, calls_for, micros, text


class Thread:
    def __init__(self, saver, size):
        self.saver = saver
        self.config = {"configurable": {"thread_id": f"thread-{size}", "checkpoint_ns": ""}}
        self.checkpoint = empty_checkpoint()
        self.messages = [HumanMessage(text()) for _ in range(size - 1)]
        self.step = 0
        self.append()

    def append(self):
        self.messages = [*self.messages, HumanMessage(text())]
        self.step += 1
        previous = self.checkpoint["channel_versions"].get("messages")
        number = self.saver.get_next_version(previous, None)
        self.checkpoint = create_checkpoint(self.checkpoint, None, self.step)
        self.checkpoint["channel_values"] = {"messages": self.messages}
        self.checkpoint["channel_versions"] = {"messages": number}
        metadata = {"source": "loop", "step": self.step, "parents": {}}
        config = self.saver.put(self.config, self.checkpoint, metadata, {"messages": number})
        self.config = config

    def last(self):
        config = {"configurable": {"thread_id": self.config["configurable"]["thread_id"], "checkpoint_ns": ""}}
        found = self.saver.get_tuple(config).checkpoint["channel_values"]["messages"][-LAST:]
        if len(found) != LAST:
            raise SystemExit(f"the saver gave {len(found)} messages")


def main(sizes):
    url, schema = os.environ["LARDER_BENCH_PEER_URL"], f"larder_bench_langgraph_{os.getpid()}"
    settings = {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row}
    with psycopg.connect(url, options=f"-csearch_path={schema}", **settings) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        try:
            saver = PostgresSaver(connection)
            saver.setup()
            print(version("langgraph-checkpoint-postgres"))
            for size in sizes:
                thread = Thread(saver, size)
                print(micros(thread.append, calls_for(size)), micros(thread.last, calls_for(size)))
        finally:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


main([int(size) for size in sys.argv[1:]])
