"""A write lock on a SQLite file, which another process holds. Two copies of SQLite in one process do not see
each other's locks."""

import contextlib
import subprocess
import sys

HOLD = """
import sqlite3, sys
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("begin immediate")
print("locked", flush=True)
sys.stdin.readline()
other.execute("rollback")
"""


@contextlib.contextmanager
def locked(path):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout.readline() == "locked\n"
        yield
    finally:
        holder.communicate("\n", timeout=60)
