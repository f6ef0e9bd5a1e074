"""Entities and relationships."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from larder._errors import invalid
from larder._filter import Filter
from larder._messages import to_json
from larder._native import Graph as NativeGraph
from larder._position import Position
from larder._run import Plan, Unpicklable, adrive, drive, run

_PAGE = 10_000


@dataclass(frozen=True, slots=True)
class Entity:
    """An entity of the graph."""

    id: str
    entity_type: str
    properties: Mapping[str, Any] = field(default_factory=dict[str, Any])
    revision: Position | None = field(default=None, compare=False)
    """The revision of an entity that was read by its id."""


@dataclass(frozen=True, slots=True)
class Relationship:
    """A directed edge of the graph."""

    id: str
    relationship_type: str
    source: str
    target: str
    properties: Mapping[str, Any] = field(default_factory=dict[str, Any])
    revision: Position | None = field(default=None, compare=False)
    """The revision of a relationship that was read by its id."""


class Written(NamedTuple):
    """The result of a write."""

    revision: Position
    created: bool


class Reached(NamedTuple):
    """An entity, and the number of relationships on the shortest way to it."""

    entity: Entity
    hops: int


class SubGraph(NamedTuple):
    """An entity and those around it, nearest first, and the relationships between them."""

    entities: list[Reached]
    relationships: list[Relationship]


class Graph(Unpicklable):
    """Entities and relationships with properties.

    >>> import larder
    >>> with larder.open("memory:") as stores:
    ...     graph = stores.graph
    ...     _ = graph.put([larder.Entity("ada", "person"), larder.Entity("basel", "place")])
    ...     _ = graph.relate(larder.Relationship("r1", "lives_in", "ada", "basel"))
    ...     [reached.entity.id for reached in graph.neighbors("ada").entities]
    ['ada', 'basel']
    """

    __slots__ = ("_native", "_stores")

    def __init__(self, native: NativeGraph, stores: object) -> None:
        self._native = native
        # The stores are closed when nobody holds them.
        self._stores = stores

    def put(
        self,
        entities: Entity | Iterable[Entity],
        *,
        merge: bool = False,
        create: bool = False,
        at: Position | None = None,
    ) -> list[Written]:
        """Writes up to 1,000 entities, all or none.

        :param merge: ``True`` to keep the properties that the new ones do not name.
        :param create: ``True`` if the entities must not exist.
        :param at: The revision that the entity must have.
        :raises Conflict: if the condition does not hold.
        """
        return _written(self._native.write_entities(_entities(entities, merge, create, at)).wait())

    async def aput(
        self,
        entities: Entity | Iterable[Entity],
        *,
        merge: bool = False,
        create: bool = False,
        at: Position | None = None,
    ) -> list[Written]:
        """As :meth:`put`."""
        return _written(await run(self._native.write_entities(_entities(entities, merge, create, at))))

    def relate(
        self,
        relationships: Relationship | Iterable[Relationship],
        *,
        merge: bool = False,
        create: bool = False,
        at: Position | None = None,
    ) -> list[Written]:
        """Writes up to 1,000 relationships, all or none, as :meth:`put` does. Their entities must exist."""
        writes = _relationships(relationships, merge, create, at)
        return _written(self._native.write_relationships(writes).wait())

    async def arelate(
        self,
        relationships: Relationship | Iterable[Relationship],
        *,
        merge: bool = False,
        create: bool = False,
        at: Position | None = None,
    ) -> list[Written]:
        """As :meth:`relate`."""
        writes = _relationships(relationships, merge, create, at)
        return _written(await run(self._native.write_relationships(writes)))

    def get(self, ids: Iterable[str]) -> list[Entity | None]:
        """Returns up to 1,000 entities in the order of their ids; ``None`` for one that does not exist."""
        return [_stored(found) for found in json.loads(self._native.entities(list(ids)).wait())]

    async def aget(self, ids: Iterable[str]) -> list[Entity | None]:
        """As :meth:`get`."""
        return [_stored(found) for found in json.loads(await run(self._native.entities(list(ids))))]

    def get_relationships(self, ids: Iterable[str]) -> list[Relationship | None]:
        """Returns up to 1,000 relationships in the order of their ids; ``None`` for one that does not exist."""
        return [_stored_edge(found) for found in json.loads(self._native.relationships(list(ids)).wait())]

    async def aget_relationships(self, ids: Iterable[str]) -> list[Relationship | None]:
        """As :meth:`get_relationships`."""
        return [_stored_edge(found) for found in json.loads(await run(self._native.relationships(list(ids))))]

    def neighbors(
        self,
        entity: str,
        *,
        depth: int = 1,
        direction: Literal["both", "out", "in"] = "both",
        types: Sequence[str] = (),
        limit: int = 10_000,
    ) -> SubGraph:
        """Returns an entity and those within up to 32 relationships of it, nearest first.

        :param types: The types of relationships to follow; all if it is empty.
        :raises NotFound: if the entity does not exist.
        """
        return _subgraph(self._native.neighbors(entity, _query(depth, direction, types, limit)).wait())

    async def aneighbors(
        self,
        entity: str,
        *,
        depth: int = 1,
        direction: Literal["both", "out", "in"] = "both",
        types: Sequence[str] = (),
        limit: int = 10_000,
    ) -> SubGraph:
        """As :meth:`neighbors`."""
        return _subgraph(await run(self._native.neighbors(entity, _query(depth, direction, types, limit))))

    def delete(self, entity: str) -> bool:
        """Deletes an entity with its relationships, and returns whether it existed."""
        return _existed(self._native.delete_entity(entity).wait())

    async def adelete(self, entity: str) -> bool:
        """As :meth:`delete`."""
        return _existed(await run(self._native.delete_entity(entity)))

    def delete_relationship(self, relationship: str) -> bool:
        """Deletes a relationship, and returns whether it existed."""
        return self._native.delete_relationship(relationship).wait()

    async def adelete_relationship(self, relationship: str) -> bool:
        """As :meth:`delete_relationship`."""
        return await run(self._native.delete_relationship(relationship))

    def find(self, entity_type: str | None = None, filter: Filter | None = None) -> list[Entity]:
        """Lists the entities of a type whose properties match a filter, by their ids."""
        return drive(self._find(entity_type, filter))

    async def afind(self, entity_type: str | None = None, filter: Filter | None = None) -> list[Entity]:
        """As :meth:`find`."""
        return await adrive(self._find(entity_type, filter))

    def _find(self, entity_type: str | None, filter: Filter | None) -> Plan[list[Entity]]:
        condition = None if filter is None else filter.condition
        query = to_json("query", {"entity_type": entity_type, "filter": condition})
        found: list[Entity] = []
        after: str | None = None
        while True:
            page = json.loads((yield self._native.find_entities(query, after, _PAGE)))
            found += map(_entity, page["items"])
            after = page["next"]
            if after is None:
                return found

    def find_relationships(
        self,
        relationship_type: str | None = None,
        *,
        source: str | None = None,
        target: str | None = None,
        filter: Filter | None = None,
    ) -> list[Relationship]:
        """Lists the relationships that match, by their ids."""
        return drive(self._find_edges(relationship_type, source, target, filter))

    async def afind_relationships(
        self,
        relationship_type: str | None = None,
        *,
        source: str | None = None,
        target: str | None = None,
        filter: Filter | None = None,
    ) -> list[Relationship]:
        """As :meth:`find_relationships`."""
        return await adrive(self._find_edges(relationship_type, source, target, filter))

    def _find_edges(
        self, relationship_type: str | None, source: str | None, target: str | None, filter: Filter | None
    ) -> Plan[list[Relationship]]:
        condition = None if filter is None else filter.condition
        fields = {
            "relationship_type": relationship_type,
            "source": source,
            "target": target,
            "filter": condition,
        }
        query = to_json("query", fields)
        found: list[Relationship] = []
        after: str | None = None
        while True:
            page = json.loads((yield self._native.find_relationships(query, after, _PAGE)))
            found += map(_edge, page["items"])
            after = page["next"]
            if after is None:
                return found

    def count(self) -> tuple[int, int]:
        """Returns the numbers of entities and of relationships."""
        return _counts(self._native.count().wait())

    async def acount(self) -> tuple[int, int]:
        """As :meth:`count`."""
        return _counts(await run(self._native.count()))

    def cypher(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Runs an openCypher query.

        :raises Unsupported: if the backend does not run openCypher.
        """
        text = to_json("parameters", dict(parameters or {}))
        rows: list[dict[str, Any]] = json.loads(self._native.cypher(query, text).wait())
        return rows

    async def acypher(self, query: str, parameters: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """As :meth:`cypher`."""
        text = to_json("parameters", dict(parameters or {}))
        rows: list[dict[str, Any]] = json.loads(await run(self._native.cypher(query, text)))
        return rows


def _write(name: str, item: dict[str, Any], merge: bool, create: bool, at: Position | None) -> dict[str, Any]:
    condition: Any = "absent" if create else "none" if at is None else {"at_revision": Position(at).text}
    return {name: item, "mode": "merge" if merge else "replace", "condition": condition}


def _entities(given: Entity | Iterable[Entity], merge: bool, create: bool, at: Position | None) -> str:
    writes = []
    for entity in [given] if isinstance(given, Entity) else given:
        if not isinstance(entity, Entity):
            raise invalid("python", "entities", f"has a `{type(entity).__name__}`; pass larder.Entity")
        properties = dict(entity.properties)
        item = {"id": entity.id, "entity_type": entity.entity_type, "properties": properties}
        writes.append(_write("entity", item, merge, create, at))
    return to_json("entities", writes)


def _relationships(
    given: Relationship | Iterable[Relationship], merge: bool, create: bool, at: Position | None
) -> str:
    writes = []
    for edge in [given] if isinstance(given, Relationship) else given:
        if not isinstance(edge, Relationship):
            raise invalid(
                "python", "relationships", f"has a `{type(edge).__name__}`; pass larder.Relationship"
            )
        item = {
            "id": edge.id,
            "relationship_type": edge.relationship_type,
            "source": edge.source,
            "target": edge.target,
            "properties": dict(edge.properties),
        }
        writes.append(_write("relationship", item, merge, create, at))
    return to_json("relationships", writes)


def _query(depth: int, direction: str, types: Sequence[str], limit: int) -> str:
    fields = {"depth": depth, "direction": direction, "relationship_types": list(types), "limit": limit}
    return to_json("query", fields)


def _entity(found: dict[str, Any], revision: Position | None = None) -> Entity:
    return Entity(found["id"], found["entity_type"], found.get("properties", {}), revision)


def _edge(found: dict[str, Any], revision: Position | None = None) -> Relationship:
    names = (found["source"], found["target"])
    return Relationship(
        found["id"], found["relationship_type"], *names, found.get("properties", {}), revision
    )


def _stored(found: dict[str, Any] | None) -> Entity | None:
    return None if found is None else _entity(found["entity"], Position(found["revision"]))


def _stored_edge(found: dict[str, Any] | None) -> Relationship | None:
    return None if found is None else _edge(found["relationship"], Position(found["revision"]))


def _subgraph(text: str) -> SubGraph:
    found = json.loads(text)
    reached = [Reached(_entity(one["entity"]), one["hops"]) for one in found["entities"]]
    return SubGraph(reached, [_edge(edge) for edge in found["relationships"]])


def _written(text: str) -> list[Written]:
    return [Written(Position(one["revision"]), one["created"]) for one in json.loads(text)]


def _existed(text: str) -> bool:
    existed: bool = json.loads(text)["existed"]
    return existed


def _counts(text: str) -> tuple[int, int]:
    counts = json.loads(text)
    return counts["entities"], counts["relationships"]
