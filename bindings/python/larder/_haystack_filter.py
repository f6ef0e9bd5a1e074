"""Filters of Haystack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any

from haystack.dataclasses import Document
from haystack.errors import FilterError

from larder._errors import unsupported
from larder._filter import Filter
from larder._haystack_documents import FIELDS, dated, instant

_NONE = Filter.is_in(FIELDS, [])
EVERY = ~_NONE
"""Matches every document."""
_DOCUMENT = {field.name for field in fields(Document)}
_ORDERS: dict[str, Callable[[list[str], Any], Filter]] = {
    ">": Filter.gt,
    ">=": Filter.gte,
    "<": Filter.lt,
    "<=": Filter.lte,
}


def read(given: Any) -> Filter:
    """Returns the filter.

    :raises FilterError: if the filter is malformed.
    :raises Unsupported: for a condition on a field that is neither ``id`` nor metadata.
    """
    if not given:
        return EVERY
    if not isinstance(given, dict):
        raise FilterError(f"a filter is of the type `{type(given).__name__}`; pass a dictionary")
    return _comparison(given) if "field" in given else _group(given)


def _group(given: dict[str, Any]) -> Filter:
    operator, parts = _required(given, "operator"), _required(given, "conditions")
    if operator not in ("AND", "OR", "NOT"):
        raise FilterError("a filter has an unknown logical operator; use `AND`, `OR` or `NOT`")
    if not isinstance(parts, list) or not all(isinstance(part, dict) and part for part in parts):
        raise FilterError("`conditions` is no list of conditions; pass one")
    conditions = [read(part).condition for part in parts]
    if operator == "OR":
        return Filter({"or": conditions}) if conditions else _NONE
    every = Filter({"and": conditions}) if conditions else EVERY
    return ~every if operator == "NOT" else every


def _comparison(given: dict[str, Any]) -> Filter:
    operator, value = _required(given, "operator"), _required(given, "value")
    path, has_dates = _path(given["field"])
    dates = dated(path) if has_dates else None
    if operator == "==":
        return _equal(path, dates, value)
    if operator == "!=":
        return ~_equal(path, dates, value)
    if operator in ("in", "not in"):
        if not isinstance(value, list):
            raise FilterError(f"the value of `{operator}` is no list; pass one")
        found = _any(path, dates, value)
        return found if operator == "in" else ~found
    if operator in _ORDERS:
        return _ordered(_ORDERS[operator], path, dates, value)
    raise FilterError("a filter has an unknown comparison operator; use ==, !=, >, >=, <, <=, in or not in")


def _path(field: Any) -> tuple[list[str], bool]:
    if not isinstance(field, str):
        raise FilterError("`field` is no text; pass the name of a field")
    root, *rest = field.split(".")
    if root == "meta" and rest:
        return rest, True
    if rest:
        # A document has no such field, so its value is missing.
        return [FIELDS, "missing"], False
    if field == "id":
        return [FIELDS, "id"], False
    if field in _DOCUMENT:
        raise unsupported("python", f"a filter has the field `{field}`; filter on `id` and on `meta`")
    return [field], True


def _equal(path: list[str], dates: list[str] | None, value: Any) -> Filter:
    if value is None:
        return ~Filter.exists(path) | Filter.eq(path, None)
    date = instant(value)
    same = _NONE if isinstance(value, datetime) else Filter.eq(path, value)
    return same if date is None or dates is None else same | Filter.eq(dates, date)


def _any(path: list[str], dates: list[str] | None, values: list[Any]) -> Filter:
    plain = [value for value in values if value is not None and not isinstance(value, datetime)]
    found = Filter.is_in(path, plain)
    instants = [date for value in values if (date := instant(value)) is not None]
    if instants and dates is not None:
        found |= Filter.is_in(dates, instants)
    return found | _equal(path, dates, None) if None in values else found


def _ordered(
    order: Callable[[list[str], Any], Filter], path: list[str], dates: list[str] | None, value: Any
) -> Filter:
    if value is None:
        return _NONE
    if isinstance(value, bool | int | float):
        return order(path, value)
    date = instant(value)
    if date is None:
        raise FilterError("a value of >, >=, < or <= is no number and no date in ISO 8601; pass one of them")
    return _NONE if dates is None else order(dates, date)


def _required(given: dict[str, Any], key: str) -> Any:
    if key not in given:
        raise FilterError(f"a filter has no key `{key}`; add it")
    return given[key]
