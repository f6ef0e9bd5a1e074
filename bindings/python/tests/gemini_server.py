"""A model on the wire: an HTTP server that replies as the interface of Gemini does."""

import contextlib
import http.server
import json
import threading


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

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            requests.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            content = {"role": "model", "parts": [next(rest)]}
            body = json.dumps({"candidates": [{"content": content, "finishReason": "STOP"}]}).encode()
            self.send_response(200 if self.path.endswith(":generateContent") else 404)
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
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
