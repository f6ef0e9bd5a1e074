"""LangChain's own suites, unmodified: 87 tests on each backend."""

import pytest
from langchain_tests.integration_tests import (
    AsyncCacheTestSuite,
    BaseStoreAsyncTests,
    BaseStoreSyncTests,
    SyncCacheTestSuite,
    VectorStoreIntegrationTests,
)
from langchain_tests.integration_tests.indexer import AsyncDocumentIndexTestSuite, DocumentIndexerTestSuite

from larder.langchain import LarderByteStore, LarderCache, LarderDocumentIndex, LarderVectorStore

TESTS = 87

# Runs the coroutines among the tests.
pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend():
    return "asyncio"


class ByteStore:
    @pytest.fixture
    def kv_store(self, stores):
        return LarderByteStore(stores)

    @pytest.fixture
    def three_values(self):
        return b"foo", b"\0bar\xff", b""


class TestByteStore(ByteStore, BaseStoreSyncTests[bytes]):
    pass


class TestByteStoreAsync(ByteStore, BaseStoreAsyncTests[bytes]):
    pass


class Cache:
    @pytest.fixture
    def cache(self, stores):
        return LarderCache(stores)


class TestCache(Cache, SyncCacheTestSuite):
    pass


class TestCacheAsync(Cache, AsyncCacheTestSuite):
    pass


class TestVectorStore(VectorStoreIntegrationTests):
    @pytest.fixture
    def vectorstore(self, stores):
        return LarderVectorStore(stores, self.get_embeddings())


class Index:
    @pytest.fixture
    def index(self, stores):
        embeddings = VectorStoreIntegrationTests.get_embeddings()
        return LarderDocumentIndex(vectorstore=LarderVectorStore(stores, embeddings))


class TestIndex(Index, DocumentIndexerTestSuite):
    pass


class TestIndexAsync(Index, AsyncDocumentIndexTestSuite):
    pass


def test_the_number_of_tests_is_that_of_the_suites():
    """A new release of the suites with more tests fails here, so that the bar follows."""
    suites = [suite for name, suite in globals().items() if name.startswith("Test")]
    tests = [name for suite in suites for name in dir(suite) if name.startswith("test_")]
    assert len(tests) == TESTS
