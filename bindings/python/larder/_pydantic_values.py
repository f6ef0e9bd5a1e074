"""Keys and values of the conversations of PydanticAI.

A root is the first entry of a history. Conversations that share an entry have the same root. Each root has a guard,
which changes with each fork and each deletion, and an index of the conversations that have it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from pydantic import TypeAdapter
from pydantic_ai.conversation_store import ConversationEntry, ConversationRecord
from pydantic_ai.messages import ModelMessagesTypeAdapter
from pydantic_core import PydanticSerializationError

from larder._errors import invalid
from larder._key_value import Delete, Put

_BATCH_BYTES = 12 * 1024 * 1024
_BLOCK = 32
_RECORD = TypeAdapter(ConversationRecord)


class Head(NamedTuple):
    """The first line of an entry's value."""

    root: str
    before: list[str]
    """The entries before this one, from the newest one back to the last of the previous block."""


class Stored(NamedTuple):
    """The value of a record."""

    roots: list[str]
    record: ConversationRecord


def record_key(id: str) -> str:
    """Returns the key of a record."""
    return f"r/{id}"


def entry_key(id: str) -> str:
    """Returns the key of an entry."""
    return f"e/{id}"


def guard_key(root: str) -> str:
    """Returns the key of the guard of a root."""
    return f"g/{root}"


def member_key(root: str, id: str) -> str:
    """Returns the key of a conversation in the index of a root."""
    return f"m/{root}/{id}"


def scope_key(scope: str, id: str) -> str:
    """Returns the key of a conversation in the index of a scope."""
    return f"s/{quote(scope, safe='')}/{id}"


def index_keys(stored: Stored) -> set[str]:
    """Returns the keys of a conversation in the indexes."""
    id, scope = stored.record.conversation_id, stored.record.scope
    keys = {member_key(root, id) for root in stored.roots}
    return keys if scope is None else keys | {scope_key(scope, id)}


def encode_record(record: ConversationRecord, roots: Sequence[str]) -> bytes:
    """Returns the value of a record."""
    return _json(list(dict.fromkeys(roots))) + b"\n" + _dump("record", _RECORD, record)


def decode_record(value: bytes) -> Stored:
    """Reads the value of a record."""
    roots, _, record = value.partition(b"\n")
    return Stored(json.loads(roots), _RECORD.validate_json(record))


def encode_entries(entries: Sequence[ConversationEntry], heads: dict[str, Head]) -> list[Put]:
    """Returns the writes of entries.

    :param heads: The heads of the stored entries that they follow.
    """
    heads = dict(heads)
    writes = []
    for entry in entries:
        if entry.parent_id is None:
            head = Head(entry.id, [])
        else:
            parent = heads[entry.parent_id]
            rest = parent.before if len(parent.before) < _BLOCK else []
            head = Head(parent.root, [entry.parent_id, *rest])
        heads[entry.id] = head
        message = _dump("message", ModelMessagesTypeAdapter, [entry.message])
        writes.append(Put(entry_key(entry.id), _json([head.root, *head.before]) + b"\n" + message))
    return writes


def head(value: bytes) -> Head:
    """Reads the head of an entry's value."""
    root, *before = json.loads(value.partition(b"\n")[0])
    return Head(root, before)


def decode_entry(id: str, value: bytes) -> ConversationEntry:
    """Reads an entry from its value."""
    [message] = ModelMessagesTypeAdapter.validate_json(value.partition(b"\n")[2])
    before = head(value).before
    return ConversationEntry(id=id, parent_id=before[0] if before else None, message=message)


def batches(writes: Sequence[Put | Delete], count: int) -> list[list[Put | Delete]]:
    """Divides writes into those of one call, with as many as possible in the last call."""
    found: list[list[Put | Delete]] = [[]]
    size = 0
    for write in reversed(writes):
        own = len(write.value) if isinstance(write, Put) else 0
        if found[-1] and (len(found[-1]) == count or size + own > _BATCH_BYTES):
            found.append([])
            size = 0
        found[-1].append(write)
        size += own
    return [batch[::-1] for batch in reversed(found)]


def _json(value: list[str]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _dump(field: str, adapter: TypeAdapter[Any], value: Any) -> bytes:
    try:
        return adapter.dump_json(value)
    except (PydanticSerializationError, RecursionError, ValueError):
        raise invalid("python", field, "has a value that JSON cannot represent; convert it") from None
