"""A model on the wire: an HTTP server that replies as OpenAI's Responses interface does."""

import contextlib
import itertools
import json

from json_server import json_server


def said(text):
    """An item with what the model says."""
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}


def calls(name, arguments):
    """An item with a call of a tool."""
    fields = {"id": "fc_1", "call_id": "call_1", "status": "completed"}
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments), **fields}


@contextlib.contextmanager
def responses_server(*outputs):
    """Yields the URL of a server with these outputs, one a request, and the list of the requests."""
    requests, numbers, rest = [], itertools.count(1), iter(outputs)

    def reply(path, request):
        requests.append(request)
        document = {
            "id": f"resp_{next(numbers)}",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": request["model"],
            "output": [next(rest)],
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": request.get("tools", []),
        }
        return 200 if path == "/v1/responses" else 404, document

    with json_server(reply) as url:
        yield f"{url}/v1", requests
