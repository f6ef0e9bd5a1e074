"""Pages of listings."""

from __future__ import annotations

from larder._errors import invalid


def wanted(limit: int | None, found: int, page: int) -> int:
    """Returns the number of items to request, for a listing of up to ``limit`` items that has some already."""
    if limit is None:
        return page
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        raise invalid("python", "limit", "is not a whole number from 0 on; pass one")
    return min(limit - found, page)
