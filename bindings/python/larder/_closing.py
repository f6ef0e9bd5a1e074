"""Objects that are closed, such as stores and the adapters that opened them."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from larder._stores import Stores


class Closing:
    """The base of objects that are used with ``with`` and ``async with``."""

    __slots__ = ()

    def close(self) -> None:
        """Closes the object."""
        raise NotImplementedError

    async def aclose(self) -> None:
        """As :meth:`close`."""
        raise NotImplementedError

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


class Owner(Closing):
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
        """Closes the stores that this object opened."""
        if self._owned is not None:
            self._owned.close()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        if self._owned is not None:
            await self._owned.aclose()
