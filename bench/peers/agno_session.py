"""Appends of a message and reads of the last 50 through agno's sessions in Postgres.

    agno_session.py SIZE...

LARDER_BENCH_PEER_URL names the database, where a schema of its own is made and removed. Prints the version, and for each
size the microseconds of an append to a session of so many runs, of a message each, and of a read of its last 50.
"""

import os
import sys
import time
from importlib.metadata import version

import psycopg
from agno.db.base import SessionType
from agno.db.postgres import PostgresDb
from agno.models.message import Message
from agno.run.agent import RunOutput
from agno.session import AgentSession

from payload import LAST, calls_for, micros, text


class Session:
    def __init__(self, db, size):
        self.db, self.session_id, self.runs = db, f"session-{size}", 0
        db.upsert_session(AgentSession(session_id=self.session_id, agent_id="bench", created_at=int(time.time())))
        while self.runs < size:
            self.append()

    def append(self):
        run = RunOutput(
            run_id=f"{self.session_id}-{self.runs}",
            agent_id="bench",
            session_id=self.session_id,
            messages=[Message(role="user", content=text())],
        )
        self.db.upsert_run(run, session_id=self.session_id, run_index=self.runs)
        self.runs += 1

    def last(self):
        session = self.db.get_session(self.session_id, SessionType.AGENT, runs_limit=LAST)
        found = session.get_messages(limit=LAST)
        if len(found) != LAST:
            raise SystemExit(f"the session gave {len(found)} messages")


def main(sizes):
    url, schema = os.environ["LARDER_BENCH_PEER_URL"], f"larder_bench_agno_{os.getpid()}"
    try:
        db = PostgresDb(db_url=url.replace("://", "+psycopg://", 1).replace("postgres+", "postgresql+", 1), db_schema=schema)
        print(version("agno"))
        for size in sizes:
            session = Session(db, size)
            print(micros(session.append, calls_for(size)), micros(session.last, calls_for(size)))
        db.db_engine.dispose()
    finally:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


main([int(size) for size in sys.argv[1:]])
