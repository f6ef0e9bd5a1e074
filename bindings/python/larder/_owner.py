"""Adapters that may open stores of their own."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from larder._stores import Stores


class Owner:
    """Closes the stores that an adapter opened."""

    _owned: Stores | None = None

    def close(self) -> None:
        """Closes the stores that this object opened."""
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
