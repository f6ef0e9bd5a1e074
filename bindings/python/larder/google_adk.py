"""Google ADK: sessions, artifacts and memory on any backend.

>>> import asyncio
>>> from larder.google_adk import LarderSessionService
>>> async def main():
...     async with LarderSessionService.from_url("memory:") as service:
...         session = await service.create_session(app_name="a", user_id="ada", state={"user:home": "Oslo"})
...         return session.state
>>> asyncio.run(main())
{'user:home': 'Oslo'}
"""

from larder._adapter import missing

try:
    import google.adk.sessions as _
except ModuleNotFoundError as _error:
    raise missing("larder.google_adk", "Google ADK", "google-adk") from _error

from larder._adk_artifacts import LarderArtifactService
from larder._adk_memory import LarderMemoryService
from larder._adk_sessions import LarderSessionService

__all__ = ["LarderArtifactService", "LarderMemoryService", "LarderSessionService"]
