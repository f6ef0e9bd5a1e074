"""Windows, pipelines and their models."""

import asyncio
import gc
import pickle

import pytest

import larder
from larder.toolkit import (
    AgentContext,
    CompactionAgent,
    LimitedWindow,
    Pipeline,
    SelectiveToolCall,
    SlidingWindow,
    Summarization,
    SummarySettings,
    TokenBudgetComposed,
    ToolResultTruncation,
    Truncation,
)

SHORT = Summarization(recent_token_budget=20, min_old_tokens=20)


def counted(count):
    return [larder.Message.user(f"I count, and now I am at {number}.") for number in range(count)]


def texts(window):
    return [message.text for message in window]


def test_a_context_appends_and_shows_a_window(stores):
    context = AgentContext(stores, agent="assistant", pipeline=[SlidingWindow(max_messages=2)])
    appended = context.append("s", [larder.Message.user(text) for text in ("one", "two", "three")])
    window = context.window("s", larder.Message.user("four"))
    assert texts(window) == ["three", "four"]
    assert [message.origin for message in window] == ["stored", "injected"]
    assert (window[0].seq, window[1].seq) == (appended.last, None)
    assert window[0].seq.generation == appended.last.generation
    # The context counts tokens once, when it appends.
    stored = stores.history.tail(("assistant", "s"), 1)[0]
    assert stored.message.token_count == window[0].message.token_count == 1
    assert context.clear("s") == 3
    assert context.window("s") == []


def test_an_awaited_context_does_the_same(stores):
    async def main():
        context = AgentContext(stores, pipeline=[])
        appended = await context.aappend("s", larder.Message.user("one"), idempotency_key="k")
        assert await context.aappend("s", larder.Message.user("one"), idempotency_key="k") == appended
        assert texts(await context.awindow("s")) == ["one"]
        assert (await context.aexplain_window("s")).result.messages == 1
        assert await context.aclear("s") == 1

    asyncio.run(main())


def test_an_explanation_has_the_effect_of_each_step(stores):
    result = larder.ToolResult("c", "x" * 900)
    messages = [
        larder.Message.user("old"),
        larder.Message.assistant("", [larder.ToolCall("c", "f", "{}")]),
        larder.Message.tool(result),
        larder.Message.user("new"),
    ]
    context = AgentContext(stores, pipeline=[ToolResultTruncation(max_chars=100), SlidingWindow(max_messages=3)])
    first = context.append("s", messages).first
    explanation = context.explain_window("s")
    assert explanation.reach == "the newest 3 messages"
    assert explanation.messages_read == 3
    truncation, sliding = explanation.steps
    assert (truncation.name, truncation.drops) == ("tool_result_truncation", False)
    assert [resized.seq for resized in truncation.shortened] == [first + 2]
    assert truncation.shortened[0].bytes_before > 900 > truncation.shortened[0].bytes_after
    assert (sliding.name, sliding.dropped) == ("sliding_window", [])
    assert explanation.result == sliding.after
    assert explanation.window == context.window("s")
    assert str(explanation).startswith("window: 3 messages")
    assert f"changed #{int(first) + 2}" in str(explanation)


def test_agents_that_share_a_session_see_their_part(stores):
    memory = LimitedWindow(filter=larder.MessageFilter(exclude_roles=["critic"]), read_last=2)
    writer = AgentContext(stores, agent="team", author=larder.Author("ada", "writer"), memory=memory)
    critic = AgentContext(stores, agent="team", author=larder.Author("bob", "critic"), pipeline=[])
    writer.append("s", [larder.Message.assistant("draft 1"), larder.Message.assistant("draft 2")])
    critic.append("s", larder.Message.assistant("no"))
    writer.append("s", larder.Message.assistant("draft 3"))
    assert texts(writer.window("s")) == ["draft 2", "draft 3"]
    assert texts(critic.window("s")) == ["draft 1", "draft 2", "no", "draft 3"]
    reader = AgentContext(stores, agent="team", memory=LimitedWindow(write=False))
    assert reader.append("s", larder.Message.user("not written")) is None


def test_the_messages_of_a_run_leave_at_its_end(stores):
    context = AgentContext(stores, retention="run")
    with pytest.raises(larder.InvalidInput) as caught:
        context.append("s", larder.Message.user("no run"))
    assert caught.value.field == "run"
    context.append("s", larder.Message("user", "only for now", run="run-1"))
    assert context.end_run("s", "run-1") == 1
    assert asyncio.run(context.aend_run("s", "run-1")) == 0
    assert context.window("s") == []
    assert AgentContext(stores, retention="none").append("s", larder.Message.user("x")) is None


def test_a_pipeline_shortens_messages_without_stores():
    call = larder.Message.assistant("", [larder.ToolCall("c", "f", "{}")])
    result = larder.Message.tool(larder.ToolResult("c", "y" * 50))
    messages = [larder.Message.user("one"), call, result, larder.Message.user("two")]
    assert len(Pipeline([]).compact(messages)) == 4
    cut = Pipeline([{"type": "tool_result_truncation", "max_chars": 10}]).compact(messages)
    assert cut[2].message.tool_results[0].content.startswith("yyyyyyyyyy")
    assert len(cut[2].message.tool_results[0].content) < 50
    assert texts(Pipeline([Truncation(max_messages=1)]).compact(messages)) == ["two"]
    budget = TokenBudgetComposed(token_budget=2, strategies=[SlidingWindow(max_messages=1)])
    assert texts(asyncio.run(Pipeline([budget]).acompact(messages))) == ["two"]
    calls = Pipeline([SelectiveToolCall(keep_recent_groups=1)]).compact(messages)
    assert len(calls) == 4
    assert Pipeline([]).compact(cut) == cut


def test_a_pipeline_summarizes_a_thread(stores):
    thread = larder.Thread("assistant", "s")
    stores.history.append(thread, counted(20))
    pipeline = Pipeline([SHORT], stores=stores, model=lambda request: "They count.")
    window = pipeline.compact(stores.history.messages(thread), thread)
    assert window[0].origin == "summary" and window[0].text.endswith("They count.")
    # Without a thread, there is nothing to keep a summary of.
    assert len(pipeline.compact(counted(20))) == 20


def test_a_compaction_makes_the_stored_thread_shorter(stores):
    thread = larder.Thread("assistant", "s")
    talk = [larder.Message.user("And then?"), larder.Message.assistant("Then we go to Oslo.")]
    stores.history.append(thread, talk * 10)

    async def model(request):
        return '{"userMessage": "Which trip?", "aiMessage": "Oslo."}'

    agent = CompactionAgent(stores, model, bytes_threshold=200)
    assert agent.compact(thread).removed == 20
    assert texts(stores.history.tail(thread, 10)) == ["Which trip?", "Oslo."]
    assert asyncio.run(agent.acompact(thread)) is None
    bad = CompactionAgent(stores, lambda request: "no JSON", bytes_threshold=1)
    with pytest.raises(larder.Unexpected):
        bad.compact(thread)


@pytest.mark.parametrize(
    ("settings", "field", "said"),
    [
        ({"pipeline": [SlidingWindow(max_messages=0)]}, "config", "max_messages"),
        ({"pipeline": [Truncation()]}, "config", "max_messages"),
        ({"pipeline": [{"type": "psychic"}]}, "config", "pipeline[0]"),
        ({"pipeline": [SlidingWindow(max_messages="5")]}, "config", "max_messages"),
        ({"pipeline": ["sliding_window"]}, "pipeline", "str"),
        ({"pipeline": SlidingWindow()}, "pipeline", "pass a list"),
        ({"pipeline": [SHORT]}, "model", "pass a model"),
        ({"pipeline": [SHORT], "model": 7}, "model", "pass a function"),
        ({"summaries": SummarySettings(summary_tokens_max=1)}, "summary_tokens_max", ""),
        ({"summaries": SummarySettings(on_failure="hope")}, "config", "on_failure"),
        ({"summaries": SummarySettings(timeout="1")}, "timeout", "seconds"),
        ({"retention": "forever"}, "config", "retention"),
        ({"agent": ""}, "agent", ""),
        ({"agent": 7}, "agent", "str"),
        ({"memory": LimitedWindow(read_last=0)}, "read_last", ""),
        ({"scan_messages_max": 0}, "scan_messages_max", ""),
        ({"pipeline": [TokenBudgetComposed(model="unknown")]}, "model", "context size"),
    ],
)
def test_a_wrong_setting_is_named(settings, field, said):
    if "summaries" in settings:
        # The settings of summaries are checked when a strategy needs them.
        settings = {**settings, "pipeline": [SHORT], "model": lambda request: "x"}
    with larder.open("memory:") as stores, pytest.raises(larder.InvalidInput) as caught:
        AgentContext(stores, **settings)
    assert caught.value.field == field, caught.value
    assert said in str(caught.value)


def test_wrong_arguments_are_named():
    with pytest.raises(larder.InvalidInput) as caught:
        AgentContext("memory:")
    assert caught.value.field == "stores"
    with larder.open("memory:") as stores:
        context = AgentContext(stores)
        for call, field in [
            (lambda: context.window(7), "session"),
            (lambda: context.window("s", ["text"]), "messages"),
            (lambda: context.append("s", "text"), "messages"),
            (lambda: Pipeline([]).compact(["text"]), "messages"),
            (lambda: Pipeline([SHORT], model=len), "stores"),
        ]:
            with pytest.raises(larder.InvalidInput) as caught:
                call()
            assert caught.value.field == field, caught.value
        with pytest.raises(TypeError, match="belongs to its process"):
            pickle.dumps(context)
    with pytest.raises(larder.Unavailable, match="closed"):
        context.window("s")


def test_a_context_keeps_its_stores_open():
    context = AgentContext(larder.open("memory:"))
    gc.collect()
    context.append("s", larder.Message.user("Hello"))
    assert texts(context.window("s")) == ["Hello"]
