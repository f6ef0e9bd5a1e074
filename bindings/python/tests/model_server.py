"""Models on the wire: an HTTP server that replies as Ollama and OpenAI do, for LlamaIndex and Haystack."""

import contextlib
import zlib

from json_server import json_server


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

    with json_server(lambda path, request: (200, {"model": request["model"], **reply(path, request)})) as url:
        yield url, requests
