"""LlamaIndex: chat store, vector store and key-value store on any backend.

>>> import larder
>>> from llama_index.core.llms import ChatMessage
>>> from larder.llama_index import LarderChatStore
>>> with larder.open("memory:") as stores:
...     store = LarderChatStore(stores)
...     store.add_message("user-1", ChatMessage("Hello"))
...     [message.content for message in store.get_messages("user-1")]
['Hello']

The objects use open stores and do not close them.
"""

from larder._adapter import missing

try:
    import llama_index.core as _
except ModuleNotFoundError as _error:
    raise missing("larder.llama_index", "LlamaIndex", "llama-index") from _error

from larder._llama_index_chat import LarderChatStore
from larder._llama_index_key_value import LarderKVStore
from larder._llama_index_memory import LarderMemoryStore
from larder._llama_index_vectors import LarderVectorStore

__all__ = ["LarderChatStore", "LarderKVStore", "LarderMemoryStore", "LarderVectorStore"]
