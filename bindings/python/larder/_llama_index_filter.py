"""Metadata filters of LlamaIndex."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from larder._errors import invalid, unsupported
from larder._filter import Filter

_COMPARISONS: dict[FilterOperator, Callable[[str, Any], Filter]] = {
    FilterOperator.EQ: Filter.eq,
    FilterOperator.NE: Filter.ne,
    FilterOperator.GT: Filter.gt,
    FilterOperator.GTE: Filter.gte,
    FilterOperator.LT: Filter.lt,
    FilterOperator.LTE: Filter.lte,
    FilterOperator.CONTAINS: lambda key, value: Filter.contains_any(key, [value]),
}
_LISTS: dict[FilterOperator, Callable[[str, Sequence[Any]], Filter]] = {
    FilterOperator.IN: Filter.is_in,
    FilterOperator.NIN: lambda key, values: ~Filter.is_in(key, values),
    FilterOperator.ANY: Filter.contains_any,
    FilterOperator.ALL: Filter.contains_all,
}


def read(given: MetadataFilters | None) -> Filter | None:
    """Returns the filter; ``None`` if there are no conditions.

    ``NOT`` matches if none of its conditions match. A filter may contain filters.
    """
    if given is None:
        return None
    if not isinstance(given, MetadataFilters):
        raise invalid(
            "python", "filters", f"is a `{type(given).__name__}`; pass MetadataFilters of LlamaIndex"
        )
    parts = [_part(part) for part in given.filters]
    conditions = [part.condition for part in parts if part is not None]
    if not conditions:
        return None
    if given.condition in (None, FilterCondition.AND):
        return Filter({"and": conditions})
    either = Filter({"or": conditions})
    return ~either if given.condition == FilterCondition.NOT else either


def _part(part: MetadataFilter | MetadataFilters) -> Filter | None:
    return read(part) if isinstance(part, MetadataFilters) else _comparison(part)


def _comparison(given: MetadataFilter) -> Filter:
    key, value, operator = given.key, given.value, given.operator
    if operator == FilterOperator.IS_EMPTY:
        empty = Filter.is_in(key, [None, "", []])
        return ~Filter.exists(key) | empty
    if operator in _COMPARISONS:
        return _COMPARISONS[operator](key, value)
    if operator in _LISTS:
        if not isinstance(value, list):
            raise invalid("python", "filters", f"has no list for the operator `{operator.value}`; pass one")
        return _LISTS[operator](key, value)
    raise unsupported("python", f"a filter has the operator `{operator.value}`; use another operator")


def both(*filters: Filter | None) -> Filter | None:
    """Returns the filter that matches what all filters match; ``None`` matches everything."""
    conditions = [one.condition for one in filters if one is not None]
    if not conditions:
        return None
    return Filter(conditions[0]) if len(conditions) == 1 else Filter({"and": conditions})
