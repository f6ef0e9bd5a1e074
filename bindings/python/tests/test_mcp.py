"""`python -m larder.mcp`, called by the client of the package `mcp`, and with bad arguments."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from mcp import Client, StdioServerParameters

import larder

COMMAND = [sys.executable, "-m", "larder.mcp"]
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "0"},
    },
}


def server(*arguments, **environment):
    inherited = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return StdioServerParameters(
        command=COMMAND[0], args=[*COMMAND[1:], *arguments], env={**inherited, **environment}
    )


def run(*arguments, **environment):
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env=os.environ | environment,
    )


def start(*arguments, **environment):
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        text=True,
        env=os.environ | environment,
    )


def test_a_client_lists_and_calls_the_tools(url, namespace):
    async def main():
        async with Client(server(url, "--namespace", namespace)) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {"note_put", "conversation_read", "task_claim"} <= tools
            put = await client.call_tool("note_put", {"key": "trip", "text": "Oslo"})
            assert not put.is_error, put
            got = await client.call_tool("note_get", {"key": "trip"})
            assert got.structured_content["note"]["text"] == "Oslo"
            refused = await client.call_tool("note_get", {"key": "k" * 606})
            assert refused.is_error
            error = refused.structured_content["error"]
            assert (error["kind"], error["field"], error["limit"]) == ("InvalidInput", "key", 512)
            resources = (await client.list_resources()).resources
            # A shared memory store ends with its process, and every backend has the note.
            assert "larder://note/trip" in [str(resource.uri) for resource in resources]

    asyncio.run(main())


def test_the_server_and_a_program_share_the_stores(tmp_path):
    url = f"sqlite:{tmp_path}/larder.db"
    thread = larder.Thread("assistant", "session-1")

    async def main(stores):
        await stores.history.aappend(thread, larder.Message.user("We go to Oslo."))
        async with Client(server(url)) as client:
            found = await client.call_tool("conversation_search", {"query": "Oslo"})
            assert "We go to Oslo." in json.dumps(found.structured_content)

    with larder.open(url) as stores:
        asyncio.run(main(stores))


def test_a_server_that_only_reads_offers_no_tool_that_writes(tmp_path):
    url = f"sqlite:{tmp_path}/larder.db"
    with larder.open(url) as stores:
        stores.history.append(("a", "s"), larder.Message.user("Hello"))

    async def main():
        async with Client(server(url, "--read-only")) as client:
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert "conversation_read" in tools
            assert not {"note_put", "graph_delete_entity", "task_claim"} & tools

    asyncio.run(main())


def test_the_url_may_be_in_the_environment(tmp_path):
    async def main():
        async with Client(server(LARDER_URL=f"sqlite:{tmp_path}/larder.db")) as client:
            assert len((await client.list_tools()).tools) == 30

    asyncio.run(main())


def ask(process, message):
    process.stdin.write(json.dumps(message) + "\n")
    process.stdin.flush()
    return json.loads(process.stdout.readline())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_server_and_closes_the_stores(tmp_path, number):
    with start(f"sqlite:{tmp_path}/larder.db") as process:
        ask(process, INITIALIZE)
        process.stdin.write(json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}) + "\n")
        put = {"name": "note_put", "arguments": {"key": "k", "text": "v"}}
        ask(process, {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": put})
        sent = time.monotonic()
        process.send_signal(number)
        assert process.wait(timeout=30) == 0, process.stderr.read()
        assert time.monotonic() - sent < 5
        assert process.stderr.read() == ""
    assert not (tmp_path / "larder.db-wal").exists()


def test_the_end_of_the_input_ends_the_server(tmp_path):
    with start(f"sqlite:{tmp_path}/larder.db") as process:
        assert ask(process, INITIALIZE)["result"]["serverInfo"]["name"] == "larder"
        process.stdin.close()
        assert process.wait(timeout=30) == 0
        # Nothing but messages is on standard output.
        assert process.stdout.read() == ""


def test_a_client_calls_the_server_over_http(tmp_path):
    async def main(address):
        async with Client(address) as client:
            assert not (await client.call_tool("note_put", {"key": "k", "text": "v"})).is_error

    with start(f"sqlite:{tmp_path}/larder.db", "--http", "127.0.0.1:0", "--keep-sessions") as process:
        try:
            said = process.stderr.readline()
            assert said.startswith("larder: serves MCP at http://127.0.0.1:"), said
            asyncio.run(main(said.split()[-1]))
            process.terminate()
            assert process.wait(timeout=30) == 0, process.stderr.read()
        finally:
            process.kill()
    assert not (tmp_path / "larder.db-wal").exists()


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ([], {}, "no URL (pass one, or set LARDER_URL)"),
        (["unknown://host"], {}, "`url`"),
        (["memory:", "--unknown"], {}, "unrecognized arguments: --unknown"),
        (["memory:", "--read"], {}, "unrecognized arguments: --read"),
        (["memory:", "--namespace", ""], {}, "`namespace`"),
        (["memory:", "--keep-sessions"], {}, "--keep-sessions needs --http"),
        (["memory:", "--http", "localhost"], {}, "`address`: is not an IP address with a port"),
        (["memory:", "--http", "0.0.0.0:0"], {}, "set LARDER_MCP_TOKEN"),
        (["memory:", "--http", "127.0.0.1:0"], {"LARDER_MCP_TOKEN": ""}, "LARDER_MCP_TOKEN is empty"),
        (["memory:", "--http", "127.0.0.1:0", "--sessions-max", "0"], {}, "--sessions-max"),
    ],
)
def test_wrong_arguments_are_refused(arguments, environment, said):
    result = run(*arguments, **environment)
    assert result.returncode == 2
    assert said in result.stderr
    assert "Traceback" not in result.stderr and result.stdout == ""


def test_a_backend_without_tools_is_refused(tmp_path):
    result = run(f"file:{tmp_path}/blobs")
    assert result.returncode == 2
    assert "no tools for blobs" in result.stderr


def test_an_address_in_use_is_named():
    with start("memory:", "--http", "127.0.0.1:0") as process:
        try:
            address = process.stderr.readline().split("//")[1].split("/")[0]
            result = run("memory:", "--http", address)
            assert result.returncode == 2
            assert "cannot listen on the address" in result.stderr
        finally:
            process.kill()
