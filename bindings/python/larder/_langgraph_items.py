"""Items of a LangGraph store: their keys, their JSON and their filters."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

from langgraph.store.base import Item, SearchItem

from larder._errors import invalid
from larder._messages import to_json
from larder._time import from_micros

NamespacePath = tuple[str, ...]

_NUMBERS = (int, float)


def to_key(namespace: NamespacePath, key: str) -> str:
    """Returns the key of an item: ``users.ada..prefs``. No label is empty or has a dot, so ``..`` ends them."""
    return f"{'.'.join(namespace)}..{key}"


def to_prefix(path: NamespacePath) -> str:
    """Returns the prefix of the keys in a namespace and in those below it."""
    return f"{'.'.join(path)}." if path else ""


def split(key: str) -> tuple[NamespacePath, str]:
    """Returns the namespace and the key of an item."""
    labels, _, name = key.partition("..")
    return tuple(labels.split(".")), name


@dataclass(frozen=True, slots=True)
class Record:
    """An item as it is stored."""

    key: str
    value: dict[str, Any]
    created: int
    updated: int
    """The time of the last write, in microseconds since 1970."""
    ttl: float | None
    """The time to live in minutes."""
    documents: Sequence[str]
    """The ids of the documents with the embeddings of this version of the item."""

    def encode(self) -> bytes:
        fields: dict[str, Any] = {"value": self.value, "created": self.created, "updated": self.updated}
        if self.ttl is not None:
            fields["ttl"] = self.ttl
        if self.documents:
            fields["documents"] = list(self.documents)
        return to_json("value", fields).encode()

    @classmethod
    def decode(cls, key: str, stored: bytes) -> Record:
        fields = json.loads(stored)
        return cls(
            key,
            fields["value"],
            fields["created"],
            fields["updated"],
            fields.get("ttl"),
            fields.get("documents", ()),
        )

    def item(self) -> Item:
        namespace, key = split(self.key)
        created, updated = self._times()
        return Item(value=self.value, key=key, namespace=namespace, created_at=created, updated_at=updated)

    def search_item(self, score: float | None) -> SearchItem:
        return SearchItem(*split(self.key), self.value, *self._times(), score)

    def _times(self) -> tuple[datetime, datetime]:
        return cast(datetime, from_micros(self.created)), cast(datetime, from_micros(self.updated))


def matches(value: Mapping[str, Any], filter: Mapping[str, Any] | None) -> bool:
    """Returns whether an item's value matches a filter of LangGraph."""
    return all(_compare(value.get(key), wanted) for key, wanted in (filter or {}).items())


def _compare(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(key.startswith("$") for key in wanted):
            return all(_apply(found, operator, operand) for operator, operand in wanted.items())
        return isinstance(found, dict) and all(
            _compare(found.get(key), operand) for key, operand in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(_compare, found, wanted))
    return _equal(found, wanted)


def _equal(found: Any, wanted: Any) -> bool:
    # In JSON, `true` is not the number 1.
    return isinstance(found, bool) == isinstance(wanted, bool) and bool(found == wanted)


def _apply(found: Any, operator: str, operand: Any) -> bool:
    if operator == "$eq":
        return _equal(found, operand)
    if operator == "$ne":
        return not _equal(found, operand)
    if operator not in ("$gt", "$gte", "$lt", "$lte"):
        raise invalid("langgraph.search", "filter", "has an unknown operator; pass for example `$gt`")
    if not _ordered(found, operand):
        return False
    if operator == "$gt":
        return bool(found > operand)
    if operator == "$gte":
        return bool(found >= operand)
    if operator == "$lt":
        return bool(found < operand)
    return bool(found <= operand)


def _ordered(found: Any, operand: Any) -> bool:
    """Returns whether two values have an order: two numbers or two texts."""
    if isinstance(found, bool) or isinstance(operand, bool):
        return False
    both_numbers = isinstance(found, _NUMBERS) and isinstance(operand, _NUMBERS)
    return both_numbers or (isinstance(found, str) and isinstance(operand, str))
