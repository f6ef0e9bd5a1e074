"""Haystack's own tests of document stores, unmodified, on each backend."""

import inspect
from array import array
from dataclasses import replace

import pytest
from haystack import Document
from haystack.document_stores.errors import DuplicateDocumentError
from haystack.testing import document_store as upstream
from haystack.testing import document_store_async as upstream_async

from larder.haystack import LarderDocumentStore

TESTS = 127

SUITES = [
    suite
    for module in (upstream, upstream_async)
    for name, suite in vars(module).items()
    if name.endswith("Test") and inspect.isclass(suite)
]


def comparable(documents):
    """The documents in the order of their ids, with embeddings of 32-bit floats."""
    documents = [
        replace(one, embedding=None if one.embedding is None else list(array("f", one.embedding)))
        for one in documents
    ]
    return sorted(documents, key=lambda document: document.id)


class TestDocumentStore(*SUITES):
    """All suites. Both methods are those that the suites tell a store to override."""

    @pytest.fixture
    def document_store(self, url, namespace):
        with LarderDocumentStore(url, namespace=namespace) as store:
            yield store
            store.delete_all_documents()

    @staticmethod
    def assert_documents_are_equal(received, expected):
        assert comparable(received) == comparable(expected)

    def test_write_documents(self, document_store):
        document = Document(content="test doc")
        assert document_store.write_documents([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            document_store.write_documents([document])
        assert document_store.filter_documents() == [document]

    @pytest.mark.asyncio
    async def test_write_documents_async(self, document_store):
        document = Document(content="test doc")
        assert await document_store.write_documents_async([document]) == 1
        with pytest.raises(DuplicateDocumentError):
            await document_store.write_documents_async([document])
        assert await document_store.filter_documents_async() == [document]


def test_the_number_of_tests_is_that_of_the_suites():
    """A new release of the suites with more tests fails here, so that the bar follows."""
    assert len([name for name in dir(TestDocumentStore) if name.startswith("test_")]) == TESTS
