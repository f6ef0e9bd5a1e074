"""Appends of a message and reads of the last 50 through a session of the OpenAI Agents SDK in SQLite.

    openai_session.py DATABASE SIZE...

Prints the version, and for each size the microseconds of an append to a session of so many messages and of a read of its
last 50.
"""

import asyncio
import sys
import time
from importlib.metadata import version

from agents.memory import SQLiteSession

from payload import LAST, calls_for, text


def item():
    return {"role": "user", "content": text()}


async def micros(call, calls):
    await call()
    begun = time.perf_counter()
    for _ in range(calls):
        await call()
    return 1e6 * (time.perf_counter() - begun) / calls


async def main(path, sizes):
    print(version("openai-agents"))
    for size in sizes:
        session = SQLiteSession(f"session-{size}", path)
        await session.add_items([item() for _ in range(size)])

        async def append():
            await session.add_items([item()])

        async def last():
            found = await session.get_items(limit=LAST)
            if len(found) != LAST:
                raise SystemExit(f"the session gave {len(found)} items")

        print(await micros(append, calls_for(size)), await micros(last, calls_for(size)))
        session.close()


asyncio.run(main(sys.argv[1], [int(size) for size in sys.argv[2:]]))
