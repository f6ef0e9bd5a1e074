"""What Haystack asks about the metadata of documents."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

Metas = Iterable[dict[str, Any]]


def key(field: str) -> str:
    """Returns the key of a field, whose name may begin with ``meta.``."""
    return field.removeprefix("meta.")


def counts(metas: Metas, fields: Iterable[str]) -> dict[str, int]:
    """Returns the number of different values of each field."""
    found = list(metas)
    return {key(field): len(_values(found, field)) for field in fields}


def types(metas: Metas) -> dict[str, dict[str, str]]:
    """Returns the type of each field: ``boolean``, ``int``, ``float`` or ``keyword``."""
    names = {bool: "boolean", int: "int", float: "float"}
    found: dict[str, dict[str, str]] = {}
    for meta in metas:
        for name, value in meta.items():
            if value is not None:
                found[name] = {"type": names.get(type(value), "keyword")}
    return found


def bounds(metas: Metas, field: str) -> dict[str, Any]:
    """Returns the least and the greatest number or text of a field; ``None`` if no document has one."""
    values = [meta.get(key(field)) for meta in metas]
    numbers = [value for value in values if isinstance(value, int | float)]
    texts = [value for value in values if isinstance(value, str)]
    comparable: list[Any] = numbers or texts
    return {"min": min(comparable, default=None), "max": max(comparable, default=None)}


def page(metas: Metas, field: str, term: str | None, start: int, size: int) -> tuple[list[Any], int]:
    """Returns a page of the different values of a field that contain a term, and their number."""
    values = _values(metas, field)
    if term:
        values = [value for value in values if term.lower() in str(value).lower()]
    values.sort(key=lambda value: (str(value), type(value).__name__))
    return values[start : start + size], len(values)


def _values(metas: Metas, field: str) -> list[Any]:
    """Returns the different values of a field. 1, 1.0, "1" and true differ."""
    found: dict[str, Any] = {}
    for meta in metas:
        value = meta.get(key(field))
        if value is not None:
            found.setdefault(json.dumps(value, sort_keys=True), value)
    return list(found.values())
