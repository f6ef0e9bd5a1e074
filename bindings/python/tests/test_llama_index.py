"""The chat store and the key-value store for LlamaIndex, to the promises of LlamaIndex's own tests."""

import asyncio
import base64
from concurrent.futures import ThreadPoolExecutor

import larder
import pytest
from larder.llama_index import LarderChatStore, LarderKVStore, LarderVectorStore
from llama_index.core.base.llms.types import (
    AudioBlock,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.schema import Document, ImageDocument, TextNode
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.index_store.keyval_index_store import KVIndexStore
from model_server import model_server
from programs import output

CALL = ToolCallBlock(tool_call_id="c1", tool_name="weather", tool_kwargs={"city": "Oslo"})

MESSAGES = [
    ChatMessage("Hello"),
    ChatMessage("Be brief.", role="system"),
    ChatMessage("Be kind.", role="developer"),
    ChatMessage(role="user", blocks=[TextBlock(text="one"), TextBlock(text="two")]),
    ChatMessage(role="assistant", blocks=[ThinkingBlock(content="hm"), TextBlock(text="Snow?"), CALL]),
    ChatMessage(role="assistant", blocks=[ToolCallBlock(tool_name="weather", tool_kwargs="{")]),
    ChatMessage(role="assistant", additional_kwargs={"tool_calls": [{"id": "c1", "type": "function"}]}),
    ChatMessage("Snow \0 é 🦀", role="tool", additional_kwargs={"tool_call_id": "c1", "z": 1, "a": [None]}),
    ChatMessage("", role="tool"),
    ChatMessage("result", role="function"),
    ChatMessage("Aye", role="chatbot", additional_kwargs={"temperature": 1e16}),
    ChatMessage("Ok", role="model"),
    ChatMessage(role="user", blocks=[ImageBlock(image=b"\x89PNG", image_mimetype="image/png", detail="low")]),
    ChatMessage(role="user", blocks=[AudioBlock(audio=b"RIFF", format="wav"), TextBlock(text="hear")]),
    ChatMessage(role="user", blocks=[DocumentBlock(data=b"%PDF", title="t")]),
    ChatMessage(role="user", blocks=[CitableBlock(title="t", source="s", content=[TextBlock(text="cited")])]),
    ChatMessage("a lone surrogate: \ud800"),
]


def said(*texts):
    return [ChatMessage(text) for text in texts]


@pytest.fixture
def chats(stores):
    return LarderChatStore(stores)


def test_messages_read_back_equal(chats):
    chats.set_messages("user-1", MESSAGES)
    assert chats.get_messages("user-1") == MESSAGES
    for message in MESSAGES:
        chats.add_message("user-2", message)
    assert asyncio.run(chats.aget_messages("user-2")) == MESSAGES


def test_old_images_of_the_additional_arguments_are_kept_once(chats):
    picture = ImageDocument(image=base64.b64encode(b"\x89PNG").decode())
    message = ChatMessage("look", additional_kwargs={"images": [picture]})
    chats.add_message("s", message)
    [found] = chats.get_messages("s")
    assert found.blocks == message.blocks and len(found.blocks) == 2
    chats.set_messages("s", [found])
    assert chats.get_messages("s") == [found]


def test_other_programs_read_text_calls_and_results(stores, chats):
    chats.set_messages("s", [MESSAGES[at] for at in (0, 1, 3, 4, 7)])
    found = [stored.message for stored in stores.history.tail(("llama-index", "s"), 10)]
    assert [message.role for message in found] == ["user", "system", "user", "assistant", "tool"]
    assert [message.text for message in found] == ["Hello", "Be brief.", "one\ntwo", "Snow?", ""]
    assert found[3].tool_calls == (larder.ToolCall("c1", "weather", '{"city": "Oslo"}'),)
    assert found[4].tool_results == (larder.ToolResult("c1", "Snow \0 é 🦀"),)
    assert "Hello" not in str(dict(found[0].metadata))


def test_messages_of_other_programs_are_read(stores, chats):
    result = larder.ToolResult("c1", "snow")
    messages = [larder.Message.user("Hello"), larder.Message.assistant("Hi"), larder.Message.tool(result)]
    stores.history.append(("llama-index", "s"), messages)
    assert chats.get_messages("s") == [
        ChatMessage("Hello"),
        ChatMessage("Hi", role="assistant"),
        ChatMessage("snow", role="tool", additional_kwargs={"tool_call_id": "c1"}),
    ]


def check_as_simple(ours):
    """Makes calls on a store and on LlamaIndex's own, and compares each result."""
    theirs = SimpleChatStore()

    def both(method, *arguments):
        expected = getattr(theirs, method)(*arguments)
        assert getattr(ours, method)(*arguments) == expected, (method, arguments)
        for key in ("user1", "user2"):
            assert ours.get_messages(key) == theirs.get_messages(key)

    for key in ("user1", "user2"):
        both("add_message", key, ChatMessage("hello"))
        both("add_message", key, ChatMessage("world", role="assistant"))
    both("get_keys")
    for at, idx in enumerate((0, 1, -1, 99)):
        both("add_message", "user1", ChatMessage(f"inserted {at}"), idx)
    for idx in (1, 99, -1, 0):
        both("delete_message", "user1", idx)
    both("delete_last_message", "user1")
    both("add_message", "user1", ChatMessage("inserted after deletions"), 1)
    both("delete_message", "user1", 0)
    both("set_messages", "user1", said("e", "f"))
    both("set_messages", "user2", said("a", "b", "c"))
    both("set_messages", "user2", said("d"))
    both("delete_messages", "user2")
    both("delete_messages", "user2")
    both("delete_last_message", "none")
    both("delete_message", "none", 0)
    both("get_keys")


def test_each_call_returns_what_the_simple_store_returns(chats):
    check_as_simple(chats)
    # The newest SimpleChatStore returns None in these cases, and older ones raise IndexError.
    chats.set_messages("s", said("only"))
    assert chats.delete_message("s", -2) is None
    assert chats.delete_last_message("s") == ChatMessage("only")
    assert chats.delete_last_message("s") is None
    chats.set_messages("s", said("only"))
    chats.set_messages("s", [])
    assert chats.get_messages("s") == [] and chats.get_keys() == ["user1"]


class Awaited:
    """The asynchronous methods under the names of the others."""

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        twin = getattr(self.store, "async_add_message" if name == "add_message" else f"a{name}")
        return lambda *arguments: asyncio.run(twin(*arguments))


def test_each_awaited_call_returns_what_the_simple_store_returns(chats):
    check_as_simple(Awaited(chats))


def test_many_messages_are_written_and_read(chats, monkeypatch):
    monkeypatch.setattr("larder._adapter._PAGE", 1_000)
    many = said(*map(str, range(2_500)))
    chats.set_messages("s", many)
    assert chats.get_messages("s") == many
    chats.add_message("s", ChatMessage("first"), 0)
    assert chats.get_messages("s") == [ChatMessage("first"), *many]
    assert chats.delete_message("s", -1_500) == many[1_000] and chats.delete_message("s", -2_501) is None


def test_concurrent_writers_lose_no_message_and_mix_no_replacement(chats):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: chats.add_message("s", ChatMessage(str(n)), 0), range(16)))
    assert sorted(int(message.content) for message in chats.get_messages("s")) == list(range(16))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: chats.set_messages("s", said(*[str(n)] * 5)), range(16)))
    assert len(chats.get_messages("s")) == 5
    assert len({message.content for message in chats.get_messages("s")}) == 1
    with ThreadPoolExecutor(8) as pool:
        popped = list(pool.map(lambda n: chats.delete_message("s", 0), range(8)))
    assert len([message for message in popped if message is not None]) == 5


@pytest.mark.parametrize("before", [[], said("old")])
def test_a_writer_that_another_one_overtakes_loses_no_message(stores, chats, before, monkeypatch):
    chats.set_messages("s", before)
    chats.set_messages("t", before)
    read, overtaken = larder.History.info, []

    def info(history, thread):
        found = read(history, thread)
        if thread not in overtaken:
            overtaken.append(thread)
            LarderChatStore(stores).add_message(thread.session, ChatMessage("overtakes"))
        return found

    monkeypatch.setattr(larder.History, "info", info)
    chats.set_messages("s", said("new"))
    chats.add_message("t", ChatMessage("first"), 0)
    # Either order of the two calls is right. A replacement leaves what was added after it was read.
    assert chats.get_messages("s") == said("new", *(["overtakes"] if before else []))
    assert chats.get_messages("t") == [ChatMessage("first"), *before, ChatMessage("overtakes")]


def test_agents_are_separate_and_a_store_is_not_copied_to_a_process(stores, chats):
    import pickle

    other = LarderChatStore(stores, agent="other")
    chats.set_messages("s", said("a"))
    assert other.get_messages("s") == [] and other.get_keys() == []
    memory = ChatMemoryBuffer.from_defaults(chat_store=chats, chat_store_key="s")
    memory.put(ChatMessage("b"))
    assert chats.get_messages("s") == memory.get_all() == said("a", "b")
    assert chats.to_dict() == {"agent": "llama-index", "class_name": "LarderChatStore"}
    for store in (chats, LarderVectorStore(stores), LarderKVStore(stores)):
        with pytest.raises(TypeError, match="belongs to its process"):
            pickle.dumps(store)


def test_a_key_value_store_keeps_dictionaries(stores):
    store = LarderKVStore(stores)
    store.put("foo", {"foo": "bar"})
    assert store.get("foo") == {"foo": "bar"} and store.get("bar") is None
    store.put("bar", {"bar": "foo", "z": 1, "a": [None, {"é": 1.5}]})
    assert store.get_all() == {"foo": {"foo": "bar"}, "bar": {"bar": "foo", "z": 1, "a": [None, {"é": 1.5}]}}
    assert list(store.get("bar")) == ["bar", "z", "a"]
    assert store.delete("bar") is True and store.delete("bar") is False
    assert store.get_all() == {"foo": {"foo": "bar"}} and store.get_all("other") == {}

    async def main():
        await store.aput("foo", {"n": 1}, "other")
        assert await store.aget("foo", "other") == {"n": 1} and await store.aget("none", "other") is None
        pairs = [(f"{n:04}", {"n": n}) for n in range(2_500)]
        await store.aput_all(pairs, "many")
        assert await store.aget_all("many") == dict(pairs)
        assert await store.adelete("0000", "many") is True and await store.adelete("0000", "many") is False
        store.put_all([("a", {"n": 1}), ("a", {"n": 2})], "many", batch_size=100)
        assert store.get("a", "many") == {"n": 2} and len(store.get_all("many")) == 2_500

    asyncio.run(main())
    assert store.get("foo") == {"foo": "bar"}


def test_document_and_index_stores_take_the_key_value_store(stores):
    ours, theirs = KVDocumentStore(LarderKVStore(stores)), SimpleDocumentStore()
    nodes = [TextNode(id_=f"{n}", text=f"text {n}", metadata={"n": n}) for n in range(3)]
    for store in (ours, theirs):
        store.add_documents([Document(id_="d", text="source"), *nodes])
        store.set_document_hash("d", "hash")
        store.delete_document("1")
    assert ours.docs == theirs.docs and ours.get_all_document_hashes() == theirs.get_all_document_hashes()
    assert asyncio.run(ours.aget_document("2")) == nodes[2]
    assert KVIndexStore(LarderKVStore(stores)).index_structs() == []


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda stores: LarderChatStore(stores).add_message("s", "text"), "messages"),
        (
            lambda stores: LarderChatStore(stores).add_message(
                "s", ChatMessage("", additional_kwargs={"a": object()})
            ),
            "messages",
        ),
        (lambda stores: LarderChatStore(stores).set_messages("s", said("x" * 4_194_304)), "message"),
        (lambda stores: LarderChatStore(stores).get_messages(""), "session"),
        (lambda stores: LarderChatStore(stores, agent="a\0").get_messages("s"), "agent"),
        (lambda stores: LarderKVStore(stores).put("k", {"a": {1}}), "val"),
        (lambda stores: LarderKVStore(stores).put("", {}), "key"),
        (lambda stores: LarderKVStore(stores).put("k", {"a": "x" * 4_194_304}), "value"),
        (lambda stores: LarderKVStore(stores, prefix="").get("k", ""), "bucket"),
    ],
)
def test_wrong_arguments_are_refused(call, field):
    with larder.open("memory:") as stores, pytest.raises(larder.InvalidInput) as caught:
        call(stores)
    assert caught.value.field == field


def test_stores_without_the_contract_are_refused(tmp_path):
    with larder.open(f"file:{tmp_path}/blobs") as stores:
        for kind in (LarderChatStore, LarderVectorStore, LarderKVStore):
            with pytest.raises(larder.Unsupported):
                kind(stores)


CHAT = """
import sys
import larder
from larder.llama_index import LarderChatStore
from llama_index.core import Settings
from llama_index.core.chat_engine import SimpleChatEngine
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.llms.ollama import Ollama

model_url, url, namespace, question = sys.argv[1:]
Settings.llm = Ollama(model="llama-test", base_url=model_url, context_window=8000)
with larder.open(url, namespace=namespace) as stores:
    chat_store = LarderChatStore(stores)

    memory = ChatMemoryBuffer.from_defaults(
        token_limit=3000,
        chat_store=chat_store,
        chat_store_key="conversation1",
    )
    chat_engine = SimpleChatEngine(memory=memory, llm=Settings.llm, prefix_messages=[])
    print(chat_engine.chat(question))
"""

SEARCH = """
import sys
import larder
from larder.llama_index import LarderVectorStore
from llama_index.core import Document, Settings, StorageContext, VectorStoreIndex
from llama_index.embeddings.ollama import OllamaEmbedding
from llama_index.llms.ollama import Ollama

model_url, url, namespace, step = sys.argv[1:]
Settings.llm = Ollama(model="llama-test", base_url=model_url, context_window=8000)
Settings.embed_model = OllamaEmbedding(model_name="embed-test", base_url=model_url)
with larder.open(url, namespace=namespace) as stores:
    vector_store = LarderVectorStore(stores)
    if step == "write":
        documents = [
            Document(text="Basel has a zoo.", id_="basel"),
            Document(text="The opera of Oslo stands at the fjord.", id_="oslo"),
        ]
        storage_context = StorageContext.from_defaults(vector_store=vector_store)
        VectorStoreIndex.from_documents(documents, storage_context=storage_context)
    else:
        index = VectorStoreIndex.from_vector_store(vector_store)
        query_engine = index.as_query_engine(similarity_top_k=1)
        print(query_engine.query("Which city has a zoo?"))
        index.delete_ref_doc("basel")
        print([found.text for found in index.as_retriever().retrieve("Which city has a zoo?")])
"""


def processes(program, postgres, namespace, answers, arguments):
    """Runs the program once for each argument on one Postgres, and returns the outputs and the chats."""
    with model_server(*answers) as (model_url, requests):
        outputs = [output(program, model_url, postgres, namespace, argument) for argument in arguments]
    return outputs, requests


def test_two_processes_continue_one_conversation(postgres, namespace):
    """The example of LlamaIndex's page on chat stores, one process for each question."""
    questions = ["What city is the Golden Gate Bridge in?", "What state is it in?"]
    outputs, requests = processes(CHAT, postgres, namespace, ["San Francisco", "California"], questions)
    assert outputs == ["San Francisco\n", "California\n"]
    sent = [message["content"] for message in requests[1]["messages"]]
    assert sent == [questions[0], "San Francisco", questions[1]]


def test_one_process_indexes_and_another_one_queries(postgres, namespace):
    """The example of LlamaIndex's page on vector stores, with a process for each half."""
    outputs, requests = processes(SEARCH, postgres, namespace, ["Basel"], ["write", "read"])
    assert outputs == ["", "Basel\n['The opera of Oslo stands at the fjord.']\n"]
    assert "Basel has a zoo." in requests[0]["messages"][-1]["content"]
