"""A plugin for pytest that puts `LarderStore` into the place of the stores of `langgraph-checkpoint-sqlite`.

`test_langgraph_store.py` runs the tests of that package with it, unmodified, from its source distribution.
"""

import os
import uuid
from contextlib import asynccontextmanager, contextmanager

import langgraph.store.sqlite as upstream
import langgraph.store.sqlite.aio as upstream_async
from larder.langgraph import LarderStore

# Tests that have no meaning for another store than this one.
OWN = {
    "test_vector_store_initialization": "reads the tables",
    "test_nonnull_migrations": "reads the SQL",
    "test_escape_glob_literal": "tests a function that makes SQL",
    "test_namespace_match_pattern": "tests a function that makes SQL",
    "test_list_namespaces_prefix_uses_indexable_condition": "reads the SQL",
    "test_sql_injection_vulnerability": "expects an error for a key that SQL cannot quote",
    "test_filter_keys_with_hyphens_and_digits": "expects a path in a key with a dot, as in no other store",
    "test_no_running_loop": "expects an error, because each store belongs to one event loop",
}


def _options(conn_string, index, ttl):
    # SqliteStore has another name for the fields than the documentation of LangGraph.
    if index is not None:
        index = {**index, "fields": index.get("text_fields")}
    options = {"namespace": f"python-{uuid.uuid4()}", "index": index, "ttl": ttl}
    url = os.environ["LARDER_TEST_URL"]
    if url.startswith("postgres"):
        # A test makes 6,000 calls at the same time.
        url += ("&" if "?" in url else "?") + "acquire_timeout_ms=120000"
    return url, options


class Store(LarderStore):
    @classmethod
    @contextmanager
    def from_conn_string(cls, conn_string, *, index=None, ttl=None):
        url, options = _options(conn_string, index, ttl)
        with cls.from_url(url, **options) as store:
            yield store
            store._owned.erase()

    def setup(self):
        pass


class AsyncStore(LarderStore):
    @classmethod
    @asynccontextmanager
    async def from_conn_string(cls, conn_string, *, index=None, ttl=None):
        url, options = _options(conn_string, index, ttl)
        async with await cls.afrom_url(url, **options) as store:
            yield store
            await store._owned.aerase()

    async def setup(self):
        pass


def _is_second(item):
    """The tests run in memory and on a file. Here, both are the same URL."""
    callspec = getattr(item, "callspec", None)
    return callspec is not None and "file" in callspec.params.values()


upstream.SqliteStore = Store
upstream.AsyncSqliteStore = upstream_async.AsyncSqliteStore = AsyncStore


def pytest_collection_modifyitems(config, items):
    own = [item for item in items if item.originalname in OWN or _is_second(item)]
    config.hook.pytest_deselected(items=own)
    items[:] = [item for item in items if item not in own]
