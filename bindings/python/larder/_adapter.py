"""Parts that the adapters for agent runtimes share."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from larder._stores import Stores

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
    try:
        call = next(steps)
        while True:
            try:
                result = call.method(*call.arguments, **call.options)
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as end:
        done: T = end.value
        return done


async def aperform(steps: Steps[T]) -> T:
    """Makes the calls on an event loop."""
    try:
        call = next(steps)
        while True:
            try:
                result = await call.twin(*call.arguments, **call.options)
            except BaseException as error:
                call = steps.throw(error)
            else:
                call = steps.send(result)
    except StopIteration as end:
        done: T = end.value
        return done


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


class Owner:
    """The base of adapters that close the stores which they opened. Use such an adapter with ``with``."""

    _owned: Stores | None = None

    @classmethod
    def _owning(cls, stores: Stores, make: Callable[[Stores], Self]) -> Self:
        try:
            adapter = make(stores)
        except BaseException:
            stores.close()
            raise
        adapter._owned = stores
        return adapter

    def close(self) -> None:
        """Closes the stores that the object opened."""
        if self._owned is not None:
            self._owned.close()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        if self._owned is not None:
            await self._owned.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()
