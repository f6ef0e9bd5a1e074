"""Keys and values of the sessions of Google ADK.

A session has a head, with its state and the number of its next event, and a key for each event. The states of the
app and of its users have a key for each of their keys.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from google.adk.events.event import Event
from pydantic_core import PydanticSerializationError, to_jsonable_python

from larder._errors import invalid
from larder._key_value import Delete, Item, Put

APP = "a/"
"""The prefix of the state of the app."""
HEADS = "h/"
"""The prefix of the heads of sessions."""
USERS = "u/"
"""The prefix of the states of users."""

_PART_BYTES = 2 * 1024 * 1024
_EVENT_BYTES = 12 * 1024 * 1024
_DIGITS = 12


class Head(NamedTuple):
    """The head of a session."""

    id: str
    """The name of the events. It is new, so that a new session has no events of a deleted one."""
    next: int
    """The number of the next event."""
    last: str | None
    """The id of the last event."""
    updated: float
    """The time of the last event, or of the creation."""
    state: dict[str, Any]


class Deltas(NamedTuple):
    """Changes of the states, without prefixes."""

    app: dict[str, Any]
    user: dict[str, Any]
    session: dict[str, Any]


def heads_of(user: str) -> str:
    """Returns the prefix of the heads of a user's sessions."""
    return f"{HEADS}{quote(user, safe='')}/"


def head_key(user: str, session: str) -> str:
    """Returns the key of the head of a session."""
    return heads_of(user) + quote(session, safe="")


def names(key: str) -> tuple[str, str]:
    """Returns the user and the session of a head's key."""
    _, user, session = key.split("/")
    return unquote(user), unquote(session)


def user_prefix(user: str) -> str:
    """Returns the prefix of the state of a user."""
    return f"{USERS}{quote(user, safe='')}/"


def events_of(id: str) -> str:
    """Returns the prefix of the events of a session."""
    return f"e/{id}/"


def event_key(id: str, number: int, part: int = 0) -> str:
    """Returns the key of an event, or of a further part of a large one."""
    return f"{events_of(id)}{number:0{_DIGITS}}" + (f"/{part}" if part else "")


def encode_head(head: Head) -> bytes:
    """Returns the value of a head."""
    return json.dumps(head._asdict(), separators=(",", ":")).encode()


def decode_head(value: bytes) -> Head:
    """Reads the value of a head."""
    return Head(**json.loads(value))


def encode_event(event: Event) -> list[bytes]:
    """Returns the JSON of an event, in parts."""
    try:
        text = event.model_dump_json(exclude_none=True).encode()
    except (PydanticSerializationError, RecursionError, ValueError):
        raise invalid("python", "event", "has a value that JSON cannot represent; convert it") from None
    if len(text) > _EVENT_BYTES:
        note = f"is {len(text)} bytes; the limit is {_EVENT_BYTES}; save its files as artifacts"
        error = invalid("python", "event", note)
        error.actual, error.limit = len(text), _EVENT_BYTES
        raise error
    return [text[start : start + _PART_BYTES] for start in range(0, len(text), _PART_BYTES)]


def join(items: Sequence[Item]) -> list[bytes]:
    """Returns the JSON of events from the items of a listing."""
    events = groupby(items, lambda item: item.key.split("/")[2])
    return [b"".join(item.value or b"" for item in parts) for _, parts in events]


def split(state: dict[str, Any]) -> Deltas:
    """Returns the parts of a state as JSON, without those that are temporary.

    A value that JSON cannot represent, such as a function, becomes its text, as in the services of ADK.
    """
    try:
        plain: dict[str, Any] = to_jsonable_python(state, serialize_unknown=True)
    except (PydanticSerializationError, RecursionError, ValueError):
        raise invalid("python", "state", "has a value that JSON cannot represent; convert it") from None
    deltas = Deltas({}, {}, {})
    for key, value in plain.items():
        scope, colon, name = key.partition(":")
        if colon and scope == "app":
            deltas.app[name] = value
        elif colon and scope == "user":
            deltas.user[name] = value
        elif not (colon and scope == "temp"):
            deltas.session[key] = value
    return deltas


def scoped_writes(user: str, deltas: Deltas) -> list[Put | Delete]:
    """Returns the writes of the states of the app and the user. Each replaces one value."""
    prefix = user_prefix(user)
    pairs = [(APP + key, value) for key, value in deltas.app.items()]
    pairs += [(prefix + key, value) for key, value in deltas.user.items()]
    return [Put(key, json.dumps(value, separators=(",", ":")).encode()) for key, value in pairs]


def decode_state(items: Sequence[Item], prefix: str, scope: str) -> dict[str, Any]:
    """Reads a state from the items of a listing."""
    return {scope + item.key.removeprefix(prefix): json.loads(item.value or b"") for item in items}


def decode_users(items: Sequence[Item]) -> dict[str, dict[str, Any]]:
    """Reads the states of users, with the prefix of ADK."""
    states: dict[str, dict[str, Any]] = {}
    for item in items:
        _, user, key = item.key.split("/", 2)
        states.setdefault(unquote(user), {})[f"user:{key}"] = json.loads(item.value or b"")
    return states
