"""Memory of Google ADK."""

from __future__ import annotations

import inspect
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Self, cast
from urllib.parse import quote

from google.adk.events.event import Event
from google.adk.memory import BaseMemoryService
from google.adk.memory.base_memory_service import SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

from larder._adapter import settled
from larder._closing import Owner
from larder._errors import invalid, unsupported
from larder._filter import Filter
from larder._stores import Stores, aopen, open
from larder._vectors import Document, Embedding, SearchHit

Embed = Callable[[list[str]], Sequence[Embedding] | Awaitable[Sequence[Embedding]]]
"""A function, or a coroutine function, that returns the embeddings of texts."""

_PAGE = 1_000


class LarderMemoryService(Owner, BaseMemoryService):
    """Stores memories as documents with embeddings, and finds those that are most similar to a query.

    An event is embedded and stored once. A memory has the text of its parts, without thoughts; events without text are
    left out.

    :param stores: Open stores. The service does not close them.
    :param embed: The function that embeds texts. Without it, the service cannot add and search.
    :param collection: The collection. Its first document sets the dimensions.
    :param limit: The maximum number of memories that a search returns.
    :param score_min: The minimum cosine similarity of a memory that a search returns, from -1 to 1.
    :raises Unsupported: if the stores have no vectors.
    """

    def __init__(
        self,
        stores: Stores,
        embed: Embed | None = None,
        *,
        collection: str = "adk-memory",
        limit: int = 10,
        score_min: float | None = None,
    ) -> None:
        self._vectors = stores.vectors
        self._embed = embed
        self._collection = collection
        self._limit = limit
        self._score_min = score_min

    @classmethod
    def from_url(
        cls, *urls: str, embed: Embed | None = None, namespace: str = "default", **options: Any
    ) -> Self:
        """Opens stores as :func:`larder.open` does. The service closes them: use it with ``async with``."""
        stores = open(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, embed, **options))

    @classmethod
    async def afrom_url(
        cls, *urls: str, embed: Embed | None = None, namespace: str = "default", **options: Any
    ) -> Self:
        """As :meth:`from_url`."""
        stores = await aopen(*urls, namespace=namespace)
        return cls._owning(stores, lambda stores: cls(stores, embed, **options))

    async def add_session_to_memory(self, session: Session) -> None:
        """Adds the events of a session. Those that are stored or were deleted are left out."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Adds events. Those that are stored or were deleted are left out."""
        entries = [
            MemoryEntry(
                id=event.id,
                content=event.content,
                author=event.author,
                timestamp=datetime.fromtimestamp(event.timestamp, UTC).isoformat(),
                custom_metadata=dict(custom_metadata or {}),
            )
            for event in events
            if event.content is not None
        ]
        extra = {} if session_id is None else {"session": session_id}
        await self._add(app_name, user_id, entries, extra, if_absent=True)

    async def add_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        memories: Sequence[MemoryEntry],
        custom_metadata: Mapping[str, object] | None = None,
    ) -> None:
        """Adds memories. One with the ``id`` of a stored memory replaces it."""
        entries = [
            memory.model_copy(
                update={
                    "id": memory.id or uuid.uuid4().hex,
                    "custom_metadata": {**(custom_metadata or {}), **memory.custom_metadata},
                }
            )
            for memory in memories
        ]
        await self._add(app_name, user_id, entries, {}, if_absent=False)

    async def _add(
        self,
        app: str,
        user: str,
        entries: Sequence[MemoryEntry],
        extra: Mapping[str, str],
        *,
        if_absent: bool,
    ) -> None:
        # Of several entries with one id, the first one counts for events, and the last one for memories.
        given = reversed(entries) if if_absent else entries
        texts = {_id(app, user, entry.id or ""): (entry, _text(entry.content)) for entry in given}
        rest = [(id, entry, text) for id, (entry, text) in texts.items() if text]
        for start in range(0, len(rest), _PAGE):
            page = rest[start : start + _PAGE]
            if if_absent:
                stored = await self._vectors.aget_many(self._collection, [id for id, _, _ in page])
                page = [one for one, found in zip(page, stored, strict=True) if found is None]
            if page:
                embeddings = await self._embedded([text for _, _, text in page])
                documents = [
                    Document(id, text, embedding, {**_metadata(app, user, entry), **extra})
                    for (id, entry, text), embedding in zip(page, embeddings, strict=True)
                ]
                await settled(self._vectors.aput(self._collection, documents, if_absent=if_absent))

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Returns the memories of a user that are most similar to a query, best first.

        :raises Unsupported: if the service has no ``embed``.
        """
        if not query.strip():
            return SearchMemoryResponse()
        [embedding] = await self._embedded([query])
        own = Filter.eq("app", app_name) & Filter.eq("user", user_id)
        hits = await self._vectors.asearch(
            self._collection, embedding, limit=self._limit, filter=own, score_min=self._score_min
        )
        return SearchMemoryResponse(memories=[_entry(hit) for hit in hits])

    async def delete_memory(self, *, app_name: str, user_id: str, memory_id: str | None = None) -> None:
        """Deletes a memory. Adding its session again does not restore it."""
        if not memory_id:
            return
        id = _id(app_name, user_id, memory_id)
        found = await self._vectors.aget(self._collection, id)
        if found is not None:
            # The id remains, without the text, its embedding, and the user's name by which a search finds it.
            blank = [1.0, *[0.0] * (len(cast("Sequence[float]", found.embedding)) - 1)]
            await settled(self._vectors.aput(self._collection, Document(id, "", blank)))

    async def _embedded(self, texts: list[str]) -> Sequence[Embedding]:
        if self._embed is None:
            raise unsupported("google_adk.memory", "text search; pass `embed` to the service")
        found = self._embed(texts)
        embeddings = await found if inspect.isawaitable(found) else found
        if len(embeddings) != len(texts):
            raise invalid("google_adk.memory", "embed", "returned not one embedding for each text")
        return embeddings


def _id(app: str, user: str, memory: str) -> str:
    return "/".join(quote(name, safe="") for name in (app, user, memory))


def _text(content: types.Content) -> str:
    return " ".join(part.text for part in content.parts or [] if part.text and not part.thought)


def _metadata(app: str, user: str, entry: MemoryEntry) -> dict[str, Any]:
    """Returns the metadata of a memory's document."""
    fields = entry.model_dump(mode="json", exclude_none=True, exclude={"content"})
    return {"app": app, "user": user, "role": entry.content.role, "entry": fields}


def _entry(hit: SearchHit) -> MemoryEntry:
    content = types.Content(role=hit.metadata["role"], parts=[types.Part(text=hit.content)])
    return MemoryEntry(content=content, **hit.metadata["entry"])
