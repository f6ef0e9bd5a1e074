"""The objects for LangChain, beyond LangChain's suites."""

import asyncio
import time

import pytest
from langchain_core.chat_history import InMemoryChatMessageHistory
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.globals import set_llm_cache
from langchain_core.indexing import InMemoryRecordManager, aindex, index
from langchain_core.language_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    RemoveMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.outputs import ChatGeneration
from langchain_core.prompts import ChatPromptTemplate, MessagesPlaceholder
from langchain_core.runnables.history import RunnableWithMessageHistory
from programs import output

import larder
from larder.langchain import (
    LarderByteStore,
    LarderCache,
    LarderChatMessageHistory,
    LarderRecordManager,
    LarderVectorStore,
)

CALL = {"name": "weather", "args": {"city": "Oslo"}, "id": "c1", "type": "tool_call"}

MESSAGES = [
    HumanMessage("Hello", id="1", name="Ann"),
    SystemMessage("Be brief.", additional_kwargs={"__openai_role__": "developer"}),
    HumanMessage([{"type": "text", "text": "one"}, {"type": "image", "url": "https://x"}, "two"]),
    AIMessage(
        "", tool_calls=[CALL], usage_metadata={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
    ),
    AIMessage([{"type": "reasoning", "summary": []}], response_metadata={"model": "m", "temperature": 1e16}),
    AIMessage(
        "bad",
        invalid_tool_calls=[{"name": "f", "args": "{", "id": "c", "error": "e", "type": "invalid_tool_call"}],
    ),
    AIMessage("", tool_calls=[{"name": "", "args": {}, "id": None, "type": "tool_call"}]),
    AIMessageChunk(
        "part",
        tool_call_chunks=[{"name": "f", "args": "{", "id": "c", "index": 0, "type": "tool_call_chunk"}],
    ),
    ToolMessage("Snow \0 é 🦀", tool_call_id="c1", artifact={"raw": [1, None]}),
    ToolMessage([{"type": "text", "text": "no"}], tool_call_id="c1", status="error"),
    ToolMessage("", tool_call_id=""),
    FunctionMessage("result", name="f"),
    ChatMessage("Aye", role="pirate"),
    HumanMessage("a lone surrogate: \ud800"),
    RemoveMessage(id="1"),
]


@pytest.fixture
def history(stores):
    return LarderChatMessageHistory("session-1", stores)


def test_messages_read_back_equal(history):
    history.add_messages(MESSAGES)
    assert history.messages == MESSAGES
    assert list(map(type, history.messages)) == list(map(type, MESSAGES))
    assert asyncio.run(history.aget_messages()) == MESSAGES


def test_other_programs_read_text_calls_and_results(stores, history):
    history.add_messages([MESSAGES[at] for at in (0, 1, 3, 8, 9)])
    found = [stored.message for stored in stores.history.tail(("langchain", "session-1"), 10)]
    assert [message.role for message in found] == ["user", "system", "assistant", "tool", "tool"]
    assert [message.text for message in found] == ["Hello", "Be brief.", "", "", ""]
    assert found[2].tool_calls == (larder.ToolCall("c1", "weather", '{"city": "Oslo"}'),)
    assert found[3].tool_results == (larder.ToolResult("c1", "Snow \0 é 🦀"),)
    assert found[4].tool_results == (larder.ToolResult("c1", "no", is_error=True),)


def test_messages_of_other_programs_are_read(stores, history):
    result = larder.ToolResult("c1", "snow", is_error=True)
    messages = [larder.Message.user("Hello"), larder.Message.assistant("Hi"), larder.Message.tool(result)]
    stores.history.append(("langchain", "session-1"), messages)
    expected = [
        HumanMessage("Hello"),
        AIMessage("Hi"),
        ToolMessage("snow", tool_call_id="c1", status="error"),
    ]
    assert history.messages == expected


def test_a_history_is_limited_cleared_and_expires(stores):
    history = LarderChatMessageHistory("s", stores, limit=2, ttl=larder.Ttl(0.5))
    other = LarderChatMessageHistory("other", stores)
    for one in (history, other):
        one.add_messages([])
        one.add_user_message("1")
        one.add_ai_message("2")
        asyncio.run(one.aadd_messages([HumanMessage("3")]))
    assert [message.text for message in history.messages] == ["2", "3"]
    time.sleep(0.6)
    assert history.messages == []
    assert len(other.messages) == 3
    other.clear()
    assert other.messages == []
    other.add_user_message("4")
    asyncio.run(other.aclear())
    assert other.messages == []


def test_a_chain_remembers_its_messages(stores):
    """The example of LangChain's documentation, next to LangChain's own history in memory."""
    prompt = ChatPromptTemplate.from_messages([MessagesPlaceholder("history"), ("human", "{question}")])
    answers = {}
    for kind in (lambda id: LarderChatMessageHistory(id, stores), lambda id: InMemoryChatMessageHistory()):
        known = {}
        chain = RunnableWithMessageHistory(
            prompt | GenericFakeChatModel(messages=iter(["a", "b", "c"])),
            lambda id: known.setdefault(id, kind(id)),
            input_messages_key="question",
            history_messages_key="history",
        )
        for session, question in (("1", "x"), ("2", "y"), ("1", "z")):
            chain.invoke({"question": question}, {"configurable": {"session_id": session}})
        answers[kind] = [[m.text for m in known[id].messages] for id in ("1", "2")]
    assert list(answers.values()) == [[["x", "a", "z", "c"], ["y", "b"]]] * 2


def test_a_cache_saves_calls_of_models(stores):
    cache = LarderCache(stores)
    other = LarderCache(stores, bucket="other", ttl=0.5)
    model = FakeListChatModel(responses=["1", "2", "3", "4"])
    set_llm_cache(cache)
    try:
        assert [model.invoke("a").text, model.invoke("a").text, model.invoke("b").text] == ["1", "1", "2"]
        assert asyncio.run(model.ainvoke("a")).text == "1"
        cache.clear()
        assert model.invoke("a").text == "3"
    finally:
        set_llm_cache(None)
    generations = [ChatGeneration(message=AIMessage("x", tool_calls=[CALL]), generation_info={"n": [1]})]
    other.update("prompt", "model", generations)
    assert other.lookup("prompt", "model") == generations
    assert other.lookup("prompt", "model2") is None
    time.sleep(0.6)
    assert other.lookup("prompt", "model") is None


def test_a_byte_store_takes_any_number_of_keys(stores):
    store = LarderByteStore(stores, bucket="many")
    pairs = [(f"k{n:05}", b"%d" % n) for n in range(2_500)]
    store.mset([*pairs, ("k00000", b"last")])
    assert store.mget(["k00000", "k02499", "none"]) == [b"last", b"2499", None]
    assert list(store.yield_keys()) == [key for key, _ in pairs]
    assert len(list(store.yield_keys(prefix="k01"))) == 1_000
    large = [(f"l{n}", bytes(3_000_000)) for n in range(6)]
    store.mset(large)
    assert store.mget([key for key, _ in large]) == [value for _, value in large]
    store.mdelete([key for key, _ in pairs + pairs])
    assert [key for key in store.yield_keys()] == [key for key, _ in large]
    assert list(LarderByteStore(stores).yield_keys()) == []


def found(documents):
    return [document.page_content for document in documents]


@pytest.mark.parametrize("manager", ["ours", "langchain"])
def test_the_indexing_of_langchain_writes_changes_only(stores, manager):
    """The same steps with LangChain's manager in memory give the same counts."""
    store = LarderVectorStore(stores, DeterministicFakeEmbedding(size=4))
    records = LarderRecordManager("docs", stores) if manager == "ours" else InMemoryRecordManager("docs")
    records.create_schema()

    def documents(*texts):
        return [Document(text, metadata={"source": text[0]}) for text in texts]

    def run(texts, cleanup):
        options = {"cleanup": cleanup, "source_id_key": "source", "key_encoder": "sha256"}
        result = index(documents(*texts), records, store, **options)
        return tuple(result[f"num_{what}"] for what in ("added", "skipped", "deleted"))

    assert run(["a1", "b1", "b2"], None) == (3, 0, 0)
    assert run(["a1", "b1", "b2"], "incremental") == (0, 3, 0)
    assert run(["b1", "b3"], "incremental") == (1, 1, 1)
    assert run(["a1", "b3"], "full") == (0, 2, 1)
    assert sorted(found(store.similarity_search("x", k=10))) == ["a1", "b3"]

    async def more():
        options = {"cleanup": "full", "source_id_key": "source", "key_encoder": "sha256"}
        await records.acreate_schema()
        return await aindex(documents("c1"), records, store, **options)

    assert asyncio.run(more()) == {"num_added": 1, "num_updated": 0, "num_skipped": 0, "num_deleted": 2}
    assert found(store.similarity_search("x", k=10)) == ["c1"]


def test_records_are_listed_by_time_and_group(stores):
    records, other = LarderRecordManager("a", stores), LarderRecordManager("b", stores)
    begun = records.get_time()
    assert abs(begun - time.time()) < 60
    records.update(["1", "2"], group_ids=["x", None])
    time.sleep(0.01)
    middle = asyncio.run(records.aget_time())
    time.sleep(0.01)
    asyncio.run(records.aupdate(["2", "3"], group_ids=["x", "y"], time_at_least=middle))
    assert (
        records.exists(["1", "3", "4"])
        == asyncio.run(records.aexists(["1", "3", "4"]))
        == [True, True, False]
    )
    assert records.list_keys() == ["1", "2", "3"] and records.list_keys(limit=2) == ["1", "2"]
    assert records.list_keys(before=middle) == ["1"] and records.list_keys(after=middle) == ["2", "3"]
    assert asyncio.run(records.alist_keys(group_ids=["x"])) == ["1", "2"]
    assert records.list_keys(before=begun) == [] and other.list_keys() == []
    records.delete_keys(["1", "4"])
    asyncio.run(records.adelete_keys(["2"]))
    assert records.list_keys() == ["3"]
    records.update([])
    for options, field in (
        ({"group_ids": ["x"]}, "group_ids"),
        ({"time_at_least": begun + 1e6}, "time_at_least"),
    ):
        with pytest.raises(larder.InvalidInput) as caught:
            records.update(["1", "2"], **options)
        assert caught.value.field == field and isinstance(caught.value, ValueError)
    assert records.list_keys() == ["3"]


PROCESS = """
import sys
import larder
from langchain_core.embeddings import DeterministicFakeEmbedding
from larder.langchain import LarderChatMessageHistory, LarderVectorStore

with larder.open(sys.argv[1], namespace=sys.argv[2]) as stores:
    history = LarderChatMessageHistory("session", stores)
    history.add_user_message(sys.argv[3])
    store = LarderVectorStore(stores, DeterministicFakeEmbedding(size=8))
    store.add_texts([sys.argv[3]])
    print([message.text for message in history.messages], len(store.similarity_search("x")))
"""


def test_two_processes_share_a_database(postgres, namespace):
    outputs = [
        output(PROCESS, postgres, namespace, word)
        for word in ("one", "two")
    ]
    assert outputs == ["['one'] 1\n", "['one', 'two'] 2\n"]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda stores: LarderChatMessageHistory("s", stores, limit=-1), "limit"),
        (lambda stores: LarderChatMessageHistory("s", stores).add_messages(["text"]), "messages"),
        (
            lambda stores: LarderChatMessageHistory("s", stores).add_messages(
                [HumanMessage("", additional_kwargs={"a": {1}})]
            ),
            "messages",
        ),
        (lambda stores: LarderChatMessageHistory("s", stores).add_user_message("x" * 4_194_304), "message"),
        (lambda stores: LarderChatMessageHistory("", stores).messages, "session"),
        (lambda stores: LarderByteStore(stores).mset([("k", "text")]), "value"),
        (lambda stores: LarderByteStore(stores).mset([("", b"")]), "key"),
        (lambda stores: LarderByteStore(stores, bucket="").mget(["k"]), "bucket"),
    ],
)
def test_wrong_arguments_are_refused(call, field):
    with larder.open("memory:") as stores, pytest.raises(larder.InvalidInput) as caught:
        call(stores)
    assert caught.value.field == field
