"""Filters as the dictionaries that agent runtimes use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from larder._errors import invalid
from larder._filter import Filter

_COMPARISONS: dict[str, Callable[[str, Any], Filter]] = {
    "$eq": Filter.eq,
    "$ne": Filter.ne,
    "$gt": Filter.gt,
    "$gte": Filter.gte,
    "$lt": Filter.lt,
    "$lte": Filter.lte,
    "$in": Filter.is_in,
    "$nin": lambda field, values: ~Filter.is_in(field, values),
    "$exists": lambda field, value: Filter.exists(field) if value else ~Filter.exists(field),
}


def read(given: object) -> Filter | None:
    """Returns the filter of a dictionary, such as ``{"year": {"$gte": 2020}, "city": "Oslo"}``.

    ``$and`` and ``$or`` take lists of dictionaries, ``$not`` takes one.
    """
    if given is None or isinstance(given, Filter):
        return given
    if not isinstance(given, Mapping):
        raise invalid(
            "python",
            "filter",
            f"is of the type `{type(given).__name__}`; pass a larder.Filter or a dictionary",
        )
    conditions = [_condition(name, value) for name, value in given.items()]
    return _all("and", conditions) if conditions else None


def _condition(name: object, value: Any) -> Filter:
    if not isinstance(name, str):
        raise invalid("python", "filter", "has a key that is not a string; pass strings")
    if name in ("$and", "$or") and isinstance(value, list):
        parts = [found for part in value if (found := read(part)) is not None]
        if len(parts) == len(value) and parts:
            return _all(name[1:], parts)
    elif name == "$not" and (found := read(value)) is not None:
        return ~found
    elif not name.startswith("$"):
        if not isinstance(value, Mapping) or not any(str(key).startswith("$") for key in value):
            return Filter.eq(name, value)
        return _all("and", [_comparison(name, key, operand) for key, operand in value.items()])
    raise invalid(
        "python", "filter", "has a malformed group; pass `$and` or `$or` a list, `$not` a dictionary"
    )


def _comparison(name: str, operator: object, operand: Any) -> Filter:
    if not isinstance(operator, str) or operator not in _COMPARISONS:
        raise invalid("python", "filter", f"has an unknown operator; pass one of {', '.join(_COMPARISONS)}")
    if operator in ("$in", "$nin") and not isinstance(operand, list | tuple):
        raise invalid("python", "filter", f"has no list after `{operator}`; pass one")
    return _COMPARISONS[operator](name, operand)


def _all(group: str, parts: list[Filter]) -> Filter:
    return parts[0] if len(parts) == 1 else Filter({group: [part.condition for part in parts]})
