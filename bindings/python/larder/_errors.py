"""The exceptions."""

from __future__ import annotations

from typing import ClassVar, Literal


class Error(Exception):
    """The base class of all errors of the stores. The subclass is the kind of the error.

    No error shows a secret, a bound value or stored text.
    """

    kind: ClassVar[str] = "Unexpected"

    outcome: Literal["not_applied", "unknown"] = "not_applied"
    """``"not_applied"`` if the write did not happen; ``"unknown"`` if it may have happened completely."""
    operation: str = ""
    """The operation that failed, as ``contract.method``."""
    field: str | None = None
    """The argument that broke a rule."""
    actual: int | None = None
    """The measured size of a field that broke a limit."""
    limit: int | None = None
    """The limit that the field broke."""
    retryable: bool = False
    """``True`` if the same call may be repeated unchanged."""
    context: dict[str, int | str]
    """Further facts: numbers and fixed words."""

    def __init__(self, *args: object) -> None:
        super().__init__(*args)
        self.context = {}


class NotFound(Error):
    """The named item does not exist, and the operation needs it."""

    kind = "NotFound"


class AlreadyExists(Error):
    """The named item exists already, and the operation needs it to be absent."""

    kind = "AlreadyExists"


class Conflict(Error):
    """A condition on the current state failed, for example because another writer was faster."""

    kind = "Conflict"


class InvalidInput(Error, ValueError):
    """The argument ``field`` breaks a rule. Nothing was changed."""

    kind = "InvalidInput"


class Unsupported(Error):
    """The backend does not declare the capability that the call needs."""

    kind = "Unsupported"


class PermissionDenied(Error):
    """The credentials do not allow the operation."""

    kind = "PermissionDenied"


class ResourceExhausted(Error):
    """A quota, a size limit or a pool is exhausted."""

    kind = "ResourceExhausted"


class Timeout(Error):
    """The time limit passed before the backend replied."""

    kind = "Timeout"


class Unavailable(Error):
    """The backend is unreachable, the connection was lost during the call, or the store is closed."""

    kind = "Unavailable"


class Corrupt(Error):
    """Stored data cannot be read back as it was written."""

    kind = "Corrupt"


class Unexpected(Error):
    """Any other error: a defect, or a reply of the backend that has no defined meaning."""

    kind = "Unexpected"


_KINDS: dict[str, type[Error]] = {
    kind.kind: kind
    for kind in (
        NotFound,
        AlreadyExists,
        Conflict,
        InvalidInput,
        Unsupported,
        PermissionDenied,
        ResourceExhausted,
        Timeout,
        Unavailable,
        Corrupt,
        Unexpected,
    )
}


def exception(
    kind: str,
    text: str,
    outcome: Literal["not_applied", "unknown"],
    operation: str,
    field: str | None,
    sizes: tuple[int | None, int | None],
    context: dict[str, int | str],
    retryable: bool,
    source: str | None,
) -> Error:
    """Creates the exception of an error of the Rust library, which calls this function."""
    error = _KINDS.get(kind, Unexpected)(text)
    error.outcome, error.operation, error.field = outcome, operation, field
    error.actual, error.limit = sizes
    error.context, error.retryable = context, retryable
    if source is not None:
        error.add_note(f"caused by: {source}")
    return error


def invalid(operation: str, field: str, message: str) -> InvalidInput:
    """Creates the exception for an argument."""
    error = InvalidInput(f"InvalidInput in {operation}: `{field}`: {message}")
    error.operation, error.field = operation, field
    return error


def unsupported(operation: str, message: str) -> Unsupported:
    """Creates the exception for a call that no backend offers yet."""
    error = Unsupported(f"Unsupported in {operation}: {message}")
    error.operation = operation
    return error
