"""Models on the wire: an HTTP server that replies as Ollama and OpenAI do, for LlamaIndex and Haystack."""

import contextlib
import http.server
import json
import threading
import zlib


def embed(text):
    """Counts the words of a text, each at the index of its checksum."""
    values = [0.01] * 64
    for word in text.lower().replace(".", " ").replace("?", " ").split():
        values[zlib.crc32(word.encode()) % 64] += 1
    return values


def embeddings(texts):
    return [embed(text) for text in ([texts] if isinstance(texts, str) else texts)]


@contextlib.contextmanager
def model_server(*answers):
    """Yields the URL of a server with these answers, one a chat, and the list of the chats' requests."""
    requests, rest = [], iter(answers)

    def reply(path, request):
        if path == "/api/embed":
            return {"embeddings": embeddings(request["input"])}
        if path == "/v1/embeddings":
            items = [
                {"object": "embedding", "index": index, "embedding": values}
                for index, values in enumerate(embeddings(request["input"]))
            ]
            return {"object": "list", "data": items, "usage": {"prompt_tokens": 1, "total_tokens": 1}}
        assert path == "/api/chat"
        requests.append(request)
        return {"message": {"role": "assistant", "content": next(rest)}, "done": True}

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"model": request["model"], **reply(self.path, request)}).encode()
            self.send_response(200)
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
