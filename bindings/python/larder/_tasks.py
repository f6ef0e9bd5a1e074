"""Task boards."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, NamedTuple

from larder._errors import invalid
from larder._messages import to_json
from larder._native import Tasks as NativeTasks
from larder._position import Position, to_text
from larder._run import Plan, Unpicklable, adrive, drive, run
from larder._time import Duration, from_text, milliseconds

Status = Literal["planned", "in_progress", "blocked", "succeeded", "failed", "abandoned"]
"""The state of a task."""

_PAGE = 10_000


class BoardId(NamedTuple):
    """A board: that of one agent in one conversation."""

    conversation: str
    agent: str


@dataclass(frozen=True, slots=True)
class NewTask:
    """A task to add."""

    id: str
    title: str
    description: str | None = None
    retries_max: int | None = None
    """The number of retries; 3 if it is ``None``."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Lease(NamedTuple):
    """The lease of a claimed task."""

    worker: str
    token: Position
    """The fencing token: greater than those of all earlier claims."""
    expires_at: datetime


class Task(NamedTuple):
    """A task of a board."""

    id: str
    title: str
    description: str | None
    status: Status
    position: Position
    revision: Position
    retries: int
    retries_max: int
    result: str | None
    lease: Lease | None
    metadata: dict[str, Any]


class Claim(NamedTuple):
    """A task that a worker claimed."""

    task: Task
    token: Position


class Board(NamedTuple):
    """A board."""

    id: BoardId
    label: str | None
    parent: str | None
    tasks: dict[Status, int]
    """The number of tasks in each state."""


class Tasks(Unpicklable):
    """Task boards with claims, leases and retries. A board is a :class:`BoardId` or a tuple of two names.

    >>> import larder
    >>> with larder.open("memory:") as stores:
    ...     board = larder.BoardId("conversation-1", "assistant")
    ...     _ = stores.tasks.create_board(board, [larder.NewTask("t1", "Book the train")])
    ...     claim = stores.tasks.claim(board, "worker-1", lease=30)
    ...     stores.tasks.update(board, "t1", "succeeded", token=claim.token, result="booked").status
    'succeeded'
    """

    __slots__ = ("_native", "_stores")

    def __init__(self, native: NativeTasks, stores: object) -> None:
        self._native = native
        # The stores are closed when nobody holds them.
        self._stores = stores

    def create_board(
        self,
        board: BoardId | tuple[str, str],
        tasks: Iterable[NewTask] = (),
        *,
        label: str | None = None,
        parent: str | None = None,
    ) -> Board:
        """Creates a board with up to 1,000 tasks.

        :param parent: The agent that gave the tasks.
        :raises AlreadyExists: if the board exists.
        """
        return _board(self._native.create_board(_pair(board), label, parent, _encode(tasks)).wait())

    async def acreate_board(
        self,
        board: BoardId | tuple[str, str],
        tasks: Iterable[NewTask] = (),
        *,
        label: str | None = None,
        parent: str | None = None,
    ) -> Board:
        """As :meth:`create_board`."""
        return _board(await run(self._native.create_board(_pair(board), label, parent, _encode(tasks))))

    def add(self, board: BoardId | tuple[str, str], tasks: NewTask | Iterable[NewTask]) -> list[Task]:
        """Adds up to 1,000 tasks, all or none."""
        return _tasks(self._native.add(_pair(board), _encode(tasks)).wait())

    async def aadd(self, board: BoardId | tuple[str, str], tasks: NewTask | Iterable[NewTask]) -> list[Task]:
        """As :meth:`add`."""
        return _tasks(await run(self._native.add(_pair(board), _encode(tasks))))

    def board(self, board: BoardId | tuple[str, str]) -> Board | None:
        """Returns a board with the numbers of its tasks; ``None`` if it does not exist."""
        text = self._native.board(_pair(board)).wait()
        return None if text == "null" else _board(text)

    async def aboard(self, board: BoardId | tuple[str, str]) -> Board | None:
        """As :meth:`board`."""
        text = await run(self._native.board(_pair(board)))
        return None if text == "null" else _board(text)

    def get(self, board: BoardId | tuple[str, str], task: str) -> Task | None:
        """Returns a task; ``None`` if it does not exist."""
        return _found(self._native.get(_pair(board), task).wait())

    async def aget(self, board: BoardId | tuple[str, str], task: str) -> Task | None:
        """As :meth:`get`."""
        return _found(await run(self._native.get(_pair(board), task)))

    def tasks(self, board: BoardId | tuple[str, str], statuses: Iterable[Status] = ()) -> list[Task]:
        """Lists the tasks of a board in their order, or those in some states."""
        return drive(self._list(board, list(statuses)))

    async def atasks(self, board: BoardId | tuple[str, str], statuses: Iterable[Status] = ()) -> list[Task]:
        """As :meth:`tasks`."""
        return await adrive(self._list(board, list(statuses)))

    def _list(self, board: BoardId | tuple[str, str], statuses: list[Status]) -> Plan[list[Task]]:
        found: list[Task] = []
        after: str | None = None
        while True:
            page = json.loads((yield self._native.tasks(_pair(board), statuses, after, _PAGE)))
            found += map(_task, page["items"])
            if page["next"] is None:
                return found
            after = Position(page["next"]).text

    def boards(self, conversation: str | None = None) -> list[Board]:
        """Lists all boards, or those of a conversation."""
        return drive(self._boards(conversation))

    async def aboards(self, conversation: str | None = None) -> list[Board]:
        """As :meth:`boards`."""
        return await adrive(self._boards(conversation))

    def _boards(self, conversation: str | None) -> Plan[list[Board]]:
        found: list[Board] = []
        after: tuple[str, str] | None = None
        while True:
            page = json.loads((yield self._native.boards(conversation, after, _PAGE)))
            found += map(_board_of, page["items"])
            if page["next"] is None:
                return found
            after = page["next"]["conversation"], page["next"]["agent"]

    def claim(self, board: BoardId | tuple[str, str], worker: str, *, lease: Duration) -> Claim | None:
        """Claims the first planned task, or one whose lease expired; ``None`` if no task is free.

        :param lease: The time in seconds after which another worker may claim the task.
        """
        return _claim(self._native.claim(_pair(board), worker, milliseconds("lease", lease) or 0).wait())

    async def aclaim(self, board: BoardId | tuple[str, str], worker: str, *, lease: Duration) -> Claim | None:
        """As :meth:`claim`."""
        return _claim(await run(self._native.claim(_pair(board), worker, milliseconds("lease", lease) or 0)))

    def renew(
        self, board: BoardId | tuple[str, str], task: str, token: Position, *, lease: Duration
    ) -> Lease:
        """Extends the lease of a claimed task.

        :raises Conflict: if another worker claimed the task.
        """
        lease_ms = milliseconds("lease", lease) or 0
        text = self._native.renew(_pair(board), task, Position(token).text, lease_ms).wait()
        return _lease(json.loads(text))

    async def arenew(
        self, board: BoardId | tuple[str, str], task: str, token: Position, *, lease: Duration
    ) -> Lease:
        """As :meth:`renew`."""
        lease_ms = milliseconds("lease", lease) or 0
        text = await run(self._native.renew(_pair(board), task, Position(token).text, lease_ms))
        return _lease(json.loads(text))

    def update(
        self,
        board: BoardId | tuple[str, str],
        task: str,
        status: Status,
        *,
        token: Position | None = None,
        at: Position | None = None,
        result: str | None = None,
    ) -> Task:
        """Changes the state of a task.

        :param token: The token of the claim, for a claimed task.
        :param at: The revision that the task must have.
        :raises Conflict: if the state does not allow the change, or the claim or the revision is another one.
        """
        call = self._native.update(_pair(board), task, status, to_text(token), to_text(at), result)
        return _task(json.loads(call.wait()))

    async def aupdate(
        self,
        board: BoardId | tuple[str, str],
        task: str,
        status: Status,
        *,
        token: Position | None = None,
        at: Position | None = None,
        result: str | None = None,
    ) -> Task:
        """As :meth:`update`."""
        call = self._native.update(_pair(board), task, status, to_text(token), to_text(at), result)
        return _task(json.loads(await run(call)))

    def retry(
        self, board: BoardId | tuple[str, str], task: str, *, token: Position | None = None
    ) -> tuple[bool, Task]:
        """Plans a task again and counts the retry. Returns ``False`` if no retry is left; the task is unchanged."""
        return _retried(self._native.retry(_pair(board), task, to_text(token)).wait())

    async def aretry(
        self, board: BoardId | tuple[str, str], task: str, *, token: Position | None = None
    ) -> tuple[bool, Task]:
        """As :meth:`retry`."""
        return _retried(await run(self._native.retry(_pair(board), task, to_text(token))))

    def force_retry(self, board: BoardId | tuple[str, str], task: str) -> Task:
        """Plans a task again, whatever its number of retries."""
        return _task(json.loads(self._native.force_retry(_pair(board), task).wait()))

    async def aforce_retry(self, board: BoardId | tuple[str, str], task: str) -> Task:
        """As :meth:`force_retry`."""
        return _task(json.loads(await run(self._native.force_retry(_pair(board), task))))

    def settle(self, conversation: str) -> int:
        """Fails the tasks of a conversation that are in progress, and returns their number."""
        return self._native.settle(conversation).wait()

    async def asettle(self, conversation: str) -> int:
        """As :meth:`settle`."""
        return await run(self._native.settle(conversation))

    def delete_board(self, board: BoardId | tuple[str, str]) -> bool:
        """Deletes a board with its tasks, and returns whether it existed."""
        return self._native.delete_board(_pair(board)).wait()

    async def adelete_board(self, board: BoardId | tuple[str, str]) -> bool:
        """As :meth:`delete_board`."""
        return await run(self._native.delete_board(_pair(board)))


def _pair(board: BoardId | tuple[str, str]) -> tuple[str, str]:
    if not isinstance(board, tuple) or len(board) != 2:
        raise invalid("python", "board", "is not a board; pass larder.BoardId(conversation, agent)")
    return board


def _encode(tasks: NewTask | Iterable[NewTask]) -> str:
    given = [tasks] if isinstance(tasks, NewTask) else list(tasks)
    for task in given:
        if not isinstance(task, NewTask):
            raise invalid("python", "tasks", f"has a `{type(task).__name__}`; pass larder.NewTask")
    fields = [
        {
            "id": task.id,
            "title": task.title,
            "description": task.description,
            "retries_max": task.retries_max,
            "metadata": dict(task.metadata),
        }
        for task in given
    ]
    return to_json("tasks", fields)


def _lease(found: dict[str, Any]) -> Lease:
    return Lease(found["worker"], Position(found["token"]), from_text(found["expires_at"]))


def _task(found: dict[str, Any]) -> Task:
    lease = found.get("lease")
    return Task(
        found["id"],
        found["title"],
        found.get("description"),
        found["status"],
        Position(found["position"]),
        Position(found["revision"]),
        found["retries"],
        found["retries_max"],
        found.get("result"),
        None if lease is None else _lease(lease),
        found.get("metadata", {}),
    )


def _tasks(text: str) -> list[Task]:
    return [_task(found) for found in json.loads(text)]


def _found(text: str) -> Task | None:
    found = json.loads(text)
    return None if found is None else _task(found)


def _claim(text: str) -> Claim | None:
    found = json.loads(text)
    return None if found is None else Claim(_task(found["task"]), Position(found["token"]))


def _retried(text: str) -> tuple[bool, Task]:
    [(outcome, found)] = json.loads(text).items()
    return outcome == "retried", _task(found)


def _board_of(found: dict[str, Any]) -> Board:
    id = BoardId(found["id"]["conversation"], found["id"]["agent"])
    return Board(id, found.get("label"), found.get("parent"), found["tasks"])


def _board(text: str) -> Board:
    return _board_of(json.loads(text))
