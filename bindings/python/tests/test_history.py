"""Conversations."""

import asyncio
import threading
from datetime import UTC, datetime

import pytest

import larder
from larder import Message, Thread

THREAD = Thread("assistant", "session-1")


def test_a_message_reads_back_equal_in_every_field(stores):
    message = Message(
        "assistant",
        "text \0 é 🦀",
        [larder.ToolCall("c1", "weather", '{"city":"Oslo"}')],
        [larder.ToolResult("c0", "snow", is_error=True)],
        [larder.BlobRef("images/1", "image/png", 7), larder.BlobRef("images/2")],
        larder.Author("researcher", "critic"),
        "run-1",
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        {"tenant": "acme", "nested": [1, 2.5, None, True]},
        12,
    )
    appended = stores.history.append(THREAD, message)
    assert appended.first == appended.last == 1
    [stored] = stores.history.tail(THREAD, 10)
    assert stored.seq == 1
    read = stored.message
    for name in Message.__slots__:
        expected = getattr(message, name)
        assert getattr(read, name) == (tuple(expected) if isinstance(expected, list) else expected), name
    stores.history.append(THREAD, read)
    assert stores.history.tail(THREAD, 1)[0].message == read


def test_a_thread_is_read_from_both_ends(stores):
    history = stores.history
    history.append(THREAD, [Message.user(str(number)) for number in range(1, 8)])
    assert [stored.text for stored in history.tail(THREAD, 2)] == ["6", "7"]
    page = history.tail(THREAD, 2, before=larder.Position(6))
    assert [stored.text for stored in page] == ["4", "5"]
    assert [stored.text for stored in history.page_after(THREAD, 5, 10)] == ["6", "7"]
    info = history.info(THREAD)
    assert (info.thread, info.messages, info.bytes, info.last) == (THREAD, 7, 7, 7)
    history.append(("other", "s"), Message.user("x"))
    assert [info.thread for info in history.threads("assistant")] == [THREAD]
    assert len(history.threads()) == 2


def test_a_page_has_the_last_position_and_at_most_16_mib(stores):
    history = stores.history
    assert (history.tail(THREAD, 9).last, history.tail(THREAD, 9).more) == (0, False)
    text = "x" * (3 << 20)
    for number in range(7):
        history.append(THREAD, Message.user(f"{number}{text}"))
    page = history.tail(THREAD, 100)
    assert ([stored.text[0] for stored in page], page.last, page.more) == (list("23456"), 7, True)
    assert (page.previous(100), page.next(100)) == (3, 7)
    page = history.tail(THREAD, 100, before=page.previous(100))
    assert ([stored.text[0] for stored in page], page.last, page.more) == (["0", "1"], 7, False)
    assert page.previous(100) is None
    assert history.messages(THREAD).next(10_000) == history.page_after(THREAD, 0, 100).next(100) == 5
    history.append(THREAD, Message.user("y"), if_last=page.last)
    with pytest.raises(larder.Conflict):
        history.append(THREAD, Message.user("z"), if_last=page.last)


def test_conditions_and_keys_protect_a_thread(stores):
    history = stores.history
    assert history.info(THREAD).last == 0
    first = history.append(THREAD, Message.user("1"), if_last=history.info(THREAD).last)
    with pytest.raises(larder.Conflict) as caught:
        history.append(THREAD, Message.user("2"), if_last=larder.Position(0))
    assert caught.value.context["last"] == 1
    again = [history.append(THREAD, Message.user("2"), idempotency_key="k") for _ in range(2)]
    assert again[0] == again[1] and again[0].last > first.last
    with pytest.raises(larder.Conflict):
        history.append(THREAD, Message.user("3"), idempotency_key="k")
    history.append(THREAD, Message.user("4"), fence=7)
    with pytest.raises(larder.Conflict):
        history.append(THREAD, Message.user("5"), fence=6)
    with pytest.raises(larder.Conflict):
        history.append(THREAD, Message.user("5"))


def test_messages_are_removed_replaced_and_copied(stores):
    history = stores.history
    history.append(THREAD, [Message.user(str(number)) for number in range(1, 6)])
    assert history.pop(THREAD).text == "5"
    [two] = history.remove(THREAD, [larder.Position(2)])
    assert two.text == "2"
    assert history.rewind(THREAD, 3) == 1
    assert [stored.text for stored in history.tail(THREAD, 9)] == ["1", "3"]
    seen = history.info(THREAD).last
    replaced = history.replace(THREAD, larder.Position(1), Message.system("summary"), seen=seen)
    assert replaced.removed == 1
    copy = Thread("assistant", "copy")
    assert history.fork(THREAD, copy).messages == 2
    assert sorted(stored.text for stored in history.tail(copy, 9)) == ["3", "summary"]
    history.append(copy, Message("user", "of a run", run="r"))
    assert history.clear_run(copy, "r") == 1
    history.set_ttl(copy, larder.Ttl(3600, refresh_on_use=True))
    history.set_ttl(copy, None)
    assert history.clear(copy) == 2
    assert history.pop(copy) is None


def test_a_message_is_updated_under_its_revision(stores):
    history = stores.history
    history.append(THREAD, [Message.user("1"), Message.user("2")])
    read = history.tail(THREAD, 1)[0]
    assert read.revision == read.seq == 2
    updated = history.update(THREAD, read, Message.user("[redacted]"))
    assert (updated.seq, updated.text) == (2, "[redacted]") and updated.revision > read.revision
    assert history.tail(THREAD, 2)[1] == updated
    with pytest.raises(larder.Conflict) as caught:
        history.update(THREAD, read, Message.user("3"))
    assert (caught.value.field, caught.value.context["revision"]) == ("revision", updated.revision)
    last = history.info(THREAD).last
    with pytest.raises(larder.Conflict):
        history.update(THREAD, updated, Message.user("3"), if_last=larder.Position(last - 1))
    message = Message.user("3")
    again = [
        history.update(THREAD, updated, message, if_last=last, idempotency_key="k", fence=7) for _ in range(2)
    ]
    assert again[0] == again[1]
    assert history.info(THREAD).last == last + 1
    with pytest.raises(larder.Conflict):
        history.update(THREAD, again[0], Message.user("4"), fence=6)
    events = history.subscribe(THREAD, last)
    event = next(events)
    assert (event.kind, event.message.text, event.data["of"]) == ("updated", "3", again[0].seq.text)
    history.remove(THREAD, [again[0].seq], fence=7)
    with pytest.raises(larder.NotFound):
        history.update(THREAD, again[0], Message.user("5"), fence=7)
    for wrong in ("text", 5):
        with pytest.raises(larder.InvalidInput):
            history.update(THREAD, wrong, Message.user("6"), fence=7)


@pytest.mark.parametrize("kind", ["pop", "rewind", "remove"])
def test_removals_have_conditions_keys_and_fences(stores, kind):
    history = stores.history
    arguments = {"pop": (), "rewind": (larder.Position(3),), "remove": ([larder.Position(4)],)}[kind]
    history.append(THREAD, [Message.user(str(number)) for number in range(1, 5)])

    def remove(**options):
        return getattr(history, kind)(THREAD, *arguments, **options)

    with pytest.raises(larder.Conflict) as caught:
        remove(if_last=larder.Position(3))
    assert caught.value.field == "if_last"
    again = [remove(if_last=larder.Position(4), idempotency_key="k", fence=7) for _ in range(2)]
    # Only a pop keeps what it removed.
    assert again[0] == again[1] or (kind == "remove" and again[1] == [])
    assert [stored.text for stored in history.tail(THREAD, 9)] == ["1", "2", "3"]
    with pytest.raises(larder.Conflict) as caught:
        remove(fence=6)
    assert caught.value.field == "fence"


def test_forks_and_times_to_live_are_fenced(stores):
    history = stores.history
    copy = Thread("assistant", "copy")
    history.append(THREAD, Message.user("1"))
    history.fork(THREAD, copy, fence=7)
    with pytest.raises(larder.Conflict):
        history.set_ttl(copy, None, fence=6)
    history.set_ttl(copy, None, fence=8)
    with pytest.raises(larder.Conflict):
        history.clear(copy, fence=7)


def test_messages_are_selected_by_author_and_read_by_offset(stores):
    history = stores.history
    authors = [None, larder.Author("a", "x"), larder.Author("b", "x"), larder.Author("b", "y")]
    history.append(
        THREAD, [Message("user", str(number), author=author) for number, author in enumerate(authors)]
    )

    def texts(**terms):
        filter = larder.MessageFilter(**terms)
        return "".join(stored.text for stored in history.tail(THREAD, 9, filter=filter))

    assert texts() == "0123"
    assert texts(include_agents=["a"]) == "1"
    assert texts(include_agents=["a"], include_roles=["y"]) == "13"
    assert texts(exclude_roles=["x"]) == "03"
    assert texts(include_agents=["b"], exclude_roles=["x"]) == "3"
    assert texts(exclude_agents=["assistant"]) == "123"
    assert [stored.text for stored in history.messages(THREAD, offset=1, limit=2)] == ["1", "2"]
    for wrong in ({"include_agents": "text"}, {"include_agents": [5]}, {"exclude_roles": ["r"] * 65}):
        with pytest.raises(larder.InvalidInput) as caught:
            texts(**wrong)
        assert caught.value.field == "filter"
    with pytest.raises(larder.InvalidInput):
        history.tail(THREAD, 9, filter={"include_agents": ["a"]})


def test_of_concurrent_pops_none_returns_a_message_twice(stores):
    stores.history.append(THREAD, [Message.user(str(number)) for number in range(60)])
    popped = []

    def pop():
        while (stored := stores.history.pop(THREAD)) is not None:
            popped.append(stored.text)

    threads = [threading.Thread(target=pop) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(map(int, popped)) == list(range(60))


@pytest.mark.parametrize(
    "message",
    ["text", Message("user", metadata={"set": {1}}), Message("user", metadata={"n": float("nan")})],
)
def test_a_message_that_json_cannot_represent_is_refused(message):
    with larder.open("memory:") as stores:
        with pytest.raises(larder.InvalidInput) as caught:
            stores.history.append(THREAD, message)
        assert caught.value.field == "messages"
        assert stores.history.tail(THREAD, 1) == []


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda history: history.tail(THREAD, "2"), "limit"),
        (lambda history: history.tail(THREAD, -1), "limit"),
        (lambda history: history.tail(THREAD, 10_001), "limit"),
        (lambda history: history.tail("session", 1), "thread"),
        (lambda history: history.tail(("a", 1), 1), "session"),
        (lambda history: history.clear(THREAD, fence=-1), "fence"),
        (lambda history: history.messages(THREAD, offset=-1), "offset"),
        (lambda history: history.append(THREAD, []), "messages"),
    ],
)
def test_wrong_arguments_are_refused(call, field):
    with larder.open("memory:") as stores, pytest.raises(larder.InvalidInput) as caught:
        call(stores.history)
    assert caught.value.field == field


@pytest.mark.parametrize("message", [Message("nobody"), Message("user", 5), Message("user", token_count=-1)])
def test_a_message_with_a_wrong_value_is_refused_without_showing_it(message):
    with larder.open("memory:") as stores:
        with pytest.raises(larder.InvalidInput) as caught:
            stores.history.append(THREAD, message)
        assert caught.value.field == "messages"
        assert "nobody" not in str(caught.value)


def test_events_are_streamed(stores):
    history = stores.history
    history.append(THREAD, Message.user("1"))
    events = history.subscribe(THREAD)
    assert next(events).message.text == "1"
    timer = threading.Timer(0.2, history.append, (THREAD, Message.user("2")))
    timer.start()
    event = next(events)
    assert (event.kind, event.message.text, event.seq) == ("appended", "2", 2)
    timer.join()


def test_the_async_twins_do_the_same(url, namespace):
    async def main():
        async with await larder.aopen(url, namespace=namespace) as stores:
            history = stores.history
            await history.aappend(THREAD, [Message.user(str(number)) for number in range(1, 6)])
            assert [stored.text for stored in await history.atail(THREAD, 2)] == ["4", "5"]
            assert len(await history.apage_after(THREAD, 1, 9)) == 4
            assert (await history.ainfo(THREAD)).messages == 5
            assert len(await history.athreads()) == 1
            assert len(await history.amessages(THREAD, offset=3)) == 2
            [read] = await history.atail(THREAD, 1)
            updated = await history.aupdate(THREAD, read, Message.user("new"))
            assert (await history.atail(THREAD, 1)) == [updated]
            await history.aupdate(THREAD, updated, Message.user("5"))
            assert (await history.apop(THREAD)).text == "5"
            assert len(await history.aremove(THREAD, [larder.Position(1)])) == 1
            assert await history.arewind(THREAD, 3) == 1
            last = (await history.ainfo(THREAD)).last
            await history.areplace(THREAD, larder.Position(2), Message.system("s"), seen=last)
            await history.aset_ttl(THREAD, larder.Ttl(3600))
            copy = Thread("assistant", "copy")
            assert (await history.afork(THREAD, copy)).messages == 2
            assert await history.aclear_run(copy, "none") == 0
            assert await history.aclear(copy) == 2
            async for event in history.asubscribe(THREAD):
                assert event.seq >= 1
                break
            await stores.aerase()

    asyncio.run(main())
