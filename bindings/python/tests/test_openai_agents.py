"""Sessions of the OpenAI Agents SDK, with the semantics of the SDK's own."""

import asyncio
import json

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIResponsesModel,
    RunConfig,
    Runner,
    SQLiteSession,
    function_tool,
    set_tracing_disabled,
)
from agents.extensions.memory import EncryptedSession
from agents.memory import Session, SessionSettings
from locked import locked
from openai import AsyncOpenAI
from programs import output
from responses_server import calls, responses_server, said

import larder
from larder.openai_agents import LarderSession

set_tracing_disabled(True)

DEEP = {"content": "end"}
for _ in range(60):
    DEEP = {"content": [DEEP]}

ITEMS = [
    {"role": "user", "content": "Hello"},
    {"content": "the other order", "role": "user"},
    {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
    {
        "role": "user",
        "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "auto"}],
    },
    {
        "role": "user",
        "content": [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}],
    },
    said('Basel \0 é 🦀 \u2028 \\ " \ud800'[:-1]),
    {"role": "user", "content": "a lone surrogate: \ud800"},
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "thought"}],
        "encrypted_content": "gAAA",
    },
    {"type": "reasoning", "id": "rs_2", "summary": []},
    calls("weather", {"city": "Oslo"}),
    {"type": "function_call", "call_id": "", "name": "", "arguments": "not JSON"},
    {"type": "function_call", "call_id": "c", "name": "n" * 513, "arguments": "{}"},
    {"type": "function_call", "call_id": "c", "name": "n", "arguments": None},
    {"type": "function_call_output", "call_id": "call_1", "output": "Snow, -3 °C"},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "Snow"}]},
    {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_file", "file_id": "f"}]},
    {
        "type": "computer_call",
        "id": "cu_1",
        "call_id": "c",
        "action": {"type": "click", "x": 1, "y": -0.0},
        "status": "completed",
    },
    {
        "type": "computer_call_output",
        "call_id": "c",
        "output": {"type": "computer_screenshot", "image_url": "data:"},
    },
    {
        "type": "mcp_call",
        "id": "m",
        "server_label": "s",
        "name": "n",
        "arguments": "{}",
        "output": None,
        "error": "no",
    },
    {"type": "item_reference", "id": "msg_1"},
    {"type": "compaction", "encrypted_content": "gAAA"},
    {"type": 7, "role": [], "content": {"text": 1}},
    {"numbers": [1e16, 1.50, 2**70, -0.0, 1e400], "larder.openai_item": "x", "": None},
    {},
    DEEP,
]


@pytest.fixture
def session(stores):
    return LarderSession("user-123", stores)


def test_items_read_back_equal_with_their_fields_in_order(session):
    async def main():
        await session.add_items(ITEMS)
        return await session.get_items()

    assert list(map(json.dumps, asyncio.run(main()))) == list(map(json.dumps, ITEMS))
    assert isinstance(session, Session)


def test_other_programs_read_text_calls_and_results(stores, session):
    items = [{"role": "user", "content": "Hello"}, *(ITEMS[at] for at in (2, 4, 7, 9, 13, 14))]
    asyncio.run(session.add_items(items))
    messages = [stored.message for stored in stores.history.tail(("openai-agents", "user-123"), 10)]
    assert [(message.role, message.text) for message in messages] == [
        ("user", "Hello"),
        ("system", "Be brief."),
        ("user", "one\ntwo"),
        ("assistant", "thought"),
        ("assistant", ""),
        ("tool", ""),
        ("tool", ""),
    ]
    assert messages[4].tool_calls == (larder.ToolCall("call_1", "weather", '{"city": "Oslo"}'),)
    assert [message.tool_results[0].content for message in messages[5:]] == ["Snow, -3 °C", "Snow"]


def test_a_long_text_is_stored_once(stores, session):
    text = "x" * (4 * 1024 * 1024 - 2048)
    output = {"type": "function_call_output", "call_id": "c", "output": text}
    items = [{"role": "user", "content": text}, said(text), calls("n", text[:-2]), output]
    asyncio.run(session.add_items(items))
    assert asyncio.run(session.get_items()) == items
    assert stores.history.info(("openai-agents", "user-123")).bytes < 4 * (len(text) + 2048)


def test_messages_of_other_programs_are_items(stores, session):
    call, result = larder.ToolCall("c", "weather", "{}"), larder.ToolResult("c", "snow")
    messages = [
        larder.Message.user("Hello"),
        larder.Message.assistant("", [call]),
        larder.Message.tool(result),
    ]
    stores.history.append(("openai-agents", "user-123"), messages)
    assert asyncio.run(session.get_items()) == [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": "[calls weather({})]"},
        {"role": "assistant", "content": "[result of c: snow]"},
    ]


STEPS = [
    ("get_items",),
    ("pop_item",),
    ("clear_session",),
    ("add_items", []),
    ("add_items", [{"role": "user", "content": "1"}]),
    ("add_items", [{"role": "user", "content": f"{n}"} for n in range(2, 30)]),
    *(("get_items", limit) for limit in (None, 0, 1, 5, 29, 30, 100, -1, -7)),
    ("pop_item",),
    ("get_items", 2),
    ("add_items", [{"role": "assistant", "content": "again"}]),
    ("pop_item",),
    ("pop_item",),
    ("get_items", 3),
    ("clear_session",),
    ("get_items",),
    ("pop_item",),
    ("add_items", [{"role": "user", "content": "after"}]),
    ("get_items", -1),
]


@pytest.mark.parametrize("settings", [None, {"limit": 4}, SessionSettings(limit=0), {"limit": -1}])
def test_every_operation_returns_what_the_sessions_of_the_sdk_return(stores, settings):
    ours = LarderSession("s", stores, session_settings=settings)
    theirs = SQLiteSession("s", session_settings=settings)

    async def main():
        for name, *arguments in STEPS:
            assert await getattr(ours, name)(*arguments) == await getattr(theirs, name)(*arguments), name

    assert ours.session_settings == theirs.session_settings
    asyncio.run(main())
    theirs.close()


def test_sessions_are_separate(stores):
    sessions = [LarderSession("a", stores), LarderSession("b", stores), LarderSession("a", stores, agent="x")]

    async def main():
        for number, session in enumerate(sessions):
            await session.add_items([{"role": "user", "content": f"{number}"}])
        await sessions[0].clear_session()
        return [[item["content"] for item in await session.get_items()] for session in sessions]

    assert asyncio.run(main()) == [[], ["1"], ["2"]]


def test_more_items_than_one_call_takes(session, monkeypatch):
    monkeypatch.setattr("larder._adapter._PAGE", 1_000)
    items = [{"role": "user", "content": f"{n}"} for n in range(2_100)]
    large = [{"role": "user", "content": "x" * 3_000_000} for _ in range(6)]

    async def main():
        await session.add_items(items)
        assert await session.get_items() == items
        assert await session.get_items(2_050) == items[-2_050:]
        await session.add_items(large)
        assert await session.get_items(6) == large

    asyncio.run(main())


def test_of_100_concurrent_pops_no_two_return_the_same_item(url, namespace):
    items = [{"role": "user", "content": f"{n}"} for n in range(120)]
    if url.startswith("postgres"):
        # On a slow machine, the calls wait long for the lock of the thread.
        url += ("&" if "?" in url else "?") + "acquire_timeout_ms=120000&lock_timeout_ms=120000"

    async def main():
        sessions = [
            LarderSession.from_url("s", url, namespace=namespace) for _ in range(1 if url == "memory:" else 2)
        ]
        await sessions[0].add_items(items)
        popped = await asyncio.gather(*(sessions[n % len(sessions)].pop_item() for n in range(100)))
        assert len({item["content"] for item in popped}) == 100
        assert await sessions[-1].get_items() == items[:20]
        more = await asyncio.gather(*(sessions[0].pop_item() for _ in range(100)))
        assert sum(item is not None for item in more) == 20
        await sessions[0]._owned.aerase()
        for session in sessions:
            await session.aclose()

    asyncio.run(main())


def test_a_canceled_write_ends_before_the_cancellation_continues(tmp_path):
    """As in the SDK: the task that was canceled has no write in flight that could overtake the next."""

    async def main():
        async with await LarderSession.afrom_url("s", f"sqlite:{tmp_path}/a.db") as session:
            await session.add_items(ITEMS[:1])
            with locked(f"{tmp_path}/a.db"):
                task = asyncio.create_task(session.add_items(ITEMS[1:2]))
                await asyncio.sleep(0.2)
                task.cancel()
                await asyncio.sleep(0.2)
                assert not task.done()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await session.get_items() == ITEMS[:2]

    asyncio.run(main())


@function_tool
def weather(city: str) -> str:
    """Returns the weather of a city."""
    return f"{city}: snow"


def agent(url):
    client = AsyncOpenAI(api_key="none", base_url=url, max_retries=0)
    return Agent("assistant", tools=[weather], model=OpenAIResponsesModel("gpt-test", client))


def test_a_runner_sends_the_items_of_the_session_to_the_model(session):
    outputs = calls("weather", {"city": "Oslo"}), said("Snow in Oslo."), said("Cold.")

    async def main(url):
        first = await Runner.run(agent(url), "The weather in Oslo?", session=session)
        second = await Runner.run(agent(url), "And warm?", session=session)
        return first.final_output, second.final_output

    with responses_server(*outputs) as (url, requests):
        assert asyncio.run(main(url)) == ("Snow in Oslo.", "Cold.")
    items = asyncio.run(session.get_items())
    kinds = [item.get("type", item.get("role")) for item in items]
    assert kinds == ["user", "function_call", "function_call_output", "message", "user", "message"]
    # The second turn has every item of the first, byte for byte.
    assert json.dumps(requests[-1]["input"]) == json.dumps(items[:-1])
    assert len(requests) == 3


def test_the_settings_of_a_run_limit_the_items(session):
    with responses_server(said("1"), said("2"), said("3")) as (url, requests):
        for question in "abc":
            config = RunConfig(
                session_settings=SessionSettings(limit=2), model_settings=ModelSettings(store=False)
            )
            asyncio.run(Runner.run(agent(url), question, session=session, run_config=config))
    assert [len(request["input"]) for request in requests] == [1, 3, 3]
    assert len(asyncio.run(session.get_items())) == 6


def test_an_encrypted_session_wraps_the_session(stores):
    session = LarderSession("s", stores)
    encrypted = EncryptedSession(session_id="s", underlying_session=session, encryption_key="key")

    async def main():
        await encrypted.add_items(ITEMS[:2])
        assert await encrypted.get_items() == ITEMS[:2]
        assert await encrypted.pop_item() == ITEMS[1]
        assert "Hello" not in json.dumps(await session.get_items())
        await encrypted.clear_session()
        assert await session.get_items() == []

    asyncio.run(main())


PROCESS = """
import asyncio, sys
from agents import Agent, OpenAIResponsesModel, Runner, set_tracing_disabled
from openai import AsyncOpenAI
from larder.openai_agents import LarderSession

async def main(model_url, url, namespace, question):
    client = AsyncOpenAI(api_key="none", base_url=model_url)
    agent = Agent(
        name="Assistant",
        instructions="Reply very concisely.",
        model=OpenAIResponsesModel("gpt-test", client),
    )
    async with LarderSession.from_url("conversation_123", url, namespace=namespace) as session:
        result = await Runner.run(agent, question, session=session)
        print(result.final_output)

set_tracing_disabled(True)
asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_continue_one_session(postgres, namespace):
    """The example of the SDK's documentation, one process for each question."""
    with responses_server(said("San Francisco"), said("California")) as (model_url, requests):
        answers = [
            output(PROCESS, model_url, postgres, namespace, question)
            for question in ("What city is the Golden Gate Bridge in?", "What state is it in?")
        ]
    assert answers == ["San Francisco\n", "California\n"]
    texts = ["What city is the Golden Gate Bridge in?", "San Francisco", "What state is it in?"]
    sent = requests[1]["input"]
    assert [sent[0]["content"], sent[1]["content"][0]["text"], sent[2]["content"]] == texts


@pytest.mark.parametrize(
    ("items", "field", "limit"),
    [
        (["text"], "items", None),
        ([{"role": "user", "content": {1}}], "items", None),
        ([{"role": "user", "content": "x" * (4 * 1024 * 1024)}], "message", 4 * 1024 * 1024),
    ],
)
def test_items_that_do_not_fit_are_refused(items, field, limit):
    async def main():
        async with LarderSession.from_url("s", "memory:") as session:
            with pytest.raises(larder.InvalidInput) as caught:
                await session.add_items([{"role": "user", "content": "first"}, *items])
            assert (caught.value.field, caught.value.limit) == (field, limit)
            assert await session.get_items() == []

    asyncio.run(main())


def test_wrong_sessions_are_refused(tmp_path):
    with pytest.raises(larder.Unsupported):
        LarderSession.from_url("s", f"file:{tmp_path}/blobs")
    for id in ("", "s" * 513, "a\0"):
        with LarderSession.from_url(id, "memory:") as session, pytest.raises(larder.InvalidInput) as caught:
            asyncio.run(session.get_items())
        assert caught.value.field == "session"
