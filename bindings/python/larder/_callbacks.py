"""Functions of the program that the Rust library calls."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple

from larder._errors import invalid
from larder._messages import Message, decode_message, encode_one

if TYPE_CHECKING:
    from larder._native import Reply

_log = logging.getLogger("larder.toolkit")


class ModelRequest(NamedTuple):
    """A request to a language model."""

    messages: list[Message]
    """The conversation, oldest message first."""
    output_tokens_max: int | None
    """The maximum number of tokens in the reply; ``None`` uses the default of the model."""


Model = Callable[[ModelRequest], str | Message | Awaitable[str | Message]]
"""A language model: a function, or a coroutine function, that returns the next message of a conversation.

A function runs on a separate thread. A coroutine runs on the event loop of the caller, or on a new one if the
caller waits on its thread. Both see the context variables of the caller.
"""


class Function:
    """A model that the Rust library calls."""

    __slots__ = ("log_failures", "model")

    log_failures: bool
    model: Model

    def __init__(self, model: Model, *, log_failures: bool) -> None:
        if not callable(model):
            raise invalid("python", "model", f"is a `{type(model).__name__}`; pass a function")
        self.model = model
        self.log_failures = log_failures


class Caller:
    """The event loop and the context variables of a call that may need a model."""

    __slots__ = ("context", "loop")

    context: contextvars.Context
    loop: asyncio.AbstractEventLoop | None

    def __init__(self, loop: asyncio.AbstractEventLoop | None) -> None:
        self.loop = loop
        self.context = contextvars.copy_context()


def start(function: Function, request: str, caller: Caller, reply: Reply) -> Job:
    """Starts a model. The Rust library calls this function, which must not wait."""
    job = Job(function, request, caller, reply)
    # The interpreter may exit while a model works: it does not wait for the thread of a daemon.
    threading.Thread(target=job.run, name="larder-model", daemon=True).start()
    return job


class Job:
    """A model at work on a request."""

    __slots__ = ("_canceled", "_context", "_function", "_loop", "_reply", "_request", "_task")

    def __init__(self, function: Function, request: str, caller: Caller, reply: Reply) -> None:
        self._function = function
        self._request = request
        self._loop = caller.loop
        # Two jobs of one caller cannot enter one context.
        self._context = caller.context.copy()
        self._reply = reply
        self._canceled = False
        self._task: asyncio.Task[str | Message] | None = None

    def run(self) -> None:
        """Calls the model. A coroutine continues on the event loop of the caller."""
        try:
            result = self._context.run(self._function.model, _request(self._request))
            if not inspect.isawaitable(result):
                self._done(result)
            elif self._loop is None:
                with asyncio.Runner() as runner:
                    self._loop = runner.get_loop()
                    self._done(runner.run(self._cancelable(result), context=self._context))
            else:
                coroutine = self._cancelable(result)
                try:
                    self._loop.call_soon_threadsafe(self._schedule, coroutine)
                except RuntimeError:
                    coroutine.close()
                    raise
        except BaseException as error:
            self._failed(error)

    def cancel(self) -> None:
        """Cancels a coroutine. The Rust library calls this method when nobody waits for the reply."""
        self._canceled = True
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_task)

    def _schedule(self, coroutine: Coroutine[Any, Any, str | Message]) -> None:
        task = asyncio.get_running_loop().create_task(coroutine, context=self._context)
        task.add_done_callback(self._finish)

    async def _cancelable(self, result: Awaitable[str | Message]) -> str | Message:
        self._task = asyncio.current_task()
        if self._canceled and self._task is not None:
            self._task.cancel()
        return await result

    def _cancel_task(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _finish(self, task: asyncio.Task[str | Message]) -> None:
        try:
            self._done(task.result())
        except BaseException as error:
            self._failed(error)

    def _done(self, result: object) -> None:
        self._reply.done(_message(result))

    def _failed(self, error: BaseException) -> None:
        if self._function.log_failures and not self._canceled:
            _log.warning("the model failed; the window keeps its messages", exc_info=error)
        self._reply.failed(error)


def _request(text: str) -> ModelRequest:
    request = json.loads(text)
    return ModelRequest(
        [decode_message(message) for message in request["messages"]], request["output_tokens_max"]
    )


def _message(result: object) -> str:
    if isinstance(result, str):
        result = Message.assistant(result)
    if not isinstance(result, Message):
        raise invalid("python", "model", f"returned a `{type(result).__name__}`; return a str or larder.Message")
    return encode_one(result)
