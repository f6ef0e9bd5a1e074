"""Copies between two open stores."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Literal, NamedTuple

from larder import _native
from larder._errors import invalid
from larder._native import Call
from larder._run import run
from larder._stores import Stores


class Digest(NamedTuple):
    """The digest of all records of a contract."""

    records: int
    sha256: str


class Difference(NamedTuple):
    """The comparison of two sides."""

    same: int
    missing: int
    """The number of records that only the source has."""
    different: int
    extra: int
    """The number of records that only the target has."""


class Copied(NamedTuple):
    """The result of a copy in one contract."""

    contract: str
    written: int
    """The number of records that this copy wrote."""
    equal: bool
    """``True`` if the target has the same data as the source."""
    source: Digest
    """The digest of the source, read again after all writes."""
    target: Digest
    """The digest of the target, without the records that only the target has, if these may stay."""
    difference: Difference


def copy(
    source: Stores,
    target: Stores,
    *,
    contracts: Iterable[str] | None = None,
    existing: Literal["refuse", "keep", "overwrite"] = "refuse",
) -> list[Copied]:
    """Copies the data of one namespace to another, on any two backends, and compares both sides afterwards.

    An interrupted copy continues when it runs again, and writes no record twice. The time to live of a thread is
    not copied, and a task that a worker holds can be claimed in the target.

    :param contracts: The contracts to copy, such as ``history`` and ``key_value``; all by default.
    :param existing: ``"refuse"`` fails if the target has other data; ``"keep"`` keeps it and fails if a record
        differs; ``"overwrite"`` replaces a record that differs.
    :raises AlreadyExists: if the target has other data, before anything is written.
    :raises Unsupported: if the target has no store for data of the source, before anything is written.

    >>> import larder
    >>> from larder.toolkit import copy
    >>> with larder.open("memory:", namespace="a") as source, larder.open("memory:", namespace="b") as target:
    ...     _ = source.key_value.set("trips", "basel", b"booked")
    ...     written = {copied.contract: copied.written for copied in copy(source, target)}
    ...     written["key_value"], target.key_value.get("trips", "basel")
    (1, b'booked')
    """
    return _copied(_copy(source, target, contracts, existing).wait())


async def acopy(
    source: Stores,
    target: Stores,
    *,
    contracts: Iterable[str] | None = None,
    existing: Literal["refuse", "keep", "overwrite"] = "refuse",
) -> list[Copied]:
    """As :func:`copy`."""
    return _copied(await run(_copy(source, target, contracts, existing)))


def _copy(
    source: Stores, target: Stores, contracts: Iterable[str] | None, existing: str
) -> Call[str]:
    for name, stores in (("source", source), ("target", target)):
        if not isinstance(stores, Stores):
            raise invalid("python", name, f"is a `{type(stores).__name__}`; pass open stores")
    if isinstance(contracts, str):
        raise invalid("python", "contracts", "is a str; pass a list of names")
    names = None if contracts is None else list(contracts)
    if names is not None and not all(isinstance(name, str) for name in names):
        raise invalid("python", "contracts", "has an item that is not a str; pass names")
    if not isinstance(existing, str):
        raise invalid("python", "existing", "is not a str; use `refuse`, `keep` or `overwrite`")
    return _native.copy(source._native, target._native, names, existing)


def _copied(text: str) -> list[Copied]:
    return [
        Copied(
            copied["contract"],
            copied["written"],
            copied["equal"],
            Digest(**copied["source"]),
            Digest(**copied["target"]),
            Difference(**dict(copied["difference"])),
        )
        for copied in json.loads(text)
    ]
