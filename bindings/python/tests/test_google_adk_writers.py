"""Sessions of Google ADK: concurrent writers, limits, and what is stored."""

import asyncio
import copy
import json

import pytest
from adk_users import ADA, APP, User, event
from google.adk.errors._stale_session_error import StaleSessionError
from google.adk.events.event import Event
from google.adk.sessions import Session
from google.genai import types
from locked import locked

import larder
from larder.google_adk import LarderSessionService


@pytest.fixture
def service(stores):
    return LarderSessionService(stores)


def test_an_append_that_is_repeated_after_a_lost_connection_is_stored_once(service):
    """The write happened, and the caller did not learn it: its session is the one from before."""

    async def main():
        ada = User(service)
        session = await ada.create("1")
        before = copy.deepcopy(session)
        added = event({"n": 1})
        await service.append_event(session, added)
        await service.append_event(before, added)
        assert before == session == await ada.get("1")
        await service.append_event(before, event({"n": 2}))
        with pytest.raises(StaleSessionError):
            await service.append_event(session, event({"n": 3}))

    asyncio.run(main())


def test_of_two_writers_exactly_one_wins(stores, service):
    async def main():
        await User(service).create("1")
        for turn in range(8):
            loaded = await User(service).get("1")
            copies = [copy.deepcopy(loaded) for _ in range(4)]
            # Each writer is a service for itself, as in a process for itself.
            calls = [
                LarderSessionService(stores).append_event(
                    one, event({f"{turn}-{number}": 1, "app:last": number, "user:last": number})
                )
                for number, one in enumerate(copies)
            ]
            results = await asyncio.gather(*calls, return_exceptions=True)
            winners = [number for number, result in enumerate(results) if isinstance(result, Event)]
            assert len(winners) == 1
            losers = [result for result in results if not isinstance(result, Event)]
            assert all(isinstance(error, StaleSessionError) for error in losers)
            state = (await User(service).get("1")).state
            assert [key for key in state if key.startswith(f"{turn}-")] == [f"{turn}-{winners[0]}"]
            assert state["app:last"] == state["user:last"] == winners[0]
        assert len((await User(service).get("1")).events) == 8

    asyncio.run(main())


def test_tasks_that_share_a_session_append_in_order(service):
    async def main():
        session = await User(service).create("1")
        await asyncio.gather(
            *(service.append_event(session, event({"n": number}, id=f"{number}")) for number in range(20))
        )
        loaded = await User(service).get("1")
        assert [event.id for event in loaded.events] == [f"{number}" for number in range(20)]
        assert loaded == session and loaded.state == {"n": 19}

    asyncio.run(main())


def test_a_canceled_append_ends_before_the_cancellation_continues(tmp_path):
    async def main():
        async with await LarderSessionService.afrom_url(f"sqlite:{tmp_path}/a.db") as service:
            session = await User(service).create("1")
            with locked(f"{tmp_path}/a.db"):
                task = asyncio.create_task(service.append_event(session, event({"n": 1})))
                await asyncio.sleep(0.2)
                task.cancel()
                await asyncio.sleep(0.2)
                assert not task.done()
            with pytest.raises(asyncio.CancelledError):
                await task
            # The session of the caller has the event, too, and continues.
            assert await User(service).get("1") == session and len(session.events) == 1
            await service.append_event(session, event({"n": 2}))

    asyncio.run(main())


def test_a_session_from_json_is_stale_after_another_event(service):
    async def main():
        session = await User(service).create("1")
        await service.append_event(session, event(timestamp=session.last_update_time + 1))
        read = Session.model_validate_json(session.model_dump_json())
        read.last_update_time -= 0.0001
        await service.append_event(read, event(timestamp=session.last_update_time + 2))
        stale = Session.model_validate_json(session.model_dump_json())
        with pytest.raises(StaleSessionError):
            await service.append_event(stale, event())

    asyncio.run(main())


def test_a_session_of_a_deleted_one_of_its_name_is_stale(service):
    async def main():
        session = await User(service).create("1")
        await User(service).delete("1")
        await User(service).create("1")
        with pytest.raises(StaleSessionError):
            await service.append_event(session, event())

    asyncio.run(main())


def test_a_deletion_leaves_nothing(stores, service):
    async def main():
        session = await User(service).create("1", {"s": 1})
        for _ in range(3):
            await service.append_event(session, event({"s": 2}))
        await User(service).delete("1")

    asyncio.run(main())
    assert stores.key_value.buckets() == {}


def test_a_session_has_many_and_large_events(service):
    async def main():
        ada = User(service)
        session = await ada.create("1")
        for number in range(300):
            await service.append_event(session, event(timestamp=float(number)))
        large = types.Content(parts=[types.Part(text="x" * 7_000_000)])
        await service.append_event(session, event(content=large, timestamp=300.0))
        loaded = await ada.get("1")
        assert [event.timestamp for event in loaded.events] == list(range(301))
        assert loaded.events[-1].content == large
        assert len((await ada.get("1", after_timestamp=20.0)).events) == 281
        # Only the blocks with the selected events are read.
        reads, texts = [], service._texts

        async def counted(bucket, id, start, end):
            reads.append((start, end))
            return await texts(bucket, id, start, end)

        service._texts = counted
        assert len((await ada.get("1", after_timestamp=299.0)).events) == 2
        assert len((await ada.get("1", num_recent_events=2)).events) == 2
        assert reads == [(45, 301), (299, 301)]
        service._texts = texts
        with pytest.raises(larder.InvalidInput) as caught:
            huge = types.Content(parts=[types.Part(text="x" * 13_000_000)])
            await service.append_event(session, event(content=huge))
        assert (caught.value.field, caught.value.limit) == ("event", 12 * 1024 * 1024)
        assert await ada.get("1") == session

    asyncio.run(main())


def test_values_that_json_cannot_represent_are_stored_as_text(service):
    """As in the services of ADK that store JSON."""

    async def main():
        session = await User(service).create("1")
        await service.append_event(session, event({"call": len, "set": {1}, "ok": 2}))
        state = (await User(service).get("1")).state
        assert state["ok"] == 2 and state["set"] == [1] and isinstance(state["call"], str)
        with pytest.raises(larder.InvalidInput) as caught:
            await service.append_event(session, event(output=object()))
        assert caught.value.field == "event"
        with pytest.raises(larder.InvalidInput) as caught:
            await User(service).create("2", {"x": b"\xff"})
        assert caught.value.field == "state"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("scope", "state", "field"),
    [
        ({"app_name": "a" * 510, "user_id": ADA}, {}, "bucket"),
        ({"app_name": APP, "user_id": "u" * 511}, {}, "key"),
        ({"app_name": APP, "user_id": ADA}, {"app:" + "k" * 511: 1}, "key"),
        ({"app_name": APP, "user_id": ADA}, {"s": "x" * 4_194_304}, "value"),
    ],
)
def test_names_and_values_over_the_limits_are_refused(scope, state, field):
    async def main():
        async with await LarderSessionService.afrom_url("memory:") as service:
            with pytest.raises(larder.InvalidInput) as caught:
                await service.create_session(**scope, state=state)
            assert caught.value.field.endswith(field) and caught.value.limit

    asyncio.run(main())


def test_stores_without_small_state_are_refused(tmp_path):
    with pytest.raises(larder.Unsupported):
        LarderSessionService.from_url(f"file:{tmp_path}/blobs")


def test_a_head_is_json(stores, service):
    """Other programs can read what is stored."""
    asyncio.run(User(service).create("1", {"s": 1, "app:a": [2]}))
    [key] = [item.key for item in stores.key_value.entries("adk/app", "h/")]
    assert key == "h/ada/1"
    assert json.loads(stores.key_value.get("adk/app", key))["state"] == {"s": 1}
    assert stores.key_value.get("adk/app", "a/a") == b"[2]"
