"""Positions: the numbers that stores assign."""

from __future__ import annotations

from typing import Self

from larder._errors import invalid


class Position(int):
    """A number that a store assigned, with the generation of the thread or bucket that assigned it.

    ``==``, the order and the hash use the number alone. A store compares the generation, too. ``text`` has both,
    for a program that stores the position or passes it on; ``Position(text)`` reads it.
    """

    generation: str | None
    """The generation; ``None`` if the position names none."""

    def __new__(cls, value: int | str) -> Self:
        if isinstance(value, Position):
            value = value.text
        number, _, generation = str(value).partition("@")
        try:
            position = super().__new__(cls, number)
        except ValueError:
            raise invalid("position", "position", "is not a position; pass one of a store") from None
        position.generation = generation or None
        return position

    @property
    def text(self) -> str:
        """The number and the generation, such as ``12@1f4``."""
        number = int.__repr__(self)
        return number if self.generation is None else f"{number}@{self.generation}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.text!r})"

    def __str__(self) -> str:
        return int.__repr__(self)

    def __reduce__(self) -> tuple[type[Self], tuple[str]]:
        return type(self), (self.text,)


def to_text(position: int | str | None) -> str | None:
    """Returns the text of a position for the Rust library."""
    return None if position is None else Position(position).text
