"""Texts of 1,000 characters that hardly compress, and the clock around calls."""

import os
import time

LAST = 50


def text():
    return os.urandom(500).hex()


def micros(call, calls):
    """The microseconds of each of some calls, after one that does not count."""
    call()
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    return 1e6 * (time.perf_counter() - begun) / calls


def calls_for(size):
    """Fewer where each may take a tenth of a second."""
    return 200 if size <= 100 else 20
