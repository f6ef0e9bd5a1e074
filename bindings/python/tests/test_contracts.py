"""Vectors, the graph, files and task boards."""

import array
import asyncio
import threading
from datetime import UTC, datetime

import pytest

import larder
from larder import BoardId, Document, Entity, Filter, NewTask, Relationship


def test_documents_are_stored_and_searched(stores):
    vectors = stores.vectors
    documents = [
        Document("a", "Zoo", [1.0, 0.0], {"city": "Basel", "stars": 3, "tags": ["x", "y"]}),
        Document("b", "Museum", array.array("f", [0.8, 0.6]), {"city": "Basel", "stars": 5}),
        Document("c", "Opera", (0, 1), {"city": "Oslo"}),
    ]
    assert vectors.put("trips", documents) == larder.PutReport(["a", "b", "c"], [])
    assert vectors.put("trips", documents[0], if_absent=True).ignored == ["a"]
    hits = vectors.search("trips", [1, 0], limit=2)
    assert [hit.id for hit in hits] == ["a", "b"]
    assert hits[0].score == pytest.approx(1.0) and hits[1].score == pytest.approx(0.8)
    assert hits[1].metadata == {"city": "Basel", "stars": 5}
    basel = Filter.eq("city", "Basel")
    assert [hit.id for hit in vectors.search("trips", [0, 1], filter=basel, score_min=0.5)] == ["b"]
    assert [[hit.id for hit in hits] for hits in vectors.search_many("trips", [[1, 0], [0, 1]], limit=1)] == [
        ["a"],
        ["c"],
    ]
    read = vectors.get("trips", "b")
    assert read.embedding.tolist() == pytest.approx([0.8, 0.6])
    assert vectors.get_many("trips", ["c", "none"])[1] is None
    assert vectors.update_metadata("trips", {"c": {"stars": 1}, "none": {}}) == ["none"]
    assert vectors.get("trips", "c").metadata == {"city": "Oslo", "stars": 1}
    matching = {
        "abc": Filter.gte("stars", 1),
        "b": basel & Filter.gt("stars", 3),
        "ac": Filter.lt("stars", 5) | Filter.lte("stars", 0),
        "c": ~basel,
        "a": Filter.contains_all("tags", ["y"]) & Filter.contains_any("tags", ["x"]),
        "bc": ~Filter.exists("tags") & Filter.ne("city", "Bern"),
        "ab": Filter.is_in("city", ["Basel"]),
    }
    for ids, filter in matching.items():
        assert "".join(document.id for document in vectors.documents("trips", filter)) == ids
    assert [document.id for document in vectors.documents("trips", after="a", limit=1)] == ["b"]
    assert (vectors.count("trips"), vectors.count("trips", basel)) == (3, 2)
    assert vectors.collections() == [larder.CollectionInfo("trips", 2, 3)]
    assert vectors.delete("trips", ["a", "none"]) == 1
    assert vectors.delete_matching("trips", basel) == 1
    assert vectors.drop_collection("trips") and not vectors.drop_collection("trips")


def test_embeddings_are_taken_from_numpy():
    numpy = pytest.importorskip("numpy")
    with larder.open("memory:") as stores:
        for number, kind in enumerate(("float32", "float64")):
            stores.vectors.put("c", Document(f"{number}", "", numpy.array([0.6, 0.8], kind)))
        rows = numpy.eye(2, dtype="float32")
        hits = stores.vectors.search_many("c", list(rows))
        assert [hits[0][0].score, hits[1][0].score] == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("wrong", ["text", [0.0, 0.0], [float("nan")], [], [1, "2"], 5])
def test_a_wrong_embedding_is_refused(wrong):
    with larder.open("memory:") as stores, pytest.raises(larder.InvalidInput) as caught:
        stores.vectors.put("c", Document("d", "", wrong))
    assert caught.value.field == "embedding"


def test_the_graph_is_written_and_walked(stores):
    graph = stores.graph
    people = [Entity("ada", "person", {"born": 1815}), Entity("bob", "person")]
    written = graph.put([*people, Entity("basel", "place")])
    assert [one.created for one in written] == [True] * 3
    graph.relate([Relationship("r1", "knows", "ada", "bob"), Relationship("r2", "lives_in", "bob", "basel")])
    assert graph.get(["ada", "none"]) == [people[0], None]
    revision = graph.get(["ada"])[0].revision
    graph.put(Entity("ada", "person", {"title": "Countess"}), merge=True, at=revision)
    assert graph.get(["ada"])[0].properties == {"born": 1815, "title": "Countess"}
    with pytest.raises(larder.Conflict):
        graph.put(Entity("ada", "person"), at=revision)
    with pytest.raises(larder.Conflict):
        graph.put(Entity("ada", "person"), create=True)
    [edge] = graph.get_relationships(["r1"])
    [written] = graph.relate(
        Relationship("r1", "knows", "ada", "bob", {"since": 1833}), merge=True, at=edge.revision
    )
    assert not written.created and written.revision > edge.revision
    for condition in ({"at": edge.revision}, {"create": True}):
        with pytest.raises(larder.Conflict):
            graph.relate(Relationship("r1", "knows", "ada", "bob"), **condition)
    graph.relate(Relationship("r1", "knows", "ada", "bob", {"note": "x"}), merge=True)
    assert graph.get_relationships(["r1"])[0].properties == {"since": 1833, "note": "x"}
    near = graph.neighbors("ada", depth=2)
    assert [(one.entity.id, one.hops) for one in near.entities] == [("ada", 0), ("bob", 1), ("basel", 2)]
    assert len(graph.neighbors("ada", direction="in").entities) == 1
    assert [one.entity.id for one in graph.neighbors("bob", types=["knows"]).entities] == ["bob", "ada"]
    assert [entity.id for entity in graph.find("person", Filter.gt("born", 1800))] == ["ada"]
    assert [edge.id for edge in graph.find_relationships("knows", source="ada")] == ["r1"]
    assert graph.get_relationships(["r2"])[0].target == "basel"
    assert graph.count() == (3, 2)
    with pytest.raises(larder.Unsupported):
        graph.cypher("MATCH (n) RETURN n")
    assert graph.delete_relationship("r1") and not graph.delete_relationship("r1")
    assert graph.delete("bob") and graph.count() == (2, 0)


def test_blobs_are_written_read_and_listed(stores):
    blobs = stores.blobs
    info = blobs.put("reports/1", b"content", content_type="text/plain", metadata={"author": "ada"})
    assert (info.key, info.size) == ("reports/1", 7)
    read = blobs.info("reports/1")
    assert (read.content_type, read.metadata, read.etag) == ("text/plain", {"author": "ada"}, info.etag)
    assert blobs.get("reports/1") == b"content"
    assert blobs.get("reports/1", start=1, end=3) == b"on"
    with pytest.raises(larder.NotFound):
        blobs.get("none")
    assert blobs.info("none") is None
    with pytest.raises(larder.Conflict):
        blobs.put("reports/1", b"", create=True)
    blobs.put("reports/1", b"new", etag=info.etag)
    with pytest.raises(larder.Conflict):
        blobs.put("reports/1", b"newer", etag=info.etag)
    large = bytes(5 * 1024 * 1024)
    blobs.put("large", memoryview(large))
    assert blobs.get("large") == large
    blobs.copy("reports/1", "reports/2")
    blobs.rename("reports/2", "reports/3")
    assert [info.key for info in blobs.list("reports/")] == ["reports/1", "reports/3"]
    assert [info.key for info in blobs.list(after="large", limit=1)] == ["reports/1"]
    assert blobs.list(limit=0) == []
    with pytest.raises(larder.Conflict):
        blobs.rename("large", "reports/3")
    blobs.rename("reports/3", "large", replace=True)
    assert blobs.get("large") == b"new"
    assert blobs.delete("large") and not blobs.delete("large")
    with pytest.raises(larder.Unsupported):
        blobs.versions("reports/1")


@pytest.mark.parametrize("url", ["memory:?blob_versions=true", "file:{}?blob_versions=true"])
def test_versions_of_blobs_are_listed_read_and_deleted(url, tmp_path):
    with larder.open(url.format(tmp_path)) as stores:
        blobs = stores.blobs
        for content in (b"one", b"two"):
            blobs.put("plan", content)
        new, old = blobs.versions("plan")
        assert (new.current, old.current, old.size) == (True, False, 3)
        assert blobs.get("plan", version=old.id) == b"one"
        assert blobs.get("plan", version=old.id, start=1) == b"ne"
        with pytest.raises(larder.Conflict):
            blobs.delete_version("plan", new.id)
        assert blobs.delete_version("plan", old.id) and not blobs.delete_version("plan", old.id)
        with pytest.raises(larder.NotFound):
            blobs.get("plan", version=old.id)

        async def twins():
            [current] = await blobs.aversions("plan")
            assert await blobs.aget("plan", version=current.id) == b"two"
            assert not await blobs.adelete_version("plan", old.id)

        asyncio.run(twins())


def test_urls_allow_one_request_for_some_time(tmp_path):
    with larder.open("memory:") as stores:
        before = datetime.now(UTC)
        read = stores.blobs.presign("plan", valid_for=60)
        assert read.method == "GET" and 59 <= (read.expires_at - before).total_seconds() <= 70
        assert read.url not in repr(read)
        write = asyncio.run(
            stores.blobs.apresign("plan", valid_for=60, write=True, content_type="text/plain")
        )
        assert write.method == "PUT" and write.headers == {"content-type": "text/plain"}
        for wrong in (
            {"valid_for": 0},
            {"valid_for": 8 * 86400},
            {"valid_for": 60, "content_type": "text/plain"},
        ):
            with pytest.raises(larder.InvalidInput):
                stores.blobs.presign("plan", **wrong)
    with larder.open(f"file:{tmp_path}") as stores, pytest.raises(larder.Unsupported):
        stores.blobs.presign("plan", valid_for=60)


def test_tasks_are_claimed_by_one_worker_each(stores):
    tasks, board = stores.tasks, BoardId("conversation", "assistant")
    created = tasks.create_board(board, [NewTask(f"t{n}", f"task {n}") for n in range(20)], label="trip")
    assert (created.label, created.tasks["planned"]) == ("trip", 20)
    with pytest.raises(larder.AlreadyExists):
        tasks.create_board(board)
    claimed = []

    def work(worker):
        while (claim := tasks.claim(board, worker, lease=60)) is not None:
            claimed.append(claim.task.id)
            tasks.update(board, claim.task.id, "succeeded", token=claim.token, result=worker)

    threads = [threading.Thread(target=work, args=(f"w{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(claimed) == sorted(f"t{n}" for n in range(20))
    assert tasks.board(board).tasks["succeeded"] == 20
    [added] = tasks.add(board, NewTask("last", "retry", "text", 1, {"n": 1}))
    assert (added.description, added.retries_max, added.metadata) == ("text", 1, {"n": 1})
    claim = tasks.claim(board, "w", lease=60)
    lease = tasks.renew(board, "last", claim.token, lease=120)
    assert (lease.worker, lease.token) == ("w", claim.token)
    with pytest.raises(larder.Conflict):
        tasks.update(board, "last", "failed", token=larder.Position(0))
    retried, task = tasks.retry(board, "last", token=claim.token)
    assert retried and (task.status, task.retries) == ("planned", 1)
    claim = tasks.claim(board, "w", lease=60)
    retried, task = tasks.retry(board, "last", token=claim.token)
    assert not retried and task.status == "in_progress"
    assert tasks.update(board, "last", "failed", token=claim.token).status == "failed"
    assert tasks.force_retry(board, "last").status == "planned"
    assert [task.id for task in tasks.tasks(board, ["planned"])] == ["last"]
    assert tasks.get(board, "none") is None and tasks.board(("c", "none")) is None
    assert [board.id for board in tasks.boards("conversation")] == [board]
    tasks.claim(board, "w", lease=60)
    assert tasks.settle("conversation") == 1
    assert tasks.delete_board(board) and not tasks.delete_board(board)
    with pytest.raises(larder.InvalidInput) as caught:
        tasks.update(board, "last", "done")
    assert caught.value.field == "status"


def test_the_async_twins_do_the_same(url, namespace):
    async def main():
        async with await larder.aopen(url, namespace=namespace) as stores:
            vectors, graph, blobs, tasks = stores.vectors, stores.graph, stores.blobs, stores.tasks
            await vectors.aput("c", [Document("a", "x", [1, 0])])
            assert (await vectors.asearch("c", [1, 0]))[0].id == "a"
            assert (await vectors.asearch_many("c", [[1, 0]]))[0][0].id == "a"
            assert (await vectors.aget("c", "a")).content == "x"
            assert len(await vectors.aget_many("c", ["a", "b"])) == 2
            assert await vectors.aupdate_metadata("c", {"a": {"k": 1}}) == []
            assert len(await vectors.adocuments("c", Filter.eq("k", 1))) == 1
            assert len(await vectors.acollections()) == 1
            assert await vectors.acount("c") == 1
            assert await vectors.adelete_matching("c", Filter.eq("k", 2)) == 0
            assert await vectors.adelete("c", ["a"]) == 1
            assert await vectors.adrop_collection("c")
            await graph.aput([Entity("a", "t"), Entity("b", "t")])
            await graph.arelate(Relationship("r", "t", "a", "b"))
            assert len(await graph.aget(["a"])) == len(await graph.aget_relationships(["r"])) == 1
            assert len((await graph.aneighbors("a")).entities) == 2
            assert len(await graph.afind("t")) == 2 and len(await graph.afind_relationships("t")) == 1
            assert await graph.acount() == (2, 1)
            assert await graph.adelete_relationship("r") and await graph.adelete("a")
            await blobs.aput("k", b"abc")
            assert await blobs.aget("k", start=1) == b"bc"
            assert (await blobs.ainfo("k")).size == 3 and len(await blobs.alist()) == 1
            await blobs.acopy("k", "l")
            assert await blobs.adelete("k")
            board = BoardId("c", "a")
            await tasks.acreate_board(board)
            await tasks.aadd(board, NewTask("t", "title"))
            claim = await tasks.aclaim(board, "w", lease=60)
            await tasks.arenew(board, "t", claim.token, lease=60)
            assert (await tasks.aretry(board, "t", token=claim.token))[0]
            claim = await tasks.aclaim(board, "w", lease=60)
            await tasks.aupdate(board, "t", "failed", token=claim.token)
            assert (await tasks.aforce_retry(board, "t")).status == "planned"
            assert (await tasks.aget(board, "t")).title == "title"
            assert len(await tasks.atasks(board)) == len(await tasks.aboards()) == 1
            assert (await tasks.aboard(board)).tasks["planned"] == 1
            await tasks.aclaim(board, "w", lease=60)
            assert await tasks.asettle("c") == 1
            assert await tasks.adelete_board(board)
            await stores.aerase()

    asyncio.run(main())
