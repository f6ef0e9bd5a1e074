"""The filter language for metadata and properties."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from larder._messages import to_json

Field = str | Sequence[str]
"""A key of the top level, or the path to a nested value. A dot is part of a key."""


def _path(field: Field) -> list[str]:
    return [field] if isinstance(field, str) else list(field)


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on metadata, with the same meaning on every backend. Combine them with ``&``, ``|`` and ``~``.

    >>> import larder
    >>> filter = larder.Filter.eq("tenant", "acme") & larder.Filter.gte(["score", "quality"], 0.5)
    """

    condition: dict[str, Any]
    """The condition in JSON."""

    @classmethod
    def eq(cls, field: Field, value: Any) -> Filter:
        """The field exists and equals the value."""
        return cls({"eq": [_path(field), value]})

    @classmethod
    def ne(cls, field: Field, value: Any) -> Filter:
        """The field is absent or differs from the value."""
        return cls({"ne": [_path(field), value]})

    @classmethod
    def gt(cls, field: Field, value: Any) -> Filter:
        """The field is greater than the value."""
        return cls({"gt": [_path(field), value]})

    @classmethod
    def gte(cls, field: Field, value: Any) -> Filter:
        """The field is greater than or equal to the value."""
        return cls({"gte": [_path(field), value]})

    @classmethod
    def lt(cls, field: Field, value: Any) -> Filter:
        """The field is less than the value."""
        return cls({"lt": [_path(field), value]})

    @classmethod
    def lte(cls, field: Field, value: Any) -> Filter:
        """The field is less than or equal to the value."""
        return cls({"lte": [_path(field), value]})

    @classmethod
    def is_in(cls, field: Field, values: Sequence[Any]) -> Filter:
        """The field exists and equals one of the values."""
        return cls({"in": [_path(field), list(values)]})

    @classmethod
    def exists(cls, field: Field) -> Filter:
        """The field exists."""
        return cls({"exists": _path(field)})

    @classmethod
    def contains_any(cls, field: Field, values: Sequence[Any]) -> Filter:
        """The field is an array with one of the values."""
        return cls({"contains_any": [_path(field), list(values)]})

    @classmethod
    def contains_all(cls, field: Field, values: Sequence[Any]) -> Filter:
        """The field is an array with all of the values."""
        return cls({"contains_all": [_path(field), list(values)]})

    def __and__(self, other: Filter) -> Filter:
        return Filter({"and": [self.condition, other.condition]})

    def __or__(self, other: Filter) -> Filter:
        return Filter({"or": [self.condition, other.condition]})

    def __invert__(self) -> Filter:
        return Filter({"not": self.condition})


def encode(filter: Filter | None) -> str | None:
    """Returns the JSON of a filter for the Rust library."""
    return None if filter is None else to_json("filter", filter.condition)
