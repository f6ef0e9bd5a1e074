"""Conversations of PydanticAI, with the semantics of the store in memory of PydanticAI."""

import asyncio
import dataclasses
import json

import pytest
from programs import output
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    BinaryImage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.test import TestModel
from responses_server import responses_server, said as replies

import larder
from larder.pydantic_ai import LarderConversationStore

TestModel.__test__ = False


def said(text):
    return ModelRequest(parts=[UserPromptPart(text)])


def texts(conversation):
    return [message.parts[0].content for message in conversation.messages]


@pytest.fixture
def store(stores):
    return LarderConversationStore(stores)


async def steps(store):
    """Makes each kind of call, and returns what the calls returned without ids and times."""
    results = []

    def note(found):
        results.append(found)

    async def fails(call):
        try:
            await call
        except (ConversationConflict, UserError) as error:
            note(type(error).__name__)

    note(await store.load("a"))
    first = Conversation(conversation_id="a", messages=[said(f"{n}") for n in range(70)])
    note(len(await store.save(first, scope="x")))
    note(texts(await store.load("a")))
    note(texts(await store.load("a", limit=40)))
    note(await store.load("a", scope="y"))
    stale = await store.load("a")
    loaded = await store.load("a", limit=2)
    loaded.messages.append(ModelResponse(parts=[TextPart("reply")]))
    note(len(await store.save(loaded)))
    await fails(store.save(stale))
    await fails(store.save(Conversation(conversation_id="a")))
    await fails(store.save(loaded, scope="y"))
    note(texts(await store.load("a", limit=3)))
    entries = await store.load_entries("a")
    note([entry.parent_id == before.id for before, entry in zip(entries, entries[1:], strict=False)])
    # A rewritten history branches off, and the conversation can branch back.
    current = await store.load("a")
    rewritten = Conversation(conversation_id="a", messages=current.messages[:33], revision=current.revision)
    rewritten.messages.append(said("other"))
    note(len(await store.save(rewritten)))
    [record] = await store.list_conversations()
    note((len(record.branches), record.scope))
    note(texts(await store.load("a"))[-2:])
    back = await store.branch("a", from_entry=record.branches[0], expected_revision=record.revision)
    note(texts(back)[-2:])
    await fails(store.branch("a", at=1, expected_revision=record.revision))
    await fails(store.branch("a", at=99, expected_revision=back.revision))
    fork = await store.fork("a", at=50, new_conversation_id="b")
    fork.messages.append(said("fork"))
    await store.save(fork)
    await fails(store.fork("a", new_conversation_id="b"))
    await fails(store.fork("none"))
    note([record.conversation_id for record in await store.list_conversations(limit=1)])
    note(len(await store.list_conversations(scope="x")))
    await store.delete("a", scope="y")
    note(len(await store.list_conversations()))
    await store.delete("a")
    note(await store.load("a"))
    note(texts(await store.load("b")))
    await store.delete("b")
    await store.delete("b")
    note(len(await store.list_conversations()))
    return results


def test_every_call_returns_what_the_store_in_memory_returns(stores, store):
    ours = asyncio.run(steps(store))
    assert ours == asyncio.run(steps(InMemoryConversationStore()))
    # Nothing is left, of forks and branches neither.
    assert stores.key_value.buckets() == {}


MESSAGES = [
    ModelRequest(parts=[UserPromptPart(["look \0 é 🦀", BinaryImage(b"\0\xff", media_type="image/png")])]),
    ModelResponse(parts=[TextPart("fine")], model_name="m", provider_details={"n": [1e16, None]}),
    ModelRequest(parts=[ToolReturnPart("f", {"a": [1, "x"]}, tool_call_id="c", metadata={"k": 1})]),
]


def test_messages_and_records_read_back_equal(store):
    async def main():
        conversation = Conversation(messages=list(MESSAGES))
        await store.save(conversation, scope="user")
        loaded = await store.load(conversation.conversation_id)
        assert loaded.messages == MESSAGES and loaded == conversation
        record = await store.read_record(conversation.conversation_id)
        [listed] = await store.read_records()
        assert listed == record and record.scope == "user"

    asyncio.run(main())


def test_more_messages_than_one_write_takes(stores, store):
    messages = [said(f"{n}") for n in range(1_200)]
    large = [said("x" * 3_000_000) for _ in range(5)]

    async def main():
        conversation = Conversation(conversation_id="a", messages=list(messages))
        await store.save(conversation)
        conversation.messages += large
        assert len(await store.save(conversation)) == 5
        assert (await store.load("a")).messages == messages + large
        await store.delete("a")

    asyncio.run(main())
    assert stores.key_value.buckets() == {}


def test_a_large_save_that_loses_leaves_nothing(stores, store):
    messages = [said(f"{n}") for n in range(600)]

    async def main():
        saves = [store.save(Conversation(conversation_id="a", messages=list(messages))) for _ in range(3)]
        results = await asyncio.gather(*saves, return_exceptions=True)
        assert sorted(type(result).__name__ for result in results) == ["ConversationConflict"] * 2 + ["list"]
        assert (await store.load("a")).messages == messages

    asyncio.run(main())
    keys = [item.key for item in stores.key_value.entries("pydantic-ai")]
    assert len([key for key in keys if key.startswith("e/")]) == 600
    # The record, its guard, and its place in the index.
    assert len(keys) == 603


def test_of_concurrent_saves_one_wins(store):
    async def main():
        await store.save(Conversation(conversation_id="a", messages=[said("1")]))
        loaded = [await store.load("a") for _ in range(8)]
        for number, conversation in enumerate(loaded):
            conversation.messages.append(said(f"by {number}"))
        results = await asyncio.gather(*map(store.save, loaded), return_exceptions=True)
        winners = [number for number, result in enumerate(results) if isinstance(result, list)]
        assert len(winners) == 1
        others = [result for result in results if not isinstance(result, list)]
        assert all(isinstance(error, ConversationConflict) for error in others)
        assert texts(await store.load("a")) == ["1", f"by {winners[0]}"]

    asyncio.run(main())


def test_forks_and_deletions_at_the_same_time_lose_no_message(store):
    messages = [said(f"{n}") for n in range(40)]

    async def main():
        for turn in range(5):
            name = f"a{turn}"
            await store.save(Conversation(conversation_id=name, messages=messages))
            forks = [store.fork(name, at=at, new_conversation_id=f"{name}-{at}") for at in (1, 20, 40)]
            results = await asyncio.gather(*forks, store.delete(name), return_exceptions=True)
            assert results.pop() is None
            for at, result in zip((1, 20, 40), results, strict=True):
                loaded = await store.load(f"{name}-{at}")
                if isinstance(result, Conversation):
                    assert loaded.messages == messages[:at]
                else:
                    assert isinstance(result, UserError) and loaded is None

    asyncio.run(main())


def test_a_fork_in_the_middle_of_a_deletion_keeps_its_messages(stores, store):
    messages = [said(f"{n}") for n in range(40)]
    listed = store._listed

    async def and_fork(prefix):
        found = await listed(prefix)
        store._listed = listed
        await LarderConversationStore(stores).fork("a", at=20, new_conversation_id="b")
        return found

    async def main():
        await store.save(Conversation(conversation_id="a", messages=messages))
        store._listed = and_fork
        await store.delete("a")
        assert await store.load("a") is None
        assert (await store.load("b")).messages == messages[:20]
        assert len([key for key in stores.key_value.entries("pydantic-ai", "e/")]) == 20

    asyncio.run(main())


def test_a_fork_of_a_deleted_conversation_is_refused(stores, store):
    async def main():
        await store.save(Conversation(conversation_id="a", messages=[said("1")]))
        record = await store.read_record("a")
        await store.delete("a")
        fork = ConversationRecord(conversation_id="b", head_id=record.head_id, forked_from="a")
        with pytest.raises(ConversationConflict):
            await store.write_record(fork, expected_revision=None)

    asyncio.run(main())
    assert stores.key_value.buckets() == {}


def test_a_scope_lists_its_conversations_alone(store):
    async def main():
        for scope in ("a", "a/b", "A", "%", "", None):
            await store.save(Conversation(conversation_id=f"of {scope}", messages=[said("1")]), scope=scope)
        for scope in ("a", "a/b", "A", "%", ""):
            [record] = await store.list_conversations(scope=scope)
            assert record.conversation_id == f"of {scope}" and record.scope == scope
        names = [record.conversation_id for record in await store.list_conversations(limit=2)]
        assert names == ["of None", "of "]
        # A record that is written with another scope leaves the list of its former one.
        record = await store.read_record("of a")
        moved = dataclasses.replace(record, scope="A")
        await store.write_record(moved, expected_revision=record.revision)
        assert await store.list_conversations(scope="a") == []
        assert len(await store.list_conversations(scope="A")) == 2
        # Names with slashes in scopes and identifiers do not meet.
        await store.save(Conversation(conversation_id="c/d"), scope="a")
        await store.save(Conversation(conversation_id="d"), scope="a/c")
        await store.delete("c/d")
        assert len(await store.list_conversations(scope="a/c")) == 1

    asyncio.run(main())


def test_a_record_of_an_entry_that_does_not_exist_is_refused(store):
    async def main():
        record = ConversationRecord(conversation_id="a", head_id="none")
        with pytest.raises(ConversationConflict):
            await store.write_record(record, expected_revision=None)
        with pytest.raises(ConversationConflict):
            await store.delete_record("a", expected_revision="none")
        with pytest.raises(KeyError):
            await store.read_entry("none")
        entry = ConversationEntry(parent_id=None, message=said("1"))
        await store.write_record(
            dataclasses.replace(record, head_id=entry.id), new_entries=[entry], expected_revision=None
        )
        assert await store.read_entry(entry.id) == entry

    asyncio.run(main())


PROCESS = """
import asyncio, sys
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.models.openai import OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from larder.pydantic_ai import LarderConversationStore

async def main(model_url, url, namespace, prompt):
    agent = Agent(OpenAIResponsesModel("gpt-test", provider=OpenAIProvider(base_url=model_url, api_key="none")))
    async with LarderConversationStore.from_url(url, namespace=namespace) as store:
        conversation_id = "trip-1"
        conversation = await store.load(conversation_id) or Conversation(conversation_id=conversation_id)
        result = await agent.run(prompt, conversation=conversation)
        await store.save(result)
        print(result.output)

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_continue_one_conversation(postgres, namespace):
    """The example of PydanticAI's documentation, one process for each prompt."""
    with responses_server(replies("San Francisco"), replies("California")) as (model_url, requests):
        answers = [
            output(PROCESS, model_url, postgres, namespace, question)
            for question in ("What city is the Golden Gate Bridge in?", "What state is it in?")
        ]
    assert answers == ["San Francisco\n", "California\n"]
    sent = json.dumps(requests[1]["input"])
    order = ["Golden Gate Bridge in?", "San Francisco", "What state"]
    assert sorted(order, key=sent.index) == order


def test_an_agent_continues_a_stored_conversation(store):
    async def main():
        agent = Agent(TestModel(custom_output_text="reply"))
        for prompt in "abc":
            conversation = await store.load("c") or Conversation(conversation_id="c")
            await store.save(await agent.run(prompt, conversation=conversation))
        loaded = await store.load("c")
        assert texts(loaded) == ["a", "reply", "b", "reply", "c", "reply"]
        assert loaded.usage.requests == 3

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore:Pydantic serializer")
@pytest.mark.parametrize(
    ("id", "message", "field"),
    [
        ("c" * 511, said("x"), "key"),
        ("c", said("x" * 4_194_304), "value"),
        ("c", ModelResponse(parts=[TextPart("x")], provider_details={"x": object()}), "message"),
    ],
)
def test_wrong_arguments_are_refused(id, message, field):
    async def main():
        async with await LarderConversationStore.afrom_url("memory:") as store:
            with pytest.raises(larder.InvalidInput) as caught:
                await store.save(Conversation(conversation_id=id, messages=[message]))
            assert caught.value.field.endswith(field) and caught.value.outcome == "not_applied"
            assert await store.list_conversations() == []

    asyncio.run(main())


def test_stores_without_small_state_are_refused(tmp_path):
    with pytest.raises(larder.Unsupported):
        LarderConversationStore.from_url(f"file:{tmp_path}/blobs")
