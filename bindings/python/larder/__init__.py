"""Durable memory for AI agents on SQLite, Postgres, Redis, S3 or in memory, chosen by URL.

>>> import larder
>>> with larder.open("memory:") as stores:
...     thread = larder.Thread("assistant", "session-1")
...     _ = stores.history.append(thread, larder.Message.user("Hello"))
...     [stored.text for stored in stores.history.tail(thread, 20)]
['Hello']

Each method has a twin for ``asyncio``, whose name begins with ``a``: ``await larder.aopen(url)``.

``larder.toolkit`` has windows of conversations, summaries, transcripts and copies. ``python -m larder.mcp`` is an MCP
server.
"""

from larder._blobs import BlobInfo, Blobs, BlobVersion, PresignedUrl
from larder._errors import (
    AlreadyExists,
    Conflict,
    Corrupt,
    Error,
    InvalidInput,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
    Timeout,
    Unavailable,
    Unexpected,
    Unsupported,
)
from larder._filter import Filter
from larder._graph import Entity, Graph, Reached, Relationship, SubGraph, Written
from larder._history import History
from larder._history_types import Appended, Event, Forked, MessageFilter, MessagePage, Replaced, ThreadInfo, Ttl
from larder._key_value import Change, Delete, Entry, Item, KeyValue, Put
from larder._messages import Author, BlobRef, Message, Role, StoredMessage, Thread, ToolCall, ToolResult
from larder._position import Position
from larder._stores import Stores, aopen, open
from larder._tasks import Board, BoardId, Claim, Lease, NewTask, Status, Task, Tasks
from larder._vectors import CollectionInfo, Document, PutReport, SearchHit, Vectors

__all__ = [
    "AlreadyExists",
    "Appended",
    "Author",
    "BlobInfo",
    "BlobRef",
    "BlobVersion",
    "Blobs",
    "Board",
    "BoardId",
    "Change",
    "Claim",
    "CollectionInfo",
    "Conflict",
    "Corrupt",
    "Delete",
    "Document",
    "Entity",
    "Entry",
    "Error",
    "Event",
    "Filter",
    "Forked",
    "Graph",
    "History",
    "InvalidInput",
    "Item",
    "KeyValue",
    "Lease",
    "Message",
    "MessageFilter",
    "MessagePage",
    "NewTask",
    "NotFound",
    "PermissionDenied",
    "Position",
    "PresignedUrl",
    "Put",
    "PutReport",
    "Reached",
    "Relationship",
    "Replaced",
    "ResourceExhausted",
    "Role",
    "SearchHit",
    "Status",
    "StoredMessage",
    "Stores",
    "SubGraph",
    "Task",
    "Tasks",
    "Thread",
    "ThreadInfo",
    "Timeout",
    "ToolCall",
    "ToolResult",
    "Ttl",
    "Unavailable",
    "Unexpected",
    "Unsupported",
    "Vectors",
    "Written",
    "aopen",
    "open",
]
