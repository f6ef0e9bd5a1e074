"""Open stores."""

from __future__ import annotations

import atexit
import contextlib
import weakref

from larder import _native
from larder._blobs import Blobs
from larder._closing import Closing
from larder._errors import Error
from larder._graph import Graph
from larder._history import History
from larder._key_value import KeyValue
from larder._run import Unpicklable, run
from larder._tasks import Tasks
from larder._vectors import Vectors

_CLOSE_MS = 5_000
"""The time that an interpreter which exits waits for each of its stores, in milliseconds."""

_open_stores: weakref.WeakSet[Stores] = weakref.WeakSet()


class Stores(Closing, Unpicklable):
    """The stores of one namespace. They are safe to use from several threads and event loops.

    After a ``fork``, the child process cannot use them and opens its own.
    """

    __slots__ = ("__weakref__", "_native")

    def __init__(self, native: _native.Stores) -> None:
        self._native = native
        _open_stores.add(self)

    @property
    def history(self) -> History:
        """The conversations.

        :raises Unsupported: if no backend provides them.
        """
        return History(self._native.history(), self)

    @property
    def vectors(self) -> Vectors:
        """The documents with embeddings.

        :raises Unsupported: if no backend provides them.
        """
        return Vectors(self._native.vectors(), self)

    @property
    def graph(self) -> Graph:
        """The entities and relationships.

        :raises Unsupported: if no backend provides them.
        """
        return Graph(self._native.graph(), self)

    @property
    def blobs(self) -> Blobs:
        """The files.

        :raises Unsupported: if no backend provides them.
        """
        return Blobs(self._native.blobs(), self)

    @property
    def tasks(self) -> Tasks:
        """The task boards.

        :raises Unsupported: if no backend provides them.
        """
        return Tasks(self._native.tasks(), self)

    @property
    def key_value(self) -> KeyValue:
        """The small state.

        :raises Unsupported: if no backend provides it.
        """
        return KeyValue(self._native.key_value(), self)

    @property
    def namespace(self) -> str:
        """The namespace in which the stores are open."""
        return self._native.namespace()

    @property
    def contracts(self) -> list[str]:
        """The contracts whose stores are open, such as ``history`` and ``key_value``."""
        return self._native.contracts()

    @property
    def closed(self) -> bool:
        """``True`` once the stores are closed."""
        return self._native.is_closed()

    def erase(self) -> None:
        """Erases the namespace in every store, for example on a deletion request."""
        self._native.erase().wait()

    async def aerase(self) -> None:
        """As :meth:`erase`."""
        await run(self._native.erase())

    def close(self) -> None:
        """Closes the stores and waits until everything is on disk. Later calls raise ``Unavailable``."""
        self._native.close().wait()

    async def aclose(self) -> None:
        """As :meth:`close`."""
        await run(self._native.close())

    def __repr__(self) -> str:
        return f"<larder.Stores, {'closed' if self.closed else 'open'}>"


def open(*urls: str, namespace: str = "default", read_only: bool = False) -> Stores:
    """Opens the stores behind a URL.

    If several URLs provide a contract, the first one is used. Blobs go to the first URL that provides nothing
    else: ``postgres://…`` and ``s3://…`` keep blobs in S3 and everything else in Postgres.

    :param urls: For example ``memory:``, ``sqlite:./agent.db``, ``postgres://user@host/database``,
        ``redis://host`` or ``file:./folder``.
    :param namespace: The unit of tenancy and of erasure, 1 to 128 bytes.
    :param read_only: ``True`` to open the URLs only for reading.
    :raises InvalidInput: if a URL is malformed, or has an unknown scheme or parameter.
    """
    return Stores(_native.open(list(urls), namespace, read_only).wait())


async def aopen(*urls: str, namespace: str = "default", read_only: bool = False) -> Stores:
    """As :func:`open`."""
    return Stores(await run(_native.open(list(urls), namespace, read_only)))


def _end() -> None:
    """Closes the stores that are open when the interpreter exits."""
    for stores in list(_open_stores):
        native = stores._native
        if native.is_own() and not native.is_closed():
            # Nobody can handle an error any more.
            with contextlib.suppress(Error):
                native.close().wait(_CLOSE_MS)
    _native.end_deliveries()


atexit.register(_end)
