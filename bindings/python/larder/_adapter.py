"""Parts that the adapters for agent runtimes share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from larder._run import afollow, follow

if TYPE_CHECKING:
    from larder._history import History
    from larder._messages import StoredMessage, Thread
    from larder._position import Position

_PAGE = 10_000

T = TypeVar("T")


class Step(NamedTuple):
    """A call of a method that has a twin for ``asyncio``, whose name begins with ``a``."""

    method: Callable[..., Any]
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    @property
    def twin(self) -> Callable[..., Awaitable[Any]]:
        """The twin of the method."""
        method: Any = self.method
        twin: Callable[..., Awaitable[Any]] = getattr(method.__self__, f"a{method.__name__}")
        return twin


if TYPE_CHECKING:
    Steps = Generator[Step, Any, T]
else:
    Steps = Generator
"""Several calls, each made with the results of those before it: one text for both kinds of methods."""


def step(method: Callable[..., Any], *arguments: Any, **options: Any) -> Step:
    """Returns a call for :func:`perform` and :func:`aperform`."""
    return Step(method, arguments, options)


def perform(steps: Steps[T]) -> T:
    """Makes the calls on this thread."""
    return follow(steps, lambda call: call.method(*call.arguments, **call.options))


async def aperform(steps: Steps[T]) -> T:
    """Makes the calls on an event loop."""
    return await afollow(steps, lambda call: call.twin(*call.arguments, **call.options))


def newest(history: History, thread: Thread, limit: int | None = None) -> Steps[list[StoredMessage]]:
    """Reads the newest ``limit`` messages of a thread, or all, oldest first."""
    found: list[StoredMessage] = []
    before: Position | None = None
    while limit is None or len(found) < limit:
        count = _PAGE if limit is None else min(limit - len(found), _PAGE)
        page = yield step(history.tail, thread, count, before=before)
        found[:0] = page
        before = page.previous(count)
        if before is None:
            break
    return found


def missing(module: str, runtime: str, extra: str) -> ImportError:
    """Creates the exception for an optional dependency that is not installed."""
    return ImportError(f"{module} needs {runtime}; run `pip install 'larder-store[{extra}]'`")


async def settled(write: Awaitable[T]) -> T:
    """Waits until a write has ended, even if the task is canceled in between.

    The caller then has no write in flight that could overtake its next call.
    """
    task = asyncio.ensure_future(write)
    canceled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            canceled = canceled or error
    if canceled is not None:
        # The cancellation counts, so nobody reads the error of the write.
        if not task.cancelled():
            task.exception()
        raise canceled
    return task.result()
