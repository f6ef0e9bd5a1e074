"""``python -m larder.mcp URL``: serves stores to models over the Model Context Protocol.

The server is that of the command ``larder mcp``: the tools for conversations, a memory graph, notes and tasks are
written in Rust. It serves over standard input and output, or with ``--http`` over streamable HTTP.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType

from larder import _native
from larder._errors import Error
from larder._stores import open

_TOKEN = "LARDER_MCP_TOKEN"
_URL = "LARDER_URL"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serves until the client closes the input or a signal arrives, and returns the exit code of the process.

    :param arguments: The arguments of the command line; those of this process by default.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.http is None:
        for name in ("keep_sessions", "sessions_max", "allow_host", "allow_origin"):
            if getattr(options, name):
                parser.error(f"--{name.replace('_', '-')} needs --http")
    urls = options.urls or [url for url in [os.environ.get(_URL)] if url]
    if not urls:
        parser.error(f"no URL (pass one, or set {_URL})")
    try:
        return _serve(urls, options)
    except Error as error:
        return _trouble(str(error))
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _serve(urls: Sequence[str], options: argparse.Namespace) -> int:
    # Sessions are written, even if the tools only read.
    reads = options.read_only and not options.keep_sessions
    with open(*urls, namespace=options.namespace, read_only=reads) as stores:
        native = stores._native.mcp(options.read_only)
        if native.tools() == 0:
            contracts = ", ".join(stores.contracts)
            return _trouble(f"no tools for {contracts} (use a backend with history, graph, tasks or key-value)")
        _stop_on_signals(native)
        if options.http is None:
            native.serve_stdio().wait()
            return 0
        token = os.environ.get(_TOKEN)
        if token == "":
            return _trouble(f"{_TOKEN} is empty; set a token or unset the variable")
        listening = native.listen(
            options.http,
            options.allow_host,
            options.allow_origin,
            token,
            options.sessions_max,
            options.keep_sessions,
        ).wait()
        _note(f"serves MCP at http://{listening.address()}/mcp")
        listening.serve().wait()
    return 0


def _stop_on_signals(native: _native.McpServer) -> None:
    """Lets a signal end the service, so that the stores are closed. A second one ends the process."""

    def stop(number: int, _: FrameType | None) -> None:
        signal.signal(number, signal.SIG_DFL)
        native.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)


def _note(text: str) -> None:
    print(f"larder: {text}", file=sys.stderr, flush=True)


def _trouble(text: str) -> int:
    _note(text)
    return 2


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        "python -m larder.mcp",
        description="Serve stores to models over the Model Context Protocol.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "urls",
        nargs="*",
        metavar="URL",
        help="URL of a backend, such as sqlite:./larder.db. With several URLs, each provides the contracts that "
        f"the earlier ones lack. The default is {_URL}, which keeps passwords off the command line.",
    )
    parser.add_argument("--namespace", default="default", help="namespace to serve")
    parser.add_argument(
        "--read-only", action="store_true", help="offer only the tools that change nothing"
    )
    parser.add_argument(
        "--http",
        metavar="ADDRESS",
        help="serve streamable HTTP on this address, such as 127.0.0.1:8765, instead of standard input and "
        f"output. For an address other than loopback, clients need the token in {_TOKEN}.",
    )
    parser.add_argument(
        "--keep-sessions",
        action="store_true",
        help="keep sessions and their stream events in the key-value store, so that clients continue after a "
        "restart",
    )
    parser.add_argument(
        "--sessions-max", type=_positive, metavar="N", help="maximum number of sessions over HTTP"
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="HOST",
        help="additional host name of the server, as in the Host header",
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="origin whose web pages may call the server, such as http://localhost:6274",
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
