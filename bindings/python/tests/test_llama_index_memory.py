"""The chat store for LlamaIndex's class Memory, to the promises of the tests of SQLAlchemyChatStore."""

import asyncio

import pytest
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import Memory, StaticMemoryBlock
from llama_index.core.storage.chat_store.base_db import MessageStatus
from test_llama_index import MESSAGES, processes

import larder
from larder.llama_index import LarderChatStore, LarderMemoryStore

ACTIVE, ARCHIVED = MessageStatus.ACTIVE, MessageStatus.ARCHIVED


def said(*texts):
    return [ChatMessage(text) for text in texts]


@pytest.fixture
def memories(stores):
    return LarderMemoryStore(stores)


def test_messages_are_added_counted_and_read(stores, memories):
    async def main():
        await memories.add_message("k", ChatMessage("a"))
        await memories.add_messages("k", said("b", "c", "d"))
        await memories.add_messages("k", said("z"), status=ARCHIVED)
        await memories.add_messages("k", [])
        texts = lambda found: "".join(message.content for message in found)
        assert texts(await memories.get_messages("k")) == "abcd"
        assert texts(await memories.get_messages("k", ARCHIVED)) == "z"
        assert texts(await memories.get_messages("k", None)) == "zabcd"
        assert texts(await memories.get_messages("k", limit=2)) == "ab"
        assert texts(await memories.get_messages("k", offset=2)) == "cd"
        assert texts(await memories.get_messages("k", limit=2, offset=1)) == "bc"
        assert await memories.get_messages("none") == [] and await memories.count_messages("none") == 0
        counts = [await memories.count_messages("k", status) for status in (ACTIVE, ARCHIVED, None)]
        assert counts == [4, 1, 5] and await memories.count_messages("k") == 4
        await memories.add_messages("equal", MESSAGES)
        assert await memories.get_messages("equal") == MESSAGES
        assert await memories.get_keys() == ["equal", "k"]

    asyncio.run(main())
    assert LarderChatStore(stores).get_messages("k") == said("a", "b", "c", "d")


def test_messages_are_replaced_and_deleted(memories):
    async def main():
        everything = lambda key="k": memories.get_messages(key, None)
        for key in ("k", "other"):
            await memories.add_messages(key, said("old"), ARCHIVED)
            await memories.add_messages(key, said("a"))
        await memories.set_messages("k", said("b", "c", "d"))
        assert await everything() == said("b", "c", "d")
        assert await memories.delete_message("k", 1) == ChatMessage("c")
        assert await memories.delete_message("k", 9) is None
        await memories.add_messages("k", said("old"), ARCHIVED)
        await memories.delete_messages("k", ACTIVE)
        assert await everything() == said("old")
        await memories.set_messages("k", said("e"), ARCHIVED)
        await memories.add_messages("k", said("f"))
        await memories.delete_messages("k", ARCHIVED)
        assert await everything() == said("f")
        await memories.delete_messages("k")
        assert await everything() == [] and await everything("other") == said("old", "a")
        assert await memories.get_keys() == ["other"]

    asyncio.run(main())


def test_the_oldest_messages_are_deleted_and_archived(memories):
    async def main():
        await memories.add_messages("k", many := said(*map(str, range(2_500))))
        assert await memories.delete_oldest_messages("k", 1) == many[:1]
        assert await memories.archive_oldest_messages("k", 2) == many[1:3]
        assert await memories.archive_oldest_messages("k", 1_100) == many[3:1_103]
        assert await memories.delete_oldest_messages("k", 1_100) == many[1_103:2_203]
        assert await memories.get_messages("k", ARCHIVED) == many[1:1_103]
        assert await memories.archive_oldest_messages("k", 0) == []
        assert await memories.archive_oldest_messages("k", 9_999) == many[2_203:]
        assert await memories.archive_oldest_messages("k", 1) == []
        assert await memories.delete_oldest_messages("k", 1) == []
        assert await memories.get_messages("k", None) == [*many[1:1_103], *many[2_203:]]

    asyncio.run(main())


def test_an_interrupted_archival_is_repeated_without_duplicates(memories, monkeypatch):
    remove = larder.History.aremove

    async def interrupted(*arguments):
        raise asyncio.CancelledError

    async def main():
        await memories.add_messages("k", said("a", "b", "c"))
        monkeypatch.setattr(larder.History, "aremove", interrupted)
        with pytest.raises(asyncio.CancelledError):
            await memories.archive_oldest_messages("k", 2)
        monkeypatch.setattr(larder.History, "aremove", remove)
        assert await memories.get_messages("k") == said("a", "b", "c")
        assert await memories.archive_oldest_messages("k", 2) == said("a", "b")
        assert await memories.get_messages("k", ARCHIVED) == said("a", "b")
        assert await memories.get_messages("k") == said("c")
        await memories.add_messages("k", said("a", "b"))
        assert await memories.archive_oldest_messages("k", 3) == said("c", "a", "b")
        assert await memories.get_messages("k", None) == said("a", "b", "c", "a", "b")

    asyncio.run(main())


def test_of_concurrent_deletions_no_two_return_the_same_message(memories):
    async def main():
        await memories.add_messages("k", many := said(*map(str, range(20))))
        deleted = await asyncio.gather(*(memories.delete_oldest_messages("k", 3) for _ in range(10)))
        found = [message.content for messages in deleted for message in messages]
        assert sorted(found, key=int) == [message.content for message in many]

    asyncio.run(main())


def test_a_memory_flushes_old_messages_to_the_archive(memories):
    memory = Memory.from_defaults(
        session_id="k",
        chat_store=memories,
        token_limit=40,
        token_flush_size=10,
        memory_blocks=[StaticMemoryBlock(name="facts", static_content="x")],
    )
    for n in range(12):
        memory.put(ChatMessage(f"question {n}"))
        memory.put(ChatMessage(f"answer {n}", role="assistant"))
    every = [message.content for message in memory.get_all()]
    assert every == [f"{kind} {n}" for n in range(12) for kind in ("question", "answer")]
    active, archived = memory.get_all(ACTIVE), memory.get_all(ARCHIVED)
    assert active and archived and [*archived, *active] == memory.get_all()
    assert memory.get()[-1] == ChatMessage("answer 11", role="assistant")
    memory.reset()
    assert memory.get_all() == []


AGENT = """
import asyncio, sys
import larder
from larder.llama_index import LarderMemoryStore
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.memory import Memory
from llama_index.llms.ollama import Ollama

model_url, url, namespace, question = sys.argv[1:]
llm = Ollama(model="llama-test", base_url=model_url, context_window=8000)

async def main(stores):
    memory = Memory.from_defaults(
        session_id="my_session", token_limit=40000, chat_store=LarderMemoryStore(stores)
    )
    agent = FunctionAgent(llm=llm, tools=[])
    print(await agent.run(question, memory=memory))

with larder.open(url, namespace=namespace) as stores:
    asyncio.run(main(stores))
"""


def test_two_processes_continue_the_memory_of_an_agent(postgres, namespace):
    """The example of LlamaIndex's page on memory, one process for each question."""
    questions = ["What city is the Golden Gate Bridge in?", "What state is it in?"]
    outputs, requests = processes(AGENT, postgres, namespace, ["San Francisco", "California"], questions)
    assert outputs == ["San Francisco\n", "California\n"]
    sent = [message["content"] for message in requests[1]["messages"]]
    assert sent == [questions[0], "San Francisco", questions[1]]


def test_wrong_arguments_are_refused():
    with larder.open("memory:") as stores:
        memories = LarderMemoryStore(stores)
        for call, field in (
            (memories.add_message("k", "text"), "messages"),
            (memories.get_messages(""), "session"),
            (LarderMemoryStore(stores, agent="").get_messages("k"), "agent"),
        ):
            with pytest.raises(larder.InvalidInput) as caught:
                asyncio.run(call)
            assert caught.value.field == field
