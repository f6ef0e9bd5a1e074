"""Calls of the session services of Google ADK."""

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig

APP, ADA, BOB = "app", "ada", "bob"


def event(delta=None, **fields):
    return Event(author="user", actions=EventActions(state_delta=delta or {}), **fields)


class User:
    """Calls a service for one user."""

    def __init__(self, service, user=ADA, app=APP):
        self.service, self.scope = service, {"app_name": app, "user_id": user}

    async def create(self, id=None, state=None):
        return await self.service.create_session(**self.scope, session_id=id, state=state)

    async def get(self, id, **config):
        given = GetSessionConfig(**config) if config else None
        return await self.service.get_session(**self.scope, session_id=id, config=given)

    async def delete(self, id):
        await self.service.delete_session(**self.scope, session_id=id)

    async def names(self):
        return [session.id for session in (await self.service.list_sessions(**self.scope)).sessions]
