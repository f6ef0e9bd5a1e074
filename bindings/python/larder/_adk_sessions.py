"""Sessions of Google ADK."""

from __future__ import annotations

import asyncio
import random
import uuid
from typing import Any, Self
from weakref import WeakValueDictionary

from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.platform import time as platform_time
from google.adk.platform import uuid as platform_uuid
from google.adk.sessions import BaseSessionService, Session
from google.adk.sessions.base_session_service import GetSessionConfig, ListSessionsResponse

from larder import _adk_values as values
from larder._adapter import settled
from larder._adk_values import Head
from larder._closing import Owner
from larder._errors import Conflict
from larder._key_value import Item, Put
from larder._stores import Stores, aopen, open

_ALL = 2**53
_BLOCK = 256
_PAUSE_S = 0.01


class LarderSessionService(Owner, BaseSessionService):
    """Stores sessions in a key-value store, with a bucket for each app.

    An event and its changes of all states are one atomic write. If another writer has added an event to the
    session since it was loaded, ``append_event`` raises ADK's ``StaleSessionError``: of concurrent writers, one
    wins. An event that is added a second time, for example after a lost connection, is stored once.

    An event has at most 12 MiB, the state of a session 4 MiB, and each value of an app's or a user's state 4 MiB.

    :param stores: Open stores. The service does not close them.
    :param prefix: The prefix of the buckets' names.
    :raises Unsupported: if the stores have no key-value store.
    """

    def __init__(self, stores: Stores, *, prefix: str = "adk/") -> None:
        self._store = stores.key_value
        self._prefix = prefix
        # Tasks that share a session append in the order of their calls. A lock belongs to an event loop.
        self._locks: WeakValueDictionary[tuple[object, str, str], asyncio.Lock] = WeakValueDictionary()

    @classmethod
    def from_url(cls, *urls: str, namespace: str = "default", prefix: str = "adk/") -> Self:
        """Opens stores as :func:`larder.open` does. The service closes them: use it with ``async with``."""
        stores = open(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, prefix=prefix))

    @classmethod
    async def afrom_url(cls, *urls: str, namespace: str = "default", prefix: str = "adk/") -> Self:
        """As :meth:`from_url`."""
        stores = await aopen(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, prefix=prefix))

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Creates a session.

        :raises AlreadyExistsError: if the user has a session of this name.
        """
        bucket = self._prefix + app_name
        id = (session_id or "").strip() or platform_uuid.new_uuid()
        deltas = values.split(state or {})
        head = Head(uuid.uuid4().hex, 0, None, platform_time.get_time(), deltas.session)
        writes = values.scoped_writes(user_id, deltas)
        writes.append(Put(values.head_key(user_id, id), values.encode_head(head), create=True))
        try:
            await settled(self._store.awrite(bucket, writes))
        except Conflict:
            raise AlreadyExistsError(f"Session with id {id} already exists.") from None
        return _session(app_name, user_id, id, head, await self._states(bucket, user_id))

    async def get_session(
        self,
        *,
        app_name: str,
        user_id: str,
        session_id: str,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """Returns a session, with the events that the configuration selects; ``None`` if it does not exist."""
        bucket, id = self._prefix + app_name, session_id.strip()
        while (value := await self._store.aget(bucket, values.head_key(user_id, id))) is not None:
            head = values.decode_head(value)
            events = await self._events(bucket, head, config or GetSessionConfig())
            if events is not None:
                scoped = await self._states(bucket, user_id)
                return _session(app_name, user_id, id, head, scoped, events)
            # The session was deleted in between.
        return None

    async def _events(self, bucket: str, head: Head, config: GetSessionConfig) -> list[Event] | None:
        first, end, after = 0, head.next, config.after_timestamp
        if config.num_recent_events is not None:
            first = max(0, end - config.num_recent_events)
        events: list[Event] = []
        while first < end:
            start = first if after is None else max(first, end - _BLOCK)
            texts = await self._texts(bucket, head.id, start, end)
            if len(texts) < end - start:
                return None
            found = [Event.model_validate_json(text) for text in texts]
            end = start
            if after is not None:
                older = [index for index, event in enumerate(found) if event.timestamp < after]
                if older:
                    found, end = found[older[-1] + 1 :], first
            events[:0] = found
        return events

    async def _texts(self, bucket: str, id: str, start: int, end: int) -> list[bytes]:
        """Returns the JSON of the events with these numbers."""
        prefix, first, last = values.events_of(id), values.event_key(id, start), values.event_key(id, end)
        items = await self._store.aentries(bucket, prefix, start=first, end=last, values=True, limit=_ALL)
        return values.join(items)

    async def _states(self, bucket: str, user_id: str) -> dict[str, Any]:
        """Returns the states of an app and of a user, with the prefixes of ADK."""
        app = await self._listed(bucket, values.APP)
        prefix = values.user_prefix(user_id)
        user = await self._listed(bucket, prefix)
        return {**values.decode_state(app, values.APP, "app:"), **values.decode_state(user, prefix, "user:")}

    async def _listed(self, bucket: str, prefix: str) -> list[Item]:
        return await self._store.aentries(bucket, prefix, values=True, limit=_ALL)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """Returns the sessions of a user or of an app without their events, the latest one last."""
        bucket = self._prefix + app_name
        prefix = values.HEADS if user_id is None else values.heads_of(user_id)
        items = await self._listed(bucket, prefix)
        heads = [(*values.names(item.key), values.decode_head(item.value or b"")) for item in items]
        app = values.decode_state(await self._listed(bucket, values.APP), values.APP, "app:")
        states = values.USERS if user_id is None else values.user_prefix(user_id)
        users = values.decode_users(await self._listed(bucket, states))
        sessions = [
            _session(app_name, user, id, head, {**app, **users.get(user, {})}) for user, id, head in heads
        ]
        sessions.sort(key=lambda session: (session.last_update_time, session.user_id, session.id))
        return ListSessionsResponse(sessions=sessions)

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Deletes a session with its events and its state. The states of the app and the user remain."""
        await settled(self._delete(self._prefix + app_name, values.head_key(user_id, session_id.strip())))

    async def _delete(self, bucket: str, key: str) -> None:
        while (entry := await self._store.aentry(bucket, key)) is not None:
            try:
                await self._store.adelete(bucket, key, at=entry.revision)
            except Conflict:
                await _pause()
                continue
            await self._store.adelete_prefix(bucket, values.events_of(values.decode_head(entry.value).id))

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Returns the state of a user, with keys without ``user:``."""
        prefix = values.user_prefix(user_id)
        return values.decode_state(await self._listed(self._prefix + app_name, prefix), prefix, "")

    async def append_event(self, session: Session, event: Event) -> Event:
        """Adds an event to a session, and applies its changes of the states. If the task is canceled, the write
        ends before.

        A partial event is not stored, and neither are keys that begin with ``temp:``.

        :raises StaleSessionError: if another writer added an event to the session since it was loaded.
        :raises SessionNotFoundError: if the session does not exist.
        """
        if event.partial:
            return event
        self._apply_temp_state(session, event)
        event = self._trim_temp_delta_state(event)
        await settled(self._append(session, event))
        return event

    async def _append(self, session: Session, event: Event) -> None:
        bucket, key = self._prefix + session.app_name, values.head_key(session.user_id, session.id.strip())
        name = (asyncio.get_running_loop(), bucket, key)
        lock = self._locks.setdefault(name, asyncio.Lock())
        async with lock:
            while (head := await self._try_append(bucket, key, session, event)) is None:
                # Another process was faster.
                await _pause()
            # An event that was added a second time to the session is there already.
            if session._storage_update_marker != _marker(head):
                self._commit_event_to_session(session, event)
            session.last_update_time = head.updated
            session._storage_update_marker = _marker(head)

    async def _try_append(self, bucket: str, key: str, session: Session, event: Event) -> Head | None:
        """Writes an event and returns the new head of its session; ``None`` if another process was faster."""
        stored = await self._store.aentry(bucket, key)
        if stored is None:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        head, parts = values.decode_head(stored.value), values.encode_event(event)
        if head.last == event.id and _is_at(session, head, {head.next - 1, head.next}):
            texts = await self._texts(bucket, head.id, head.next - 1, head.next)
            if texts == [b"".join(parts)]:
                return head
        if not _is_at(session, head, {head.next}):
            raise StaleSessionError(
                "The session has been modified in storage since it was loaded. Reload it, and append again."
            )
        deltas = values.split(event.actions.state_delta)
        writes = values.scoped_writes(session.user_id, deltas)
        writes += [Put(values.event_key(head.id, head.next, part), text) for part, text in enumerate(parts)]
        state = {**head.state, **deltas.session}
        head = Head(head.id, head.next + 1, event.id, event.timestamp, state)
        writes.append(Put(key, values.encode_head(head), at=stored.revision))
        try:
            await self._store.awrite(bucket, writes)
        except Conflict:
            return None
        return head


def _session(
    app: str, user: str, id: str, head: Head, scoped: dict[str, Any], events: list[Event] | None = None
) -> Session:
    session = Session(
        id=id,
        app_name=app,
        user_id=user,
        state={**head.state, **scoped},
        events=events or [],
        last_update_time=head.updated,
    )
    session._storage_update_marker = _marker(head)
    return session


def _marker(head: Head) -> str:
    return f"{head.id}/{head.next}"


def _is_at(session: Session, head: Head, nexts: set[int]) -> bool:
    """Returns whether one of these numbers was that of the next event when the session was loaded."""
    if session._storage_update_marker is not None:
        return session._storage_update_marker in {f"{head.id}/{number}" for number in nexts}
    # A session that the program made, for example from JSON, has no marker.
    if head.updated <= session.last_update_time:
        return True
    return (session.events[-1].id if session.events else None) == head.last


async def _pause() -> None:
    """Waits until another writer has probably ended."""
    await asyncio.sleep(random.random() * _PAUSE_S)
