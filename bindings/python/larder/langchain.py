"""LangChain: chat history, byte store, vector store, cache and record manager on any backend.

>>> import larder
>>> from larder.langchain import LarderByteStore
>>> with larder.open("memory:") as stores:
...     store = LarderByteStore(stores)
...     store.mset([("a", b"1")])
...     store.mget(["a", "b"])
[b'1', None]

The objects use open stores and do not close them.
"""

from larder._adapter import missing

try:
    import langchain_core as _
except ModuleNotFoundError as _error:
    raise missing("larder.langchain", "LangChain", "langchain") from _error

from larder._langchain_history import LarderChatMessageHistory
from larder._langchain_key_value import LarderByteStore, LarderCache
from larder._langchain_records import LarderRecordManager
from larder._langchain_vectors import LarderDocumentIndex, LarderVectorStore

__all__ = [
    "LarderByteStore",
    "LarderCache",
    "LarderChatMessageHistory",
    "LarderDocumentIndex",
    "LarderRecordManager",
    "LarderVectorStore",
]
