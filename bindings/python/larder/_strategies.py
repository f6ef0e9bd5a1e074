"""The strategies of pipelines, and their settings. What is ``None`` has the default of the Rust library."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from larder._errors import invalid
from larder._time import Duration, milliseconds


@dataclass(frozen=True, slots=True)
class SlidingWindow:
    """Keeps the newest messages."""

    type: ClassVar[str] = "sliding_window"

    max_messages: int | None = None
    """The number of messages to keep; -1 keeps all. The default is 100."""


@dataclass(frozen=True, slots=True)
class ToolResultTruncation:
    """Cuts long results of tools."""

    type: ClassVar[str] = "tool_result_truncation"

    max_chars: int | None = None
    """The number of characters of a result to keep. The default is 500."""


@dataclass(frozen=True, slots=True)
class SelectiveToolCall:
    """Drops the older calls of tools, with their results."""

    type: ClassVar[str] = "selective_tool_call"

    keep_recent_groups: int | None = None
    """The number of newest groups of calls to keep. The default is 5."""


@dataclass(frozen=True, slots=True)
class Truncation:
    """Keeps the newest messages up to one or two ceilings. Set at least one."""

    type: ClassVar[str] = "truncation"

    max_messages: int | None = None
    """The number of messages to keep."""
    max_chars: int | None = None
    """The number of characters that the messages may have in total."""


@dataclass(frozen=True, slots=True)
class Summarization:
    """Keeps the newest messages up to a token budget, and replaces the older ones with a summary of a model."""

    type: ClassVar[str] = "summarization"

    recent_token_budget: int | None = None
    """The token budget of the newest messages. The default is 4,000."""
    min_old_tokens: int | None = None
    """The smallest number of tokens in older messages for which a summary is made. The default is 1,000."""
    instructions: str | None = None
    """Additional instructions for the summary."""


@dataclass(frozen=True, slots=True)
class TokenBudgetComposed:
    """Runs strategies, one after the other, until the window fits a token budget."""

    type: ClassVar[str] = "token_budget_composed"

    token_budget: int | None = None
    """The token budget. A window within it stays unchanged."""
    model: str | None = None
    """Instead of a budget: the name of the model whose input size determines it."""
    trigger_ratio: float | None = None
    """The part of the model's input size to use. The default is 0.80."""
    strategies: Sequence[Strategy] = ()
    """The strategies, in order."""


Strategy = (
    SlidingWindow
    | ToolResultTruncation
    | SelectiveToolCall
    | Truncation
    | Summarization
    | TokenBudgetComposed
    | Mapping[str, Any]
)
"""A strategy: one of these classes, or the JSON document of one, such as ``{"type": "sliding_window"}``."""


@dataclass(frozen=True, slots=True)
class SummarySettings:
    """How summaries are made."""

    timeout: Duration | None = None
    """The time limit of one model call, in seconds. The default is 120 s."""
    wait: Duration | None = None
    """The longest wait for another caller that is summarizing the same thread, in seconds. The default is 10 s."""
    input_tokens_max: int | None = None
    """The largest number of conversation tokens in one model call. The default is 60,000."""
    summary_tokens_max: int | None = None
    """The largest number of tokens in a summary. The default is 2,000."""
    on_failure: Literal["keep", "fail"] = "keep"
    """``"keep"`` leaves the window unchanged if a summary fails, and logs the exception of the model in the logger
    ``larder.toolkit``. ``"fail"`` raises it."""


def as_strategies(strategies: Sequence[Strategy]) -> list[dict[str, Any]]:
    """Returns the JSON documents of strategies."""
    if isinstance(strategies, str | Mapping) or not isinstance(strategies, Sequence):
        kind = type(strategies).__name__
        raise invalid("python", "pipeline", f"is a `{kind}`; pass a list of strategies")
    return [_strategy(strategy) for strategy in strategies]


def _strategy(strategy: Strategy) -> dict[str, Any]:
    if isinstance(strategy, Mapping):
        return dict(strategy)
    if not hasattr(strategy, "type") or not hasattr(strategy, "__dataclass_fields__"):
        raise invalid("python", "pipeline", f"has a `{type(strategy).__name__}`; pass a strategy")
    document: dict[str, Any] = {"type": strategy.type}
    for field in fields(strategy):
        value = getattr(strategy, field.name)
        if field.name == "strategies":
            value = as_strategies(value)
        if value is not None:
            document[field.name] = value
    return document


def as_summaries(settings: SummarySettings) -> dict[str, Any]:
    """Returns the JSON document of the settings of summaries."""
    document = {
        "timeout_ms": milliseconds("timeout", settings.timeout),
        "wait_ms": milliseconds("wait", settings.wait),
        "input_tokens_max": settings.input_tokens_max,
        "summary_tokens_max": settings.summary_tokens_max,
        "on_failure": settings.on_failure,
    }
    return {name: value for name, value in document.items() if value is not None}
