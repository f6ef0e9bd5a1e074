"""Changes to conversations other than appends."""

from __future__ import annotations

from collections.abc import Iterable

from larder._errors import invalid
from larder._history_types import (
    Forked,
    Replaced,
    Ttl,
    as_forked,
    as_pair,
    as_popped,
    as_removed,
    as_replaced,
    as_taken,
    as_ttl,
    as_updated,
)
from larder._messages import Message, StoredMessage, Thread, encode, encode_one
from larder._native import Call
from larder._native import History as NativeHistory
from larder._position import Position, to_text
from larder._run import Unpicklable, run


class Edits(Unpicklable):
    """The methods of :class:`History` that remove, replace and copy messages."""

    __slots__ = ("_native", "_stores")

    def __init__(self, native: NativeHistory, stores: object) -> None:
        self._native = native
        # The stores are closed when nobody holds them.
        self._stores = stores

    def clear(self, thread: Thread | tuple[str, str], *, fence: int | None = None) -> int:
        """Removes all messages of a thread, and returns their number."""
        return self._native.clear(as_pair(thread), fence).wait()

    async def aclear(self, thread: Thread | tuple[str, str], *, fence: int | None = None) -> int:
        """As :meth:`clear`."""
        return await run(self._native.clear(as_pair(thread), fence))

    def clear_run(self, thread: Thread | tuple[str, str], run_id: str, *, fence: int | None = None) -> int:
        """Removes the messages of one run, and returns their number."""
        return self._native.clear_run(as_pair(thread), run_id, fence).wait()

    async def aclear_run(
        self, thread: Thread | tuple[str, str], run_id: str, *, fence: int | None = None
    ) -> int:
        """As :meth:`clear_run`."""
        return await run(self._native.clear_run(as_pair(thread), run_id, fence))

    def pop(
        self,
        thread: Thread | tuple[str, str],
        *,
        if_last: Position | None = None,
        idempotency_key: str | None = None,
        fence: int | None = None,
    ) -> StoredMessage | None:
        """Removes the newest message and returns it. Of concurrent calls, no two return the same message.

        :param if_last: The last position that the thread must have.
        :param idempotency_key: Repeating the call with the same key removes nothing, and returns the same message for
            10 minutes.
        :param fence: The fencing token of the writer.
        :raises Conflict: if ``if_last`` or the fence does not hold, or the key was used for another call.
        """
        return as_popped(self._remove(thread, 1, None, None, if_last, idempotency_key, fence).wait())

    async def apop(
        self,
        thread: Thread | tuple[str, str],
        *,
        if_last: Position | None = None,
        idempotency_key: str | None = None,
        fence: int | None = None,
    ) -> StoredMessage | None:
        """As :meth:`pop`."""
        return as_popped(await run(self._remove(thread, 1, None, None, if_last, idempotency_key, fence)))

    def rewind(
        self,
        thread: Thread | tuple[str, str],
        after: Position | int,
        *,
        if_last: Position | None = None,
        idempotency_key: str | None = None,
        fence: int | None = None,
    ) -> int:
        """Removes every message after a position, and returns their number.

        :param if_last: The last position that the thread must have.
        :param idempotency_key: Repeating the call with the same key removes nothing, and returns the same number.
        :param fence: The fencing token of the writer.
        :raises Conflict: as :meth:`pop`, or if the position is beyond the last one of the thread.
        """
        at = Position(after)
        return as_removed(self._remove(thread, None, at, None, if_last, idempotency_key, fence).wait())

    async def arewind(
        self,
        thread: Thread | tuple[str, str],
        after: Position | int,
        *,
        if_last: Position | None = None,
        idempotency_key: str | None = None,
        fence: int | None = None,
    ) -> int:
        """As :meth:`rewind`."""
        at = Position(after)
        return as_removed(await run(self._remove(thread, None, at, None, if_last, idempotency_key, fence)))

    def remove(
        self,
        thread: Thread | tuple[str, str],
        positions: Iterable[Position],
        *,
        if_last: Position | None = None,
        idempotency_key: str | None = None,
        fence: int | None = None,
    ) -> list[StoredMessage]:
        """Removes the messages at up to 1,000 positions, and returns those that existed.

        :param if_last: The last position that the thread must have.
        :param idempotency_key: Repeating the call with the same key removes nothing, and returns no message.
        :param fence: The fencing token of the writer.
        :raises Conflict: as :meth:`pop`.
        """
        return as_taken(self._remove(thread, None, None, positions, if_last, idempotency_key, fence).wait())

    async def aremove(
        self,
        thread: Thread | tuple[str, str],
        positions: Iterable[Position],
        *,
        if_last: Position | None = None,
        idempotency_key: str | None = None,
        fence: int | None = None,
    ) -> list[StoredMessage]:
        """As :meth:`remove`."""
        return as_taken(
            await run(self._remove(thread, None, None, positions, if_last, idempotency_key, fence))
        )

    def _remove(
        self,
        thread: Thread | tuple[str, str],
        newest: int | None,
        after: Position | None,
        positions: Iterable[Position] | None,
        if_last: Position | None,
        key: str | None,
        fence: int | None,
    ) -> Call[str]:
        numbers = None if positions is None else [Position(position).text for position in positions]
        last = to_text(if_last)
        return self._native.remove(as_pair(thread), newest, to_text(after), numbers, last, key, fence)

    def update(
        self,
        thread: Thread | tuple[str, str],
        read: StoredMessage,
        message: Message,
        *,
        if_last: Position | None = None,
        idempotency_key: str | None = None,
        fence: int | None = None,
    ) -> StoredMessage:
        """Replaces the content of a message that you read, and returns it with its new revision.

        The message keeps its position.

        :param if_last: The last position that the thread must have.
        :param idempotency_key: Repeating the call with the same key and message changes nothing, and returns the same.
        :param fence: The fencing token of the writer.
        :raises Conflict: if the message has another revision, or as :meth:`pop`.
        :raises NotFound: if the message was removed.
        """
        call = self._update(thread, read, message, if_last, idempotency_key, fence)
        return StoredMessage(read.seq, message, as_updated(call.wait()).revision)

    async def aupdate(
        self,
        thread: Thread | tuple[str, str],
        read: StoredMessage,
        message: Message,
        *,
        if_last: Position | None = None,
        idempotency_key: str | None = None,
        fence: int | None = None,
    ) -> StoredMessage:
        """As :meth:`update`."""
        call = self._update(thread, read, message, if_last, idempotency_key, fence)
        return StoredMessage(read.seq, message, as_updated(await run(call)).revision)

    def _update(
        self,
        thread: Thread | tuple[str, str],
        read: StoredMessage,
        message: Message,
        if_last: Position | None,
        key: str | None,
        fence: int | None,
    ) -> Call[str]:
        if not isinstance(read, StoredMessage):
            raise invalid("python", "read", f"is a `{type(read).__name__}`; pass a message that you read")
        at = (Position(read.seq).text, Position(read.revision).text)
        text = encode_one(message)
        return self._native.update(as_pair(thread), *at, text, to_text(if_last), key, fence)

    def replace(
        self,
        thread: Thread | tuple[str, str],
        up_to: Position,
        messages: Message | Iterable[Message],
        *,
        seen: Position | None = None,
        fence: int | None = None,
    ) -> Replaced:
        """Replaces every message up to a position by other messages.

        :param seen: The last position of the thread that the caller read; ``up_to`` if it is ``None``.
        :raises Conflict: if the thread changed since.
        """
        text = encode(messages)
        call = self._native.replace(as_pair(thread), Position(up_to).text, to_text(seen), text, fence)
        return as_replaced(call.wait())

    async def areplace(
        self,
        thread: Thread | tuple[str, str],
        up_to: Position,
        messages: Message | Iterable[Message],
        *,
        seen: Position | None = None,
        fence: int | None = None,
    ) -> Replaced:
        """As :meth:`replace`."""
        text = encode(messages)
        call = self._native.replace(as_pair(thread), Position(up_to).text, to_text(seen), text, fence)
        return as_replaced(await run(call))

    def fork(
        self,
        source: Thread | tuple[str, str],
        target: Thread | tuple[str, str],
        *,
        up_to: Position | None = None,
        fence: int | None = None,
    ) -> Forked:
        """Copies the messages of a thread, all or those up to a position, into a thread without messages.

        :param fence: The fencing token of the writer of the target.
        """
        call = self._native.fork(as_pair(source), as_pair(target), to_text(up_to), fence)
        return as_forked(call.wait())

    async def afork(
        self,
        source: Thread | tuple[str, str],
        target: Thread | tuple[str, str],
        *,
        up_to: Position | None = None,
        fence: int | None = None,
    ) -> Forked:
        """As :meth:`fork`."""
        call = self._native.fork(as_pair(source), as_pair(target), to_text(up_to), fence)
        return as_forked(await run(call))

    def set_ttl(self, thread: Thread | tuple[str, str], ttl: Ttl | None, *, fence: int | None = None) -> None:
        """Sets or removes the time to live of a thread."""
        self._native.set_ttl(as_pair(thread), as_ttl(ttl), fence).wait()

    async def aset_ttl(
        self, thread: Thread | tuple[str, str], ttl: Ttl | None, *, fence: int | None = None
    ) -> None:
        """As :meth:`set_ttl`."""
        await run(self._native.set_ttl(as_pair(thread), as_ttl(ttl), fence))
