"""Transcripts: conversations of other programs as text."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Literal, NamedTuple

from larder import _native
from larder._errors import invalid
from larder._history_types import as_pair
from larder._messages import Message, Thread, decode_message, encode
from larder._native import Call
from larder._position import Position
from larder._run import Unpicklable, run
from larder._stores import Stores

TranscriptFormat = Literal[
    "openai_chat",
    "openai_responses",
    "anthropic",
    "gemini",
    "agent_log",
    "chatgpt",
    "claude",
    "sharegpt",
]
"""A format of a transcript. Those of ChatGPT, Claude and ShareGPT are experimental."""


class TranscriptReport(NamedTuple):
    """The counts of changes and omissions."""

    paired_results: int
    """Results without a call's id, which were paired with an open call before them."""
    replaced_surrogates: int
    """Halves of surrogate pairs that were replaced with U+FFFD."""
    log_entries: int
    """Lines of a log that hold no message."""
    document_fields: int
    """Fields of a document other than its list of messages."""
    kept_parts: int
    """Parts that a message has no field for, such as images. They are kept in the metadata."""
    skipped_messages: int
    """Messages of an export that are in another branch of the conversation, or empty."""
    conversations: int
    """The conversations of an export, and the documents with a list of messages."""
    skipped_conversations: int
    """Conversations that were not chosen."""
    chosen_conversation: int
    """The number of the conversation that was read, from 1; 0 if there was none."""


class Imported(NamedTuple):
    """The result of an import."""

    messages: int
    """The number of messages in the transcript."""
    added: int
    """The number of messages that this import added. The others were imported earlier."""
    last: Position
    """The last position of the thread."""
    report: TranscriptReport


class TranscriptReader(Unpicklable):
    """Reads the messages of a transcript: JSON values, one per line or in one list.

    It recognizes the messages of OpenAI's chat and Responses interfaces, of Anthropic and Gemini, the logs of
    coding agents, and exports of ChatGPT, Claude and ShareGPT. Data without a field in a message is kept in its
    metadata, so :func:`write_transcript` writes it again.

    >>> from larder.toolkit import TranscriptReader
    >>> reader = TranscriptReader()
    >>> call = '{"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}'
    >>> reader.read(call)[0].tool_calls[0].name
    'f'
    >>> reader.report.kept_parts
    0
    """

    __slots__ = ("_native",)

    def __init__(
        self,
        *,
        format: TranscriptFormat | None = None,
        conversation: str | int | None = None,
        lossy: bool = False,
    ) -> None:
        """Creates a reader.

        :param format: Refuse any other format. By default, the format of each value is recognized.
        :param conversation: The conversation to read from a text with several: its number from 1, or its id.
        :param lossy: Replace halves of surrogate pairs, which are not characters, with U+FFFD.
        """
        self._native = _native.Transcript(_format(format), _conversation(conversation), lossy)

    def read(self, text: str | bytes) -> list[Message]:
        """Returns the messages of a text. The reader remembers the calls of earlier texts.

        :raises InvalidInput: for a value that is no message. ``context["value"]`` is its number, from 1.
        """
        return [decode_message(message) for message in json.loads(self._native.read(_text(text)[0]))]

    @property
    def report(self) -> TranscriptReport:
        """The counts of changes and omissions so far."""
        return TranscriptReport(**self._native.report())


def write_transcript(messages: Message | Iterable[Message]) -> list[str]:
    """Returns messages as lines of JSON in the common format of chat models.

    A message that was read in another format is written as it was.

    >>> import larder
    >>> from larder.toolkit import write_transcript
    >>> message = larder.Message.user("Hello")
    >>> write_transcript(message)[0].startswith('{"role":"user","content":"Hello"')
    True
    """
    return _native.transcript_lines(encode(messages))


def import_transcript(
    stores: Stores,
    thread: Thread | tuple[str, str],
    text: str | bytes,
    *,
    format: TranscriptFormat | None = None,
    conversation: str | int | None = None,
    lossy: bool = False,
) -> Imported:
    """Appends a transcript to a thread. The whole text is checked before the first write.

    Importing the same text again adds nothing, also after an interruption, and if the command ``larder import``
    has imported the file. The other parameters are those of :class:`TranscriptReader`.

    >>> import larder
    >>> from larder.toolkit import import_transcript
    >>> lines = '{"role": "user", "content": "Hello"}'
    >>> with larder.open("memory:") as stores:
    ...     thread = larder.Thread("assistant", "session-1")
    ...     import_transcript(stores, thread, lines).added
    ...     import_transcript(stores, thread, lines).added
    1
    0
    """
    return _imported(_import(stores, thread, text, format, conversation, lossy).wait())


async def aimport_transcript(
    stores: Stores,
    thread: Thread | tuple[str, str],
    text: str | bytes,
    *,
    format: TranscriptFormat | None = None,
    conversation: str | int | None = None,
    lossy: bool = False,
) -> Imported:
    """As :func:`import_transcript`."""
    return _imported(await run(_import(stores, thread, text, format, conversation, lossy)))


def _import(
    stores: Stores,
    thread: Thread | tuple[str, str],
    text: str | bytes,
    format: TranscriptFormat | None,
    conversation: str | int | None,
    lossy: bool,
) -> Call[str]:
    if not isinstance(stores, Stores):
        raise invalid("python", "stores", f"is a `{type(stores).__name__}`; pass open stores")
    decoded, digest = _text(text)
    chosen = _conversation(conversation)
    native = stores._native.history()
    return native.import_transcript(as_pair(thread), decoded, digest, _format(format), chosen, lossy)


def _text(text: str | bytes) -> tuple[str, str]:
    """Returns a text, and its SHA-256."""
    if not isinstance(text, str | bytes):
        raise invalid("python", "text", f"is a `{type(text).__name__}`; pass a str or bytes")
    try:
        encoded = text if isinstance(text, bytes) else text.encode()
        decoded = text if isinstance(text, str) else text.decode()
    except UnicodeError:
        raise invalid("python", "text", "is not UTF-8; convert it") from None
    return decoded, hashlib.sha256(encoded).hexdigest()


def _format(format: str | None) -> str | None:
    if format is not None and not isinstance(format, str):
        raise invalid("python", "format", f"is a `{type(format).__name__}`; pass the name of a format")
    return format


def _conversation(conversation: str | int | None) -> str | None:
    if conversation is None:
        return None
    if isinstance(conversation, bool) or not isinstance(conversation, str | int):
        kind = type(conversation).__name__
        raise invalid("python", "conversation", f"is a `{kind}`; pass a number or an id")
    return str(conversation)


def _imported(text: str) -> Imported:
    imported = json.loads(text)
    report = TranscriptReport(**dict(imported["report"]))
    return Imported(imported["messages"], imported["added"], Position(imported["last"]), report)
