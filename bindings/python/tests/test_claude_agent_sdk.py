"""Transcripts of the Claude Agent SDK."""

import asyncio
import inspect
import subprocess
import sys
import uuid

import pytest
from claude_agent_sdk import (
    InMemorySessionStore,
    delete_session_via_store,
    fork_session_via_store,
    get_session_messages_from_store,
    list_sessions_from_store,
    list_subagents_from_store,
    project_key_for_directory,
    rename_session_via_store,
    tag_session_via_store,
)
from claude_agent_sdk.testing import run_session_store_conformance, session_store_conformance

import larder
from larder.claude_agent_sdk import LarderSessionStore

CONTRACTS = 14
KEY = {"project_key": "project", "session_id": "session"}


@pytest.fixture
def store(stores):
    return LarderSessionStore(stores)


def test_the_store_conforms(url):
    """The SDK's own suite, unmodified, with every optional method."""

    async def main():
        opened = []

        async def make():
            opened.append(await LarderSessionStore.afrom_url(url, namespace=f"python-{uuid.uuid4()}"))
            return opened[-1]

        await run_session_store_conformance(make)
        for store in opened:
            await store._owned.aerase()
            await store.aclose()
        return len(opened)

    # One store for each contract, and one to look for the optional methods.
    assert asyncio.run(main()) == CONTRACTS + 1


def test_the_number_of_contracts_is_that_of_the_suite():
    """A new release of the suite with more contracts fails here, so that the bar follows."""
    source = inspect.getsource(session_store_conformance)
    assert f"Assert the {CONTRACTS} :class:`SessionStore` behavioral contracts." in source
    optional = session_store_conformance._OPTIONAL_METHODS
    assert optional == {"list_sessions", "list_session_summaries", "delete", "list_subkeys"}


ENTRIES = [
    {"type": "user", "uuid": "1", "message": {"role": "user", "content": "Hello \0 é 🦀 \u2028 \ud800"}},
    {"type": "tag", "n": [1e16, -0.0, 2**70, None, True], "nested": {"a": {"": []}}},
    {"type": "tag", "n": [1e16, -0.0, 2**70, None, True], "nested": {"a": {"": []}}},
    {"type": "x", "uuid": 7},
    {"type": "assistant", "uuid": "2", "text": "line\nbreak\r\n"},
]


def test_entries_read_back_equal_and_a_repeated_batch_once(store):
    async def main():
        await store.append(KEY, ENTRIES)
        assert await store.load(KEY) == ENTRIES
        # The SDK repeats a batch whose reply it lost. An entry without a uuid has nothing that identifies it.
        await store.append(KEY, ENTRIES)
        loaded = await store.load(KEY)
        assert loaded == [*ENTRIES, *ENTRIES[1:4]]

    asyncio.run(main())


def test_large_entries_are_stored(store):
    entry = {"type": "user", "uuid": "1", "image": "x" * 10_000_000}

    async def main():
        await store.append(KEY, [entry])
        await store.append(KEY, [{"type": "user", "uuid": "2"}])
        assert await store.load(KEY) == [entry, {"type": "user", "uuid": "2"}]

    asyncio.run(main())


@pytest.mark.parametrize("session", ["a/b", "m/", "%2F", "é 🦀", "p"])
def test_names_do_not_collide(store, session):
    key = {"project_key": "project", "session_id": session}

    async def main():
        keys = [
            KEY,
            key,
            {**key, "subpath": "subagents/a"},
            {**KEY, "subpath": session},
            {**key, "project_key": "x/"},
        ]
        for number, one in enumerate(keys):
            await store.append(one, [{"type": "x", "n": number}])
        for number, one in enumerate(keys):
            assert await store.load(one) == [{"type": "x", "n": number}]
        assert {item["session_id"] for item in await store.list_sessions("project")} == {"session", session}
        assert await store.list_subkeys(key) == ["subagents/a"]
        await store.delete(key)
        assert [await store.load(one) is None for one in keys] == [False, True, True, False, False]

    asyncio.run(main())


def test_appends_of_one_process_are_in_the_order_of_the_calls(store):
    async def main():
        await asyncio.gather(*(store.append(KEY, [{"type": "x", "n": n}]) for n in range(30)))
        return await store.load(KEY)

    assert [entry["n"] for entry in asyncio.run(main())] == list(range(30))


def test_a_store_serves_several_event_loops(store):
    async def main():
        await asyncio.gather(*(store.append(KEY, [{"type": "x"}]) for _ in range(3)))

    asyncio.run(main())
    asyncio.run(main())
    assert len(asyncio.run(store.load(KEY))) == 6


def test_a_deleted_session_does_not_return(stores, store):
    async def main():
        await store.append(KEY, [{"type": "x", "customTitle": "old"}])
        await store.delete(KEY)
        assert await stores.key_value.abuckets() == {}
        await store.append(KEY, [{"type": "x", "n": 1}])
        assert await store.load(KEY) == [{"type": "x", "n": 1}]
        [summary] = await store.list_session_summaries("project")
        assert "custom_title" not in summary["data"]

    asyncio.run(main())


PROCESS = """
import asyncio, sys
from larder.claude_agent_sdk import LarderSessionStore

async def main(url, namespace, name):
    key = {"project_key": "project", "session_id": "session"}
    async with LarderSessionStore.from_url(url, namespace=namespace) as store:
        for number in range(20):
            stamp = f"2026-01-01T00:00:{number:02}Z"
            await store.append(key, [{"type": "x", "uuid": f"{name}-{number}", "timestamp": stamp}])

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_append_to_one_session(postgres, namespace):
    started = [subprocess.Popen([sys.executable, "-c", PROCESS, postgres, namespace, name]) for name in "ab"]
    assert [process.wait(300) for process in started] == [0, 0]
    with larder.open(postgres, namespace=namespace) as stores:
        loaded = asyncio.run(LarderSessionStore(stores).load(KEY))
        ids = [entry["uuid"] for entry in loaded]
        for name in "ab":
            assert [id for id in ids if id.startswith(name)] == [f"{name}-{n}" for n in range(20)]
        assert len(ids) == 40
        stores.erase()


def test_the_functions_of_the_sdk_return_what_they_return_for_its_store_in_memory(store, tmp_path):
    """The SDK's functions over a store: titles, tags, forks, messages, deletion."""
    theirs = InMemorySessionStore()
    project, id = project_key_for_directory(str(tmp_path)), str(uuid.uuid4())
    key = {"project_key": project, "session_id": id}
    first, second = str(uuid.uuid4()), str(uuid.uuid4())
    common = {"sessionId": id, "cwd": str(tmp_path), "timestamp": "2026-01-01T00:00:00Z"}
    entries = [
        {**common, "type": "user", "uuid": first, "message": {"role": "user", "content": "Hello"}},
        {
            **common,
            "type": "assistant",
            "uuid": second,
            "parentUuid": first,
            "message": {"role": "assistant", "content": []},
        },
    ]

    async def steps(one):
        folder = str(tmp_path)
        await one.append(key, entries)
        await one.append({**key, "subpath": "subagents/agent-1"}, entries[:1])
        await rename_session_via_store(one, id, "Title", directory=folder)
        await tag_session_via_store(one, id, "tagged", directory=folder)
        listed = await list_sessions_from_store(one, directory=folder)
        messages = await get_session_messages_from_store(one, id, directory=folder)
        agents = await list_subagents_from_store(one, id, directory=folder)
        fork = await fork_session_via_store(one, id, directory=folder)
        forked = await get_session_messages_from_store(one, fork.session_id, directory=folder)
        await delete_session_via_store(one, id, directory=folder)
        left = await list_sessions_from_store(one, directory=folder)
        shown = [
            (info.session_id, info.summary, info.tag, info.custom_title, info.first_prompt) for info in listed
        ]
        return shown, messages, agents, len(forked), [info.session_id == fork.session_id for info in left]

    ours = asyncio.run(steps(store))
    assert ours == asyncio.run(steps(theirs))
    assert ours[0] == [(id, "Title", "tagged", "Title", "Hello")] and ours[2] == ["1"]


@pytest.mark.parametrize(
    ("key", "entries", "field", "limit"),
    [
        (KEY, [{"type": {1}}], "entries", None),
        (KEY, [{"type": "x" * 13_000_000}], "entries", 12 * 1024 * 1024),
        ({**KEY, "project_key": "p" * 510}, [{"type": "x"}], "bucket", 512),
        ({**KEY, "subpath": "s" * 510}, [{"type": "x"}], "key", 512),
    ],
)
def test_wrong_arguments_are_refused(key, entries, field, limit):
    async def main():
        async with LarderSessionStore.from_url("memory:") as store:
            with pytest.raises(larder.InvalidInput) as caught:
                await store.append(key, entries)
            assert (caught.value.field, caught.value.limit) == (field, limit)
            assert await store.list_sessions("project") == []

    asyncio.run(main())


def test_stores_without_small_state_are_refused(tmp_path):
    with pytest.raises(larder.Unsupported):
        LarderSessionStore.from_url(f"file:{tmp_path}/blobs")
