"""Sessions of Google ADK: what ADK's own tests require of every session service."""

import asyncio

import pytest
from adk_users import ADA, APP, BOB, User, event
from conftest import BACKENDS, url_of
from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions import InMemorySessionService
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types

import larder
from larder.google_adk import LarderSessionService


@pytest.fixture(params=["adk", *BACKENDS])
def any_service(request, tmp_path, namespace):
    """The session service in memory of ADK, and that of Larder on each backend."""
    if request.param == "adk":
        yield InMemorySessionService()
    else:
        with larder.open(url_of(request.param, tmp_path), namespace=namespace) as stores:
            yield LarderSessionService(stores)
            stores.erase()


def test_a_session_is_created_read_and_deleted(any_service):
    async def main():
        ada = User(any_service)
        assert await ada.get("none") is None
        await ada.delete("none")
        session = await ada.create(state={"key": "value"})
        assert session.id and session.state == {"key": "value"} and session.events == []
        assert await ada.get(session.id) == session
        assert (await ada.create(id="  ")).id.strip()
        await ada.delete(session.id)
        assert await ada.get(session.id) is None

    asyncio.run(main())


def test_a_name_is_used_once_and_without_the_space_around_it(any_service):
    async def main():
        ada = User(any_service)
        assert (await ada.create(" trip\n", {"keep": 1})).id == "trip"
        for id in ("trip", "  trip  "):
            with pytest.raises(AlreadyExistsError):
                await ada.create(id, {"keep": 2, "app:set": 2})
        session = await ada.get("trip\n")
        assert session.id == "trip" and session.state == {"keep": 1}
        await ada.delete("\ttrip")
        assert await ada.get("trip") is None

    asyncio.run(main())


def test_states_have_the_scope_of_their_prefix(any_service):
    async def main():
        ada, bob = User(any_service), User(any_service, BOB)
        first = await ada.create("1", {"app:a": 1, "user:u": 2, "s": 3, "temp:t": 4})
        assert first.state == {"app:a": 1, "user:u": 2, "s": 3}
        await any_service.append_event(first, event({"app:b": 5, "user:v": 6, "r": 7, "temp:x": 8}))
        assert first.state["temp:x"] == 8 and first.state["app:b"] == 5
        stored = {"app:a": 1, "app:b": 5, "user:u": 2, "user:v": 6}
        assert (await ada.get("1")).state == {**stored, "s": 3, "r": 7}
        assert (await ada.create("2")).state == stored
        assert (await bob.create("1")).state == {"app:a": 1, "app:b": 5}
        assert (await User(any_service, app="other").create("1")).state == {}
        assert await any_service.get_user_state(app_name=APP, user_id=ADA) == {"u": 2, "v": 6}
        assert await any_service.get_user_state(app_name=APP, user_id=BOB) == {}
        assert await any_service.get_user_state(app_name="other", user_id=ADA) == {}
        # A deletion leaves the states of the app and of the user.
        await ada.delete("1")
        assert (await ada.get("2")).state == stored

    asyncio.run(main())


@pytest.mark.parametrize("scope", ["", "app:", "user:"])
def test_a_change_replaces_a_value_and_leaves_the_others(any_service, scope):
    async def main():
        ada = User(any_service)
        session = await ada.create("1", {scope + "d": {"a": 1, "b": 2}, scope + "n": 1, scope + "t": False})
        await any_service.append_event(session, event({scope + "d": {"a": 3}, scope + "n": None}))
        state = {scope + "d": {"a": 3}, scope + "n": None, scope + "t": False}
        assert session.state == state
        loaded = await ada.get("1")
        assert loaded.state == state
        assert loaded.events[0].actions.state_delta == {scope + "d": {"a": 3}, scope + "n": None}

    asyncio.run(main())


def test_temporary_state_is_in_the_session_of_the_caller_alone(any_service):
    async def main():
        ada = User(any_service)
        session = await ada.create("1")
        added = event({"temp:k": "v", "s": 1})
        await any_service.append_event(session, added)
        assert session.state == {"temp:k": "v", "s": 1} and added.actions.state_delta == {"s": 1}
        loaded = await ada.get("1")
        assert loaded.state == {"s": 1} and loaded.events[0].actions.state_delta == {"s": 1}

    asyncio.run(main())


def test_partial_events_are_not_stored(any_service):
    async def main():
        ada = User(any_service)
        session = await ada.create("1")
        await any_service.append_event(session, event({"s": 1}, partial=True))
        assert session.events == [] and session.state == {}
        assert await ada.get("1") == session

    asyncio.run(main())


COMPLETE = Event(
    invocation_id="invocation",
    author="user",
    content=types.Content(
        role="user",
        parts=[
            types.Part(text="\0 é 🦀 \u2028"),
            types.Part.from_bytes(data=b"\0\xff", mime_type="image/png"),
            types.Part.from_function_call(name="f", args={"x": [1, None, 1e16]}),
        ],
    ),
    turn_complete=True,
    partial=False,
    actions=EventActions(
        artifact_delta={"file": 0},
        transfer_to_agent="agent",
        escalate=True,
        requested_tool_confirmations={
            "call": ToolConfirmation(hint="sure?", confirmed=False, payload={"a": [1]})
        },
    ),
    long_running_tool_ids={"tool1", "tool2"},
    error_code="code",
    error_message="message",
    interrupted=True,
    grounding_metadata=types.GroundingMetadata(
        web_search_queries=["query"], search_entry_point=types.SearchEntryPoint(sdk_blob=b"\xfe")
    ),
    usage_metadata=types.GenerateContentResponseUsageMetadata(total_token_count=2),
    citation_metadata=types.CitationMetadata(),
    custom_metadata={"key": {"nested": None}},
    timestamp=1700000000.123,
    input_transcription=types.Transcription(text="said", finished=True),
    branch="a.b",
)


def test_an_event_reads_back_equal(any_service):
    async def main():
        ada = User(any_service)
        session = await ada.create("1")
        await any_service.append_event(session, COMPLETE.model_copy(deep=True))
        loaded = await ada.get("1")
        assert loaded == session and loaded.events == [COMPLETE]
        assert loaded.last_update_time == 1700000000.123

    asyncio.run(main())


def test_events_are_selected_by_number_and_time(any_service):
    async def main():
        ada = User(any_service)
        session = await ada.create("1")
        for number in range(1, 6):
            await any_service.append_event(session, event(timestamp=number))

        async def times(**config):
            return [event.timestamp for event in (await ada.get("1", **config)).events]

        assert await times() == [1, 2, 3, 4, 5]
        assert await times(num_recent_events=0) == []
        assert await times(num_recent_events=3) == [3, 4, 5]
        assert await times(num_recent_events=9) == [1, 2, 3, 4, 5]
        assert await times(after_timestamp=4.0) == [4, 5]
        assert await times(after_timestamp=50.0) == []
        assert await times(after_timestamp=4.0, num_recent_events=3) == [4, 5]
        assert await times(after_timestamp=2.0, num_recent_events=3) == [3, 4, 5]
        # A session with a part of its events continues.
        part = await ada.get("1", num_recent_events=1)
        await any_service.append_event(part, event(timestamp=6))
        assert await times(num_recent_events=2) == [5, 6]

    asyncio.run(main())


def test_events_of_one_time_keep_their_order(any_service):
    async def main():
        session = await User(any_service).create("1")
        for id in ("m", "z", "a"):
            await any_service.append_event(session, event(id=id, timestamp=100.0))
        assert [event.id for event in (await User(any_service).get("1")).events] == ["m", "z", "a"]

    asyncio.run(main())


def test_lists_are_in_the_order_of_the_updates_and_without_events(any_service):
    async def main():
        ada, bob = User(any_service), User(any_service, BOB)
        sessions = [await ada.create(id, {"s": id, "user:u": 1}) for id in ("1", "2", "3")]
        await bob.create("1", {"app:a": 1})
        times = [session.last_update_time for session in sessions]
        for number in (2, 0):
            await any_service.append_event(sessions[number], event({"t": 1}, timestamp=times[2] + 9 - number))
        assert await ada.names() == ["2", "3", "1"]
        [second, *_] = (await any_service.list_sessions(**ada.scope)).sessions
        assert second.events == [] and second.state == {"s": "2", "user:u": 1, "app:a": 1}
        everyone = (await any_service.list_sessions(app_name=APP)).sessions
        assert [(session.user_id, session.id) for session in everyone] == [
            *[(ADA, "2"), (BOB, "1")],
            *[(ADA, "3"), (ADA, "1")],
        ]
        assert "user:u" not in everyone[1].state
        assert await User(any_service, "").names() == []
        assert await User(any_service, app="none").names() == []
        # A listed session takes events.
        await any_service.append_event(second, event(timestamp=times[2] + 99))
        assert await ada.names() == ["3", "1", "2"]

    asyncio.run(main())


def test_names_with_any_characters_do_not_meet(any_service):
    async def main():
        pairs = [("a", "b/c"), ("a/b", "c"), ("a%2Fb", "c"), ("A", "b/c"), ("é", "🦀"), ("a:b", "c")]
        for user, id in pairs:
            await User(any_service, user).create(id, {"s": [user, id], "user:x/y": user})
        for user, id in pairs:
            assert (await User(any_service, user).get(id)).state == {"s": [user, id], "user:x/y": user}
            assert await User(any_service, user).names() == [id]
        assert len((await any_service.list_sessions(app_name=APP)).sessions) == len(pairs)

    asyncio.run(main())


def test_a_session_that_was_deleted_takes_no_event(any_service):
    async def main():
        ada = User(any_service)
        session = await ada.create("1")
        await any_service.append_event(session, event())
        await ada.delete("1")
        with pytest.raises(SessionNotFoundError):
            await any_service.append_event(session, event())
        assert await ada.get("1") is None

    asyncio.run(main())


def test_an_event_that_is_added_twice_is_stored_once(any_service):
    async def main():
        ada = User(any_service)
        session = await ada.create("1")
        added = event({"n": 1})
        for again in (added, added, added.model_copy(deep=True)):
            await any_service.append_event(session, again)
        assert len((await ada.get("1")).events) == 1 == len(session.events)
        # Another event of the same id is another event.
        await any_service.append_event(session, event({"n": 2}, id=added.id))
        assert [event.actions.state_delta["n"] for event in (await ada.get("1")).events] == [1, 2]

    asyncio.run(main())
