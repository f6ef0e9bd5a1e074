"""The newest messages of a transcript by LangChain's trim_messages.

    trim_messages.py TRANSCRIPT.jsonl KEEP CALLS

Reads `larder export`'s lines, and prints the version and the microseconds of a call.
"""

import json
import sys
import time
from importlib.metadata import version

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage, trim_messages


def message(line):
    role, text = line["role"], line.get("text", "")
    if role == "user":
        return HumanMessage(text)
    if role == "system":
        return SystemMessage(text)
    if role == "tool":
        result = line["tool_results"][0]
        return ToolMessage(result["content"], tool_call_id=result["call_id"])
    calls = [
        {"id": call["id"], "name": call["name"], "args": json.loads(call["arguments"])}
        for call in line.get("tool_calls", [])
    ]
    return AIMessage(text, tool_calls=calls)


def main(path, keep, calls):
    with open(path, encoding="utf-8") as lines:
        messages = [message(json.loads(line)) for line in lines]
    taken = []
    for _ in range(calls):
        begun = time.perf_counter()
        window = trim_messages(messages, max_tokens=keep, token_counter=len, strategy="last", start_on="human")
        taken.append(time.perf_counter() - begun)
        if not 0 < len(window) <= keep:
            raise SystemExit(f"trim_messages kept {len(window)} messages")
    print(version("langchain-core"), 1e6 * sum(taken) / len(taken))


main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
