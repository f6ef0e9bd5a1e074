"""The backends of the tests: memory, SQLite, and Postgres at the URL in LARDER_POSTGRES_URL."""

import os
import uuid
from pathlib import Path

import pytest

import larder

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
