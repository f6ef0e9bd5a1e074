"""A model on the wire: an HTTP server that replies as OpenAI's Responses interface does."""

import contextlib
import http.server
import itertools
import json
import threading


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

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            requests.append(request)
            reply = {
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
            body = json.dumps(reply).encode()
            self.send_response(200 if self.path == "/v1/responses" else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
