"""The toolkit for agent runtimes: windows of conversations, pipelines that shorten them, transcripts and copies.

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
from larder._copy import Copied, Difference, Digest, acopy, copy
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
from larder._transcripts import (
    Imported,
    TranscriptFormat,
    TranscriptReader,
    TranscriptReport,
    aimport_transcript,
    import_transcript,
    write_transcript,
)
from larder._window import ExplainedStep, Resized, Size, WindowExplanation, WindowMessage

__all__ = [
    "AgentContext",
    "Compacted",
    "CompactionAgent",
    "Copied",
    "Difference",
    "Digest",
    "ExplainedStep",
    "Imported",
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
    "TranscriptFormat",
    "TranscriptReader",
    "TranscriptReport",
    "Truncation",
    "WindowExplanation",
    "WindowMessage",
    "acopy",
    "aimport_transcript",
    "copy",
    "import_transcript",
    "write_transcript",
]
