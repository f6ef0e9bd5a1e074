"""The toolkit for agent runtimes: windows of conversations, and pipelines that shorten them.

>>> import larder
>>> from larder.toolkit import AgentContext, SlidingWindow
>>> with larder.open("memory:") as stores:
...     context = AgentContext(stores, pipeline=[SlidingWindow(max_messages=40)])
...     _ = context.append("session-1", larder.Message.user("What is the weather in Oslo?"))
...     [message.text for message in context.window("session-1")]
['What is the weather in Oslo?']
"""

from larder._callbacks import Model, ModelRequest
from larder._context import AgentContext, Compacted, CompactionAgent, LimitedWindow, Pipeline
from larder._strategies import (
    SelectiveToolCall,
    SlidingWindow,
    Strategy,
    Summarization,
    SummarySettings,
    TokenBudgetComposed,
    ToolResultTruncation,
    Truncation,
)
from larder._window import ExplainedStep, Resized, Size, WindowExplanation, WindowMessage

__all__ = [
    "AgentContext",
    "Compacted",
    "CompactionAgent",
    "ExplainedStep",
    "LimitedWindow",
    "Model",
    "ModelRequest",
    "Pipeline",
    "Resized",
    "SelectiveToolCall",
    "Size",
    "SlidingWindow",
    "Strategy",
    "Summarization",
    "SummarySettings",
    "TokenBudgetComposed",
    "ToolResultTruncation",
    "Truncation",
    "WindowExplanation",
    "WindowMessage",
]
