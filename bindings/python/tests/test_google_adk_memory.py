"""Memory of Google ADK."""

import asyncio

import pytest
from google.adk.events.event import Event
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions import Session
from google.genai import types

import larder
from larder.google_adk import LarderMemoryService

SCOPE = {"app_name": "app", "user_id": "ada"}
WORDS = ["python", "project", "weather"]


def embed(texts):
    """Counts the words, so that equal words are similar."""
    return [[0.1, *(float(text.lower().count(word)) for word in WORDS)] for text in texts]


async def aembed(texts):
    return embed(texts)


@pytest.fixture
def service(stores):
    return LarderMemoryService(stores, embed)


def event(id, text, **fields):
    content = types.Content(role="user", parts=[types.Part(text=text)])
    return Event(id=id, author="ada", content=content, timestamp=1.5, **fields)


def session(*events, id="1", **scope):
    return Session(id=id, events=list(events), **{**SCOPE, **scope})


async def found(service, query, **scope):
    response = await service.search_memory(**{**SCOPE, **scope}, query=query)
    return [memory.content.parts[0].text for memory in response.memories]


def test_a_search_returns_the_most_similar_memories(stores):
    async def main():
        service = LarderMemoryService(stores, aembed, limit=2)
        assert await found(service, "python") == []
        events = [event("a", "I like Python"), event("b", "My project"), event("c", "The Python project")]
        await service.add_session_to_memory(session(*events))
        assert await found(service, "Python") == ["I like Python", "The Python project"]
        assert await found(service, "project") == ["My project", "The Python project"]
        assert await found(service, " ") == []
        [memory, _] = (await service.search_memory(**SCOPE, query="python")).memories
        assert memory == MemoryEntry(
            id="a", author="ada", content=events[0].content, timestamp="1970-01-01T00:00:01.500000+00:00"
        )

    asyncio.run(main())


def test_memories_belong_to_a_user_of_an_app(service):
    async def main():
        await service.add_session_to_memory(session(event("a", "Python"), app_name="a/b", user_id="c"))
        await service.add_session_to_memory(session(event("a", "project"), app_name="a", user_id="b/c"))
        assert await found(service, "python", app_name="a/b", user_id="c") == ["Python"]
        assert await found(service, "python", app_name="a", user_id="b/c") == ["project"]
        assert await found(service, "python") == []
        await service.add_session_to_memory(session(event("a", "weather"), app_name="a", user_id="d"))
        assert await found(service, "all of them", app_name="a", user_id="b/c") == ["project"]
        assert await found(service, "all of them", app_name="a", user_id="d") == ["weather"]

    asyncio.run(main())


def test_an_event_is_embedded_once(stores):
    embedded = []

    def counting(texts):
        embedded.extend(texts)
        return embed(texts)

    async def main():
        service = LarderMemoryService(stores, counting)
        first = session(event("a", "Python"))
        await service.add_session_to_memory(first)
        await service.add_session_to_memory(session(*first.events, event("b", "project")))
        await service.add_events_to_memory(**SCOPE, events=[event("a", "other"), event("c", "weather")])
        assert embedded == ["Python", "project", "weather"]
        assert sorted(await found(service, "all of them")) == ["Python", "project", "weather"]
        # A session that was loaded in part leaves the other memories.
        await service.add_session_to_memory(session(event("b", "project")))
        assert len(await found(service, "all of them")) == 3

    asyncio.run(main())


def test_events_without_text_are_left_out(service):
    async def main():
        parts = [
            types.Part(text="thinking of Python", thought=True),
            types.Part(text="the"),
            types.Part.from_function_call(name="f", args={}),
            types.Part(text="weather"),
        ]
        await service.add_session_to_memory(
            session(
                Event(id="a", content=types.Content(role="model", parts=parts)),
                Event(id="b", content=types.Content(parts=[parts[0], parts[2]])),
                Event(id="c"),
                Event(id="d", content=types.Content()),
            )
        )
        assert await found(service, "weather") == ["the weather"]
        await service.add_session_to_memory(session())

    asyncio.run(main())


def test_a_deleted_memory_does_not_return(stores, service):
    async def main():
        given = session(event("a", "my secret project"), event("b", "Python"))
        await service.add_session_to_memory(given)
        await service.delete_memory(**SCOPE, memory_id="a")
        await service.delete_memory(**SCOPE, memory_id="none")
        await service.delete_memory(**SCOPE)
        await service.add_session_to_memory(given)
        assert await found(service, "project") == ["Python"]

    asyncio.run(main())
    texts = [document.content for document in stores.vectors.documents("adk-memory")]
    assert sorted(texts) == ["", "Python"]


def test_a_memory_that_is_deleted_while_it_is_embedded_does_not_return(stores):
    other, given = LarderMemoryService(stores, embed), session(event("a", "my secret project"))

    async def meanwhile(texts):
        await other.add_session_to_memory(given)
        await other.delete_memory(**SCOPE, memory_id="a")
        return embed(texts)

    async def main():
        await LarderMemoryService(stores, meanwhile).add_session_to_memory(given)
        assert await found(other, "project") == []

    asyncio.run(main())


def test_memories_are_added_without_events(service):
    async def main():
        content = types.Content(parts=[types.Part(text="likes Python")])
        entry = MemoryEntry(content=content, custom_metadata={"k": [1]})
        await service.add_memory(**SCOPE, memories=[entry], custom_metadata={"k": 0, "source": "form"})
        [memory] = (await service.search_memory(**SCOPE, query="python")).memories
        assert memory.id and memory.custom_metadata == {"k": [1], "source": "form"} and memory.author is None
        entry = MemoryEntry(id=memory.id, content=types.Content(parts=[types.Part(text="liked Python")]))
        await service.add_memory(**SCOPE, memories=[entry])
        assert await found(service, "python") == ["liked Python"]

    asyncio.run(main())


def test_more_memories_than_one_write_takes(service):
    async def main():
        events = [event(f"{number}", f"Python {number}") for number in range(1_100)]
        await service.add_session_to_memory(session(*events))
        await service.add_session_to_memory(session(*events, event("last", "project")))
        assert (await found(service, "project"))[0] == "project"

    asyncio.run(main())


def test_without_embeddings_text_search_is_unsupported():
    async def main():
        async with LarderMemoryService.from_url("memory:") as service:
            for call in (
                service.search_memory(**SCOPE, query="python"),
                service.add_session_to_memory(session(event("a", "Python"))),
            ):
                with pytest.raises(larder.Unsupported) as caught:
                    await call
                assert caught.value.outcome == "not_applied" and "embed" in str(caught.value)

    asyncio.run(main())


def test_wrong_embeddings_are_refused(tmp_path):
    async def main():
        for wrong, field in ((lambda texts: [], "embed"), (lambda texts: [[0.0]] * len(texts), "embedding")):
            async with await LarderMemoryService.afrom_url("memory:", embed=wrong) as service:
                with pytest.raises(larder.InvalidInput) as caught:
                    await service.add_session_to_memory(session(event("a", "Python")))
                assert caught.value.field.endswith(field)

    asyncio.run(main())
    with pytest.raises(larder.Unsupported):
        LarderMemoryService.from_url(f"file:{tmp_path}/blobs")
