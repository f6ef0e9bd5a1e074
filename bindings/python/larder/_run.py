"""Waiting for calls on an event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from larder._native import Call

C = TypeVar("C")
T = TypeVar("T")

if TYPE_CHECKING:
    Plan = Generator[Call[Any], Any, T]
else:
    Plan = Generator
"""Several calls, each made with the results of those before it: one text for both kinds of methods."""


async def run(call: Call[T]) -> T:
    """Waits for a call without blocking the event loop.

    If the task is canceled, the call stops. A write is then complete or absent.
    """
    if not call.poll():
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        call.start(loop, _wake, waiter)
        try:
            await waiter
        except BaseException:
            call.cancel()
            raise
    return call.result()


def follow(plan: Generator[C, Any, T], make: Callable[[C], Any]) -> T:
    """Makes the calls of a plan on this thread, and sends each result or exception back to the plan."""
    try:
        call = next(plan)
        while True:
            try:
                result = make(call)
            except BaseException as error:
                call = plan.throw(error)
            else:
                call = plan.send(result)
    except StopIteration as end:
        done: T = end.value
        return done


async def afollow(plan: Generator[C, Any, T], make: Callable[[C], Awaitable[Any]]) -> T:
    """As :func:`follow`, on an event loop."""
    try:
        call = next(plan)
        while True:
            try:
                result = await make(call)
            except BaseException as error:
                call = plan.throw(error)
            else:
                call = plan.send(result)
    except StopIteration as end:
        done: T = end.value
        return done


def drive(plan: Plan[T]) -> T:
    """Makes the calls of a plan on this thread."""
    return follow(plan, lambda call: call.wait())


async def adrive(plan: Plan[T]) -> T:
    """Makes the calls of a plan on an event loop."""
    return await afollow(plan, run)


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Unpicklable:
    """The base of objects that belong to one process."""

    __slots__ = ()

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"a {type(self).__name__} belongs to its process; open one in each process")
