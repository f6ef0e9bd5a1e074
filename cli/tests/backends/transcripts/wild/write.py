"""Writes the fixtures in the formats of OpenAI, Anthropic, Gemini, the OpenAI Agents SDK and LangGraph with their
packages.

    python3 -m venv /tmp/venv
    /tmp/venv/bin/pip install anthropic==2.14.0 google-genai==3.6.1 openai==3.57.0 openai-agents==0.24.0 \\
        langchain-core==1.8.3 langgraph==1.2.24 langgraph-checkpoint-sqlite==3.1.2
    /tmp/venv/bin/python write.py

Each package checks the types of what it writes. Databases become SQL, because the bytes of a database depend on the
version of SQLite.
"""

import asyncio
import json
import pathlib
import sqlite3
import tempfile

from agents import SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession
from anthropic.types import Message
from google.genai import types as gemini
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from openai.types.chat import ChatCompletionMessage
from openai.types.responses import Response, ResponseFunctionToolCall, ResponseOutputMessage, ResponseReasoningItem

FOLDER = pathlib.Path(__file__).parent


def written(value):
    """Returns an object of a package as the package writes it."""
    return json.loads(value.model_dump_json(exclude_none=True, by_alias=True))


def checked(kind, value):
    return written(kind.model_validate(value))


def write(name, lines):
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    (FOLDER / name).write_text(text, encoding="utf-8")


def dump(name, database):
    (FOLDER / name).write_text("\n".join(database.iterdump()) + "\n")


CALL = {"id": "call_1", "type": "function", "function": {"name": "platform", "arguments": '{"to":"Basel"}'}}
ITEMS = [
    {"role": "user", "content": "Which platform for Basel?"},
    checked(ResponseReasoningItem, {
        "id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "A look-up."}],
    }),
    checked(ResponseFunctionToolCall, {
        "id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "platform",
        "arguments": '{"to":"Basel"}', "status": "completed",
    }),
    {"type": "function_call_output", "call_id": "call_1", "output": "7"},
    checked(ResponseOutputMessage, {
        "id": "msg_1", "type": "message", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Platform 7.", "annotations": []}],
    }),
]


def openai():
    write("package-openai-chat.jsonl", [
        {"role": "user", "content": "Which platform for Basel?"},
        checked(ChatCompletionMessage, {"role": "assistant", "content": None, "tool_calls": [CALL]}),
        {"role": "tool", "tool_call_id": "call_1", "content": "7"},
        checked(ChatCompletionMessage, {"role": "assistant", "content": "Platform 7.", "annotations": []}),
    ])
    write("package-openai-responses.jsonl", ITEMS)


def anthropic():
    def message(at, content, reason):
        return checked(Message, {
            "id": f"msg_{at}", "type": "message", "role": "assistant", "model": "claude", "content": content,
            "stop_reason": reason, "usage": {"input_tokens": 9, "output_tokens": 5},
        })

    call = {"type": "tool_use", "id": "toolu_1", "name": "platform", "input": {"to": "Basel"}}
    write("package-anthropic.jsonl", [
        {"role": "user", "content": "Which platform for Basel?"},
        message(1, [{"type": "thinking", "thinking": "A look-up.", "signature": "c2ln"}, call], "tool_use"),
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "7"}]},
        message(2, [{"type": "text", "text": "Platform 7."}], "end_turn"),
    ])


def google():
    contents = [
        gemini.UserContent("Which platform for Basel?"),
        gemini.ModelContent([
            gemini.Part(text="A look-up.", thought=True),
            gemini.Part.from_function_call(name="platform", args={"to": "Basel"}),
        ]),
        gemini.UserContent(gemini.Part.from_function_response(name="platform", response={"result": "7"})),
        gemini.ModelContent("Platform 7."),
    ]
    write("package-gemini.jsonl", map(written, contents))


async def sessions():
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "plain.db"
        for name, items in [("basel-1", ITEMS), ("empty-2", []), ("bern-3", ITEMS[:1])]:
            session = SQLiteSession(name, path)
            await session.add_items(items)
            session.close()
        branched = pathlib.Path(folder) / "branched.db"
        session = AdvancedSQLiteSession(session_id="basel-1", db_path=branched, create_tables=True)
        await session.add_items(ITEMS)
        await session.add_items([{"role": "user", "content": "And for Bern?"}])
        await session.create_branch_from_turn(2, "other")
        await session.add_items([{"role": "user", "content": "And for Chur?"}])
        session.close()
        for file in [path, branched]:
            database = sqlite3.connect(file)
            for (table,) in database.execute("SELECT name FROM sqlite_schema WHERE sql LIKE '%created_at%'").fetchall():
                database.execute(f"UPDATE {table} SET created_at = '2026-01-02 03:04:05'")
            database.execute("UPDATE agent_sessions SET updated_at = '2026-01-02 03:04:05'")
            dump(f"package-openai-agents-{file.stem}.sql", database)
            database.close()


def langgraph():
    def model(state):
        last = state["messages"][-1]
        if last.type == "tool":
            return {"messages": AIMessage("Platform 7.", id="a2")}
        if "Bern" in last.content:
            return {"messages": []}
        content = [{"type": "text", "text": "I look."},
                   {"type": "tool_use", "id": "call_1", "name": "platform", "input": {"to": "Basel"}}]
        call = {"name": "platform", "args": {"to": "Basel"}, "id": "call_1"}
        return {"messages": AIMessage(content, id="a1", tool_calls=[call])}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_node("tool", lambda state: {"messages": ToolMessage("7", tool_call_id="call_1", id="t1")})
    graph.add_edge(START, "model")
    graph.add_edge("tool", "model")
    graph.add_conditional_edges(
        "model", lambda state: "tool" if getattr(state["messages"][-1], "tool_calls", None) else "__end__")
    with SqliteSaver.from_conn_string(":memory:") as saver:
        app = graph.compile(checkpointer=saver)
        for thread, question in [("basel-1", "Which platform for Basel?"), ("bern-2", "And for Bern?")]:
            app.invoke({"messages": HumanMessage(question, id="h1")}, {"configurable": {"thread_id": thread}})
        dump("package-langgraph.sql", saver.conn)


openai()
anthropic()
google()
asyncio.run(sessions())
langgraph()
