"""Runners of Google ADK with the services."""

import asyncio
import os

import pytest
from gemini_server import calls, gemini_server, said
from google.adk.agents import BaseAgent, ParallelAgent
from google.adk.artifacts import InMemoryArtifactService
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai.types import Content, Part
from programs import output

import larder
from larder.google_adk import LarderArtifactService, LarderSessionService

SCOPE = {"app_name": "app", "user_id": "ada", "session_id": "1"}


class Counter(BaseAgent):
    """Counts its turns in the states and in an artifact."""

    async def _run_async_impl(self, context):
        turn = context.session.state.get(self.name, 0) + 1
        version = await context.artifact_service.save_artifact(
            **SCOPE, filename=self.name, artifact=Part(text=f"{turn}")
        )
        actions = EventActions(
            state_delta={self.name: turn, f"user:{self.name}": turn, "temp:turn": turn},
            artifact_delta={self.name: version},
        )
        for text in ("begin", "end"):
            content = Content(role="model", parts=[Part(text=text)])
            invocation = {"author": self.name, "invocation_id": context.invocation_id}
            yield Event(**invocation, content=content, actions=actions.model_copy(deep=True))


async def turns(sessions, artifacts):
    """Makes three turns with agents that run at the same time, rewinds one, and returns what is stored."""
    agents = [Counter(name=name) for name in "abc"]
    runner = Runner(
        agent=ParallelAgent(name="all", sub_agents=agents),
        app_name="app",
        session_service=sessions,
        artifact_service=artifacts,
    )
    await sessions.create_session(**SCOPE)
    invocations = []
    for _ in range(3):
        message = Content(role="user", parts=[Part(text="count")])
        async for event in runner.run_async(user_id="ada", session_id="1", new_message=message):
            last = event
        invocations.append(last.invocation_id)
    await runner.rewind_async(user_id="ada", session_id="1", rewind_before_invocation_id=invocations[1])
    session = await sessions.get_session(**SCOPE)
    files = [await artifacts.load_artifact(**SCOPE, filename=name) for name in "abc"]
    versions = [await artifacts.list_versions(**SCOPE, filename=name) for name in "abc"]
    texts = sorted(
        f"{event.author} {event.content and event.content.parts[0].text}" for event in session.events
    )
    return session.state, texts, [file.text for file in files], versions


@pytest.mark.filterwarnings("ignore:.*ParallelAgent")
def test_agents_that_run_at_the_same_time_and_a_rewind(stores):
    ours = asyncio.run(turns(LarderSessionService(stores), LarderArtifactService(stores)))
    assert ours == asyncio.run(turns(InMemorySessionService(), InMemoryArtifactService()))
    assert ours[0]["a"] == 1 and ours[0]["user:a"] == 3
    assert ours[2:] == (["1"] * 3, [[0, 1, 2, 3]] * 3)


PROCESS = """
import asyncio, sys
from google.adk.agents import LlmAgent
from google.adk.runners import Runner
from google.adk.tools import load_memory
from google.genai.types import Content, Part
import larder
from larder.google_adk import LarderArtifactService, LarderMemoryService, LarderSessionService

APP_NAME = "memory_example_app"
USER_ID = "mem_user"
MODEL = "gemini-2.0-flash"

info_capture_agent = LlmAgent(
    model=MODEL, name="InfoCaptureAgent", instruction="Acknowledge the user's statement.", output_key="user:said",
)
memory_recall_agent = LlmAgent(
    model=MODEL,
    name="MemoryRecallAgent",
    instruction="Answer the user's question. Use the 'load_memory' tool "
                "if the answer might be in past conversations.",
    tools=[load_memory],
)

def embed(texts):
    return [[0.1, float("project" in text.lower())] for text in texts]

async def main(url, namespace, session_id, question):
    with larder.open(url, namespace=namespace) as stores:
        memory_service = LarderMemoryService(stores, embed)
        artifacts = LarderArtifactService(stores)
        runner = Runner(
            agent=info_capture_agent if session_id == "session_info" else memory_recall_agent,
            app_name=APP_NAME,
            session_service=LarderSessionService(stores),
            artifact_service=artifacts,
            memory_service=memory_service,
        )
        scope = {"app_name": APP_NAME, "user_id": USER_ID}
        created = await runner.session_service.create_session(**scope, session_id=session_id)
        user_input = Content(parts=[Part(text=question)], role="user")
        final_response_text = "(No final response)"
        async for event in runner.run_async(user_id=USER_ID, session_id=session_id, new_message=user_input):
            if event.is_final_response() and event.content and event.content.parts:
                final_response_text = event.content.parts[0].text
        print(final_response_text)
        completed_session = await runner.session_service.get_session(**scope, session_id=session_id)
        await memory_service.add_session_to_memory(completed_session)
        version = await artifacts.save_artifact(
            **scope, filename="user:answer", artifact=Part(text=final_response_text)
        )
        print(created.state, len(completed_session.events), version)

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_share_sessions_artifacts_and_memory(postgres, namespace):
    """The example of ADK's documentation on memory, one process for each turn."""
    turns = [
        ("session_info", "My favorite project is Project Alpha."),
        ("session_recall", "What is my favorite project?"),
    ]
    replies = [said("Noted."), calls("load_memory", {"query": "favorite project"}), said("Project Alpha.")]
    with gemini_server(*replies) as (model_url, requests):
        environment = {**os.environ, "GOOGLE_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": model_url}
        outputs = [
            output(PROCESS, postgres, namespace, *turn, env=environment).splitlines()
            for turn in turns
        ]
    assert outputs == [
        ["Noted.", "{} 2 0"],
        ["Project Alpha.", "{'user:said': 'Noted.'} 4 1"],
    ]
    [recalled] = [
        part["functionResponse"]
        for content in requests[2]["contents"]
        for part in content["parts"]
        if "functionResponse" in part
    ]
    assert "My favorite project is Project Alpha." in str(recalled["response"])
