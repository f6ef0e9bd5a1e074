"""The backends of the tests: memory, SQLite, and Postgres at the URL in LARDER_POSTGRES_URL."""

import asyncio
import inspect
import os
import uuid
from pathlib import Path

import pytest

import larder

# Haystack reports its use over the network.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"

BACKENDS = ["memory", "sqlite", "postgres"]


def url_of(backend: str, folder: Path) -> str:
    if backend == "memory":
        return "memory:"
    if backend == "sqlite":
        return f"sqlite:{folder}/larder.db"
    url = os.environ.get("LARDER_POSTGRES_URL")
    if not url:
        pytest.skip("LARDER_POSTGRES_URL names no Postgres; run .ci/python, which starts one")
    return url


@pytest.fixture(params=BACKENDS)
def url(request, tmp_path):
    return url_of(request.param, tmp_path)


@pytest.fixture
def namespace():
    return f"python-{uuid.uuid4()}"


@pytest.fixture
def stores(url, namespace):
    with larder.open(url, namespace=namespace) as stores:
        yield stores
        stores.erase()


@pytest.fixture
def postgres(tmp_path, namespace):
    """The URL of Postgres. The namespace is erased at the end."""
    url = url_of("postgres", tmp_path)
    yield url
    with larder.open(url, namespace=namespace) as stores:
        stores.erase()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Runs the coroutines of Haystack's tests. They have the mark of pytest-asyncio, which is not loaded."""
    if pyfuncitem.get_closest_marker("asyncio") and inspect.iscoroutinefunction(pyfuncitem.obj):
        names = pyfuncitem._fixtureinfo.argnames
        asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
        return True
    return None
