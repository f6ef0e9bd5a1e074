"""Transcripts, and copies between two stores."""

import asyncio
import json

import pytest
from conftest import url_of

import larder
from larder.toolkit import (
    Difference,
    TranscriptReader,
    acopy,
    aimport_transcript,
    copy,
    import_transcript,
    write_transcript,
)

THREAD = larder.Thread("assistant", "session-1")
CHAT = '{"role": "user", "content": "What is the weather in Oslo?", "lang": "en", "score": 1e16}\n'
CALL = (
    '{"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "weather",'
    ' "input": {"city": "Oslo"}}]}\n'
)
RESULT = '{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "Snow"}]}\n'


def test_a_reader_remembers_the_calls_of_earlier_texts():
    reader = TranscriptReader()
    assert reader.read(CHAT)[0].metadata["lang"] == "en"
    (call,) = reader.read(CALL)
    assert (call.tool_calls[0].name, json.loads(call.tool_calls[0].arguments)) == ("weather", {"city": "Oslo"})
    (result,) = reader.read(RESULT.encode())
    assert result.tool_results[0].content == "Snow"
    assert reader.report.paired_results == 0
    assert reader.read("") == []


def test_a_text_is_written_as_it_was_read():
    text = CHAT + CALL + RESULT
    messages = TranscriptReader().read(text)
    assert [json.loads(line) for line in write_transcript(messages)] == [
        json.loads(line) for line in text.splitlines()
    ]
    assert '"score":1e16' in write_transcript(messages)[0]
    assert TranscriptReader().read("\n".join(write_transcript(messages)))[0].text == messages[0].text


@pytest.mark.parametrize(
    "text", [f"[{CHAT.strip()}, {RESULT.strip()}]", json.dumps(json.loads(CHAT), indent=2) + RESULT]
)
def test_lists_and_values_over_several_lines_are_read(text):
    assert len(TranscriptReader(format=None).read(text)) == 2


@pytest.mark.parametrize(
    ("text", "options", "field", "context"),
    [
        ("no JSON", {}, "text", {}),
        (CHAT + '{"role": "usher", "content": "x"}', {}, "role", {"value": 2}),
        (CHAT, {"format": "gemini"}, "parts", {"value": 1}),
        (CHAT, {"format": "telex"}, "format", {}),
        (CHAT, {"format": 7}, "format", {}),
        (CHAT, {"conversation": 1.5}, "conversation", {}),
        (7, {}, "text", {}),
        (b"\xff", {}, "text", {}),
        ("\ud800", {}, "text", {}),
    ],
)
def test_a_wrong_text_or_option_is_named(text, options, field, context):
    with pytest.raises(larder.InvalidInput) as caught:
        TranscriptReader(**options).read(text)
    assert caught.value.field == field, caught.value
    assert context.items() <= caught.value.context.items()
    assert "usher" not in str(caught.value)


def test_an_import_adds_each_message_once(stores):
    text = "".join(f'{{"role": "user", "content": "{number}"}}\n' for number in range(1_200))
    first = import_transcript(stores, THREAD, text)
    assert (first.messages, first.added, first.last) == (1_200, 1_200, 1_200)
    again = asyncio.run(aimport_transcript(stores, THREAD, text.encode()))
    assert (again.messages, again.added, again.last) == (1_200, 0, 1_200)
    assert [stored.text for stored in stores.history.tail(THREAD, 2)] == ["1198", "1199"]


def test_a_wrong_transcript_changes_nothing(stores):
    with pytest.raises(larder.InvalidInput):
        import_transcript(stores, THREAD, CHAT + '{"role": "usher", "content": "x"}')
    with pytest.raises(larder.InvalidInput) as caught:
        import_transcript(stores, THREAD, CHAT, conversation="x")
    assert caught.value.field == "conversation"
    assert stores.history.info(THREAD).messages == 0


def test_one_conversation_of_several_is_imported(stores):
    documents = [{"id": name, "messages": [{"role": "user", "content": name}]} for name in ("a", "b")]
    text = json.dumps(documents)
    with pytest.raises(larder.InvalidInput):
        import_transcript(stores, THREAD, text)
    imported = import_transcript(stores, THREAD, text, conversation="b")
    assert (imported.added, imported.report.chosen_conversation) == (1, 2)
    assert import_transcript(stores, THREAD, text, conversation=1).added == 1
    assert [stored.text for stored in stores.history.tail(THREAD, 9)] == ["b", "a"]


def fill(stores):
    stores.history.append(THREAD, [larder.Message.user(f"message {number}") for number in range(30)])
    stores.key_value.set("trips", "basel", b"booked")
    if "blobs" in stores.contracts:
        stores.blobs.put("trips/ticket.txt", b"ticket")
    stores.vectors.put("cities", [larder.Document("oslo", "Oslo", [1.0, 0.5])])


@pytest.mark.parametrize("target", ["memory", "sqlite", "postgres"])
def test_a_copy_makes_both_sides_equal(stores, target, tmp_path, namespace):
    fill(stores)
    (tmp_path / "target").mkdir()
    url = url_of(target, tmp_path / "target")
    with larder.open(url, namespace=f"{namespace}-copy") as other:
        # Postgres has no blobs.
        contracts = [name for name in stores.contracts if name in other.contracts]
        try:
            copied = {one.contract: one for one in copy(stores, other, contracts=contracts)}
            assert all(one.equal for one in copied.values())
            assert (copied["history"].written, copied["key_value"].written) == (30, 1)
            assert copied["history"].source == copied["history"].target
            assert copied["history"].difference == Difference(30, 0, 0, 0)
            assert [stored.text for stored in other.history.tail(THREAD, 1)] == ["message 29"]
            assert other.vectors.get("cities", "oslo").content == "Oslo"
            again = asyncio.run(acopy(stores, other, contracts=contracts))
            assert sum(one.written for one in again) == 0
            if "blobs" in contracts:
                assert other.blobs.get("trips/ticket.txt") == b"ticket"
        finally:
            other.erase()


def test_other_data_in_the_target_is_kept_or_refused(stores):
    stores.key_value.set("b", "k", b"source")
    with larder.open("memory:") as target:
        target.key_value.set("b", "other", b"kept")
        with pytest.raises(larder.AlreadyExists) as caught:
            copy(stores, target, contracts=["key_value"])
        assert caught.value.field == "target"
        assert target.key_value.get("b", "k") is None
        (copied,) = copy(stores, target, contracts=["key_value"], existing="keep")
        assert (copied.written, copied.equal) == (1, True)
        target.key_value.set("b", "k", b"different")
        with pytest.raises(larder.AlreadyExists):
            copy(stores, target, contracts=["key_value"], existing="keep")
        (copied,) = copy(stores, target, contracts=["key_value"], existing="overwrite")
        assert (target.key_value.get("b", "k"), target.key_value.get("b", "other")) == (b"source", b"kept")


def test_data_that_the_target_cannot_hold_is_refused(tmp_path):
    with larder.open("memory:") as source, larder.open(f"file:{tmp_path}/files") as target:
        fill(source)
        with pytest.raises(larder.Unsupported, match="nothing was written") as caught:
            copy(source, target)
        assert caught.value.field == "target"
        (copied,) = copy(source, target, contracts=["blobs"])
        assert copied.equal and target.blobs.get("trips/ticket.txt") == b"ticket"
        with pytest.raises(larder.Unsupported):
            copy(source, target, contracts=["history"])


def test_wrong_arguments_of_a_copy_are_named(stores):
    for arguments, options, field in [
        ((stores, "memory:"), {}, "target"),
        ((None, stores), {}, "source"),
        ((stores, stores), {"contracts": "history"}, "contracts"),
        ((stores, stores), {"contracts": ["histories"]}, "contracts"),
        ((stores, stores), {"contracts": [7]}, "contracts"),
        ((stores, stores), {"existing": "hope"}, "existing"),
        ((stores, stores), {"existing": 7}, "existing"),
    ]:
        with pytest.raises(larder.InvalidInput) as caught:
            copy(*arguments, **options)
        assert caught.value.field == field, caught.value
