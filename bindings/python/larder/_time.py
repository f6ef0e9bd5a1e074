"""Times and durations."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

from larder._errors import invalid

Duration = float | timedelta
"""A duration: a ``timedelta``, or a number of seconds."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def milliseconds(field: str, duration: Duration | None) -> int | None:
    """Returns a duration in whole milliseconds."""
    if duration is None:
        return None
    seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise invalid(
            "python", field, f"is of the type `{type(seconds).__name__}`; pass seconds or a timedelta"
        )
    if not math.isfinite(seconds) or not 0 <= seconds < 2**53:
        raise invalid("python", field, "is negative or not finite; pass a duration")
    # Whole milliseconds that a float cannot represent are not cut off by one.
    return int(seconds * 1000 + 1e-6)


def from_micros(micros: int | None) -> datetime | None:
    """Returns the time of microseconds since 1970."""
    return None if micros is None else _EPOCH + timedelta(microseconds=micros)


def from_text(text: str) -> datetime:
    """Returns the time of an RFC 3339 text."""
    return datetime.fromisoformat(text)


def to_text(at: datetime) -> str:
    """Returns the RFC 3339 text of a time. A time without a zone is local."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
