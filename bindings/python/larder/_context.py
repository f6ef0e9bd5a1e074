"""The conversations of an agent, with windows for its model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from larder import _native
from larder._callbacks import Caller, Function, Model
from larder._errors import invalid
from larder._history_types import Appended, MessageFilter, Ttl, as_appended, as_filter, as_pair, as_ttl
from larder._messages import Author, Message, StoredMessage, Thread, encode, to_json
from larder._position import Position, to_text
from larder._run import Unpicklable, run
from larder._stores import Stores
from larder._strategies import Strategy, SummarySettings, as_strategies, as_summaries
from larder._window import WindowExplanation, WindowMessage, as_explanation, as_window, encode_window


@dataclass(frozen=True, slots=True)
class LimitedWindow:
    """The part of a session that an agent sees. The filter applies first, then the limits."""

    read: bool = True
    """``False`` turns reads off."""
    write: bool = True
    """``False`` turns writes off."""
    read_last: int | None = None
    """The number of newest messages to read."""
    max_bytes: int | None = 156 * 1024
    """The total size of the messages to read."""
    filter: MessageFilter | None = None
    """Selects the messages of some authors."""


class AgentContext(Unpicklable):
    """The conversations of one agent: appends messages, and makes the window that the model reads.

    A window is a view. Making one reads no further back than its strategies need, and changes no stored message.

    >>> import larder
    >>> from larder.toolkit import AgentContext, SlidingWindow, ToolResultTruncation
    >>> with larder.open("memory:") as stores:
    ...     context = AgentContext(stores, pipeline=[ToolResultTruncation(), SlidingWindow(max_messages=2)])
    ...     for text in ("one", "two", "three"):
    ...         _ = context.append("session-1", larder.Message.user(text))
    ...     [message.text for message in context.window("session-1")]
    ...     print(context.explain_window("session-1"))
    ['two', 'three']
    window: 2 messages, 8 bytes, 2 tokens
      read: 2 messages in 1 page (the newest 2 messages)
      tool_result_truncation: 2 messages, 8 bytes, 2 tokens -> 2 messages, 8 bytes, 2 tokens
        nothing changed
      sliding_window: 2 messages, 8 bytes, 2 tokens -> 2 messages, 8 bytes, 2 tokens
        nothing changed
    <BLANKLINE>

    A strategy that summarizes needs a model, which may be a coroutine function:

    >>> from larder.toolkit import Summarization
    >>> def model(request):
    ...     return "They count."
    >>> with larder.open("memory:") as stores:
    ...     strategy = Summarization(recent_token_budget=20, min_old_tokens=20)
    ...     context = AgentContext(stores, pipeline=[strategy], model=model)
    ...     numbers = [larder.Message.user(f"I count, and now I am at {n}.") for n in range(20)]
    ...     _ = context.append("session-1", numbers)
    ...     [message.origin for message in context.window("session-1")]
    ['summary', 'stored']
    """

    __slots__ = ("_native", "_stores")

    def __init__(
        self,
        stores: Stores,
        *,
        agent: str = "default",
        pipeline: Sequence[Strategy] | None = None,
        model: Model | None = None,
        summaries: SummarySettings | None = None,
        retention: Literal["permanent", "run", "none"] = "permanent",
        memory: LimitedWindow | None = None,
        author: Author | None = None,
        tokens_of: str | None = None,
        scan_messages_max: int | None = None,
    ) -> None:
        """Creates a context on the conversations of open stores.

        :param agent: The agent, whose name is the first part of each thread.
        :param pipeline: The strategies that shorten the window, in order. The default is a window of the newest
            100 messages; an empty list keeps everything.
        :param model: The model that writes summaries. They are kept in the key-value store.
        :param summaries: How summaries are made.
        :param retention: What remains of a run's messages after its end: all, none because :meth:`end_run`
            removes them, or none because they are never written.
        :param memory: The part of a session that the agent sees; everything by default.
        :param author: The author of messages that have none, for sessions that agents share.
        :param tokens_of: The name of the model whose tokens are counted; an estimate by default.
        :param scan_messages_max: The number of messages that a filtered window reads at most.
        :raises InvalidInput: if a setting is wrong, with its path in the message.
        """
        settings = _settings(pipeline, summaries, tokens_of)
        settings["retention"] = retention.upper() if isinstance(retention, str) else retention
        if memory is not None:
            settings["memory"] = _memory(memory)
        if author is not None:
            settings["author"] = {"agent": author.agent, "role": author.role}
        if scan_messages_max is not None:
            settings["scan_messages_max"] = scan_messages_max
        function = _function(model, summaries)
        native = _native_of(stores)
        self._native = native.context(agent, to_json("config", settings), function)
        # The stores stay open as long as the context is used.
        self._stores = stores

    def append(
        self,
        session: str,
        messages: Message | Iterable[Message],
        *,
        idempotency_key: str | None = None,
        if_last: Position | None = None,
        ttl: Ttl | None = None,
        fence: int | None = None,
    ) -> Appended | None:
        """Appends up to 1,000 messages, at most 16 MiB, all or none, and counts their tokens.

        Returns ``None`` if the retention or the memory forbids writes. The options are those of
        :meth:`larder.History.append`.
        """
        call = self._native.append(
            session, encode(messages), idempotency_key, to_text(if_last), as_ttl(ttl), fence
        )
        return _appended(call.wait())

    async def aappend(
        self,
        session: str,
        messages: Message | Iterable[Message],
        *,
        idempotency_key: str | None = None,
        if_last: Position | None = None,
        ttl: Ttl | None = None,
        fence: int | None = None,
    ) -> Appended | None:
        """As :meth:`append`."""
        call = self._native.append(
            session, encode(messages), idempotency_key, to_text(if_last), as_ttl(ttl), fence
        )
        return _appended(await run(call))

    def window(self, session: str, new: Message | Iterable[Message] = ()) -> list[WindowMessage]:
        """Returns the window of a session, oldest message first.

        :param new: Messages at the end that are not stored.
        """
        return as_window(self._native.window(session, encode(new), Caller(None)).wait())

    async def awindow(self, session: str, new: Message | Iterable[Message] = ()) -> list[WindowMessage]:
        """As :meth:`window`."""
        return as_window(await run(self._native.window(session, encode(new), _caller())))

    def explain_window(self, session: str, new: Message | Iterable[Message] = ()) -> WindowExplanation:
        """Returns the window that :meth:`window` would return now, and the effect of each step.

        A strategy that summarizes asks its model. The next window does not ask the same question again.
        """
        return as_explanation(self._native.explain_window(session, encode(new), Caller(None)).wait())

    async def aexplain_window(
        self, session: str, new: Message | Iterable[Message] = ()
    ) -> WindowExplanation:
        """As :meth:`explain_window`."""
        return as_explanation(await run(self._native.explain_window(session, encode(new), _caller())))

    def end_run(self, session: str, run_id: str) -> int:
        """Ends a run, and returns the number of removed messages: all of the run with the retention ``run``."""
        return int(self._native.end_run(session, run_id).wait())

    async def aend_run(self, session: str, run_id: str) -> int:
        """As :meth:`end_run`."""
        return int(await run(self._native.end_run(session, run_id)))

    def clear(self, session: str) -> int:
        """Clears a session with its summary, and returns the number of removed messages."""
        return int(self._native.clear(session).wait())

    async def aclear(self, session: str) -> int:
        """As :meth:`clear`."""
        return int(await run(self._native.clear(session)))


class Pipeline(Unpicklable):
    """A sequence of strategies: each receives the result of the previous one.

    >>> import larder
    >>> from larder.toolkit import Pipeline, SlidingWindow
    >>> messages = [larder.Message.user(text) for text in ("one", "two", "three")]
    >>> [message.text for message in Pipeline([SlidingWindow(max_messages=2)]).compact(messages)]
    ['two', 'three']
    """

    __slots__ = ("_native", "_stores")

    def __init__(
        self,
        strategies: Sequence[Strategy],
        *,
        stores: Stores | None = None,
        model: Model | None = None,
        summaries: SummarySettings | None = None,
        tokens_of: str | None = None,
    ) -> None:
        """Creates a pipeline.

        :param strategies: The strategies, in order; an empty list keeps everything.
        :param stores: The stores of summaries, for a strategy that summarizes.
        :param model: The model that writes summaries.
        :param summaries: How summaries are made.
        :param tokens_of: The name of the model whose tokens are counted; an estimate by default.
        """
        settings = to_json("config", _settings(strategies, summaries, tokens_of))
        function = _function(model, summaries)
        store = None if stores is None else _native_of(stores)
        self._native = _native.pipeline(settings, function, store)
        self._stores = stores

    def compact(
        self,
        messages: Iterable[Message | StoredMessage | WindowMessage],
        thread: Thread | tuple[str, str] | None = None,
    ) -> list[WindowMessage]:
        """Returns the messages that remain.

        :param messages: Messages, stored messages, or those of an earlier window, oldest first.
        :param thread: The thread of the stored messages, for a strategy that summarizes it. Pass every message
            since its last summary.
        """
        pair = None if thread is None else as_pair(thread)
        return as_window(self._native.compact(encode_window(messages), pair, Caller(None)).wait())

    async def acompact(
        self,
        messages: Iterable[Message | StoredMessage | WindowMessage],
        thread: Thread | tuple[str, str] | None = None,
    ) -> list[WindowMessage]:
        """As :meth:`compact`."""
        pair = None if thread is None else as_pair(thread)
        return as_window(await run(self._native.compact(encode_window(messages), pair, _caller())))


@dataclass(frozen=True, slots=True)
class Compacted:
    """The result of a compaction."""

    removed: int
    """The number of removed messages."""
    up_to: Position
    """The position of the last removed message, which the new answer has now."""


class CompactionAgent(Unpicklable):
    """Replaces the old part of a stored conversation with one question and one answer.

    The stored conversation itself becomes shorter, for every reader. Messages that arrive during the model call
    stay. If another writer clears or rewrites the thread during the call, the compaction changes nothing.

    >>> import larder
    >>> from larder.toolkit import CompactionAgent
    >>> def model(request):
    ...     return '{"userMessage": "Which trip?", "aiMessage": "Oslo, by train."}'
    >>> with larder.open("memory:") as stores:
    ...     thread = larder.Thread("assistant", "session-1")
    ...     for _ in range(10):
    ...         talk = [larder.Message.user("And then?"), larder.Message.assistant("Then we go to Oslo.")]
    ...         _ = stores.history.append(thread, talk)
    ...     CompactionAgent(stores, model, bytes_threshold=200).compact(thread).removed
    ...     [stored.text for stored in stores.history.tail(thread, 10)]
    20
    ['Which trip?', 'Oslo, by train.']
    """

    __slots__ = ("_native", "_stores")

    def __init__(
        self,
        stores: Stores,
        model: Model,
        *,
        bytes_threshold: int = 100_000,
        input_bytes_max: int = 400_000,
        timeout_ms: int = 120_000,
        output_tokens_max: int = 1_000,
    ) -> None:
        """Creates an agent that compacts the threads of open stores.

        :param model: The model. It returns the JSON that its instructions ask for.
        :param bytes_threshold: The size of a thread above which it is compacted.
        :param input_bytes_max: The largest part of a conversation to compact at a time.
        :param timeout_ms: The time limit of the model call.
        :param output_tokens_max: The largest number of tokens in the output of the model.
        """
        settings = {
            "bytes_threshold": bytes_threshold,
            "input_bytes_max": input_bytes_max,
            "timeout_ms": timeout_ms,
            "output_tokens_max": output_tokens_max,
        }
        function = Function(model, log_failures=False)
        native = _native_of(stores)
        self._native = native.compaction_agent(to_json("config", settings), function)
        self._stores = stores

    def compact(self, thread: Thread | tuple[str, str]) -> Compacted | None:
        """Compacts a thread if it is over the threshold; returns ``None`` if it is not.

        :raises Conflict: if another writer cleared or rewrote the thread during the call.
        :raises Unexpected: if the output of the model is not the requested JSON.
        """
        return _compacted(self._native.compact(as_pair(thread), Caller(None)).wait())

    async def acompact(self, thread: Thread | tuple[str, str]) -> Compacted | None:
        """As :meth:`compact`."""
        return _compacted(await run(self._native.compact(as_pair(thread), _caller())))


def _caller() -> Caller:
    return Caller(asyncio.get_running_loop())


def _native_of(stores: Stores) -> _native.Stores:
    if not isinstance(stores, Stores):
        raise invalid("python", "stores", f"is a `{type(stores).__name__}`; pass open stores")
    return stores._native


def _function(model: Model | None, summaries: SummarySettings | None) -> Function | None:
    if model is None:
        return None
    return Function(model, log_failures=summaries is None or summaries.on_failure == "keep")


def _settings(
    pipeline: Sequence[Strategy] | None, summaries: SummarySettings | None, tokens_of: str | None
) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    if pipeline is not None:
        settings["pipeline"] = as_strategies(pipeline)
    if summaries is not None:
        settings["summaries"] = as_summaries(summaries)
    if tokens_of is not None:
        settings["tokens_of"] = tokens_of
    return settings


def _memory(memory: LimitedWindow) -> dict[str, Any]:
    document: dict[str, Any] = {
        "read": memory.read,
        "write": memory.write,
        "read_last": memory.read_last,
        "max_bytes": memory.max_bytes,
    }
    terms = as_filter(memory.filter)
    if terms is not None:
        document["filter"] = json.loads(terms)
    return document


def _appended(text: str) -> Appended | None:
    return None if text == "null" else as_appended(text)


def _compacted(text: str) -> Compacted | None:
    compacted = json.loads(text)
    return None if compacted is None else Compacted(compacted[0], Position(compacted[1]))
