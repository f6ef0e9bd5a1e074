"""A model on the wire: an HTTP server that replies as the interface of Gemini does."""

import contextlib

from json_server import json_server


def said(text):
    """A part with what the model says."""
    return {"text": text}


def calls(name, arguments):
    """A part with a call of a tool."""
    return {"functionCall": {"name": name, "args": arguments}}


@contextlib.contextmanager
def gemini_server(*parts):
    """Yields the URL of a server with these parts, one a request, and the list of the requests."""
    requests, rest = [], iter(parts)

    def reply(path, request):
        requests.append(request)
        content = {"role": "model", "parts": [next(rest)]}
        document = {"candidates": [{"content": content, "finishReason": "STOP"}]}
        return 200 if path.endswith(":generateContent") else 404, document

    with json_server(reply) as url:
        yield url, requests
