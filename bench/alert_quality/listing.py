"""A small MCP client: start a server over stdio without a network and read every page of its list of tools."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

START_LIMIT_S = 40
PAGES_LIMIT = 100
ATTEMPTS = 3
"""How often a server is started that asks for settings; each time with those that its error named."""

_SETTING = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_NOT_SETTINGS = re.compile(r"ERR_|NODE_|MODULE_|HTTP_|LD_|PYTHON|.*_PROFILE$")
"""Codes of errors, variables of the interpreters, and names of profiles, for which no value can be made up."""

_ISOLATE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
_LOOPBACK = 'ip link set lo up 2>/dev/null; exec "$@"'
_AS_NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs"]


class ListingError(Exception):
    """The server did not give its list; the text holds the end of its error output."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """What one start of a server showed.

    Args:
        tools: every page of ``tools/list``, as received.
        instructions: the server's instructions, empty where it has none.
    """

    tools: Sequence[Mapping[str, Any]]
    instructions: str


def list_tools(command: Sequence[str], *, env: Mapping[str, str], home: Path) -> Listing:
    """Start a server in a network namespace without routes and return its list.

    A server that refuses to start is started again with a dummy value for each setting that its error output names.

    Args:
        command: the program and its arguments.
        env: environment variables on top of ``PATH`` and ``HOME``.
        home: an empty folder that is its home and working folder.

    Raises:
        ListingError: the server ended, answered with an error, or took longer than ``START_LIMIT_S``.
    """
    settings = dict(env)
    for attempt in range(ATTEMPTS):
        try:
            return _list_once(command, settings, home)
        except ListingError as error:
            asked = {name: dummy(name) for name in _settings_named(str(error)) if name not in settings}
            if not asked or attempt == ATTEMPTS - 1:
                raise
            settings |= asked
    raise AssertionError("unreachable: the last attempt returns or raises")


def dummy(name: str) -> str:
    """Return a value that passes for the setting of that name.

    Args:
        name: the name of an environment variable.
    """
    if name.endswith(("URL", "URI", "ENDPOINT", "BASE", "ORIGIN")):
        return "http://127.0.0.1:9"
    if name.endswith("HOST"):
        return "127.0.0.1"
    if name.endswith("PORT"):
        return "9"
    return "dummy"


def _settings_named(text: str) -> Iterator[str]:
    return (name for name in _SETTING.findall(text) if not _NOT_SETTINGS.match(name))


def _list_once(command: Sequence[str], env: Mapping[str, str], home: Path) -> Listing:
    is_root = os.geteuid() == 0
    isolated = [
        *_ISOLATE,
        *([] if is_root else ["--user", "--map-root-user"]),
        *("sh", "-c", _LOOPBACK, "sh"),
        *(_AS_NOBODY if is_root else []),
        *command,
    ]
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", **env}
    with tempfile.TemporaryFile() as errors:
        server = subprocess.Popen(
            isolated,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            cwd=home,
            start_new_session=True,
        )
        deadline = threading.Timer(START_LIMIT_S, _kill, [server])
        deadline.start()
        try:
            return _Session(server).listing()
        except (OSError, ValueError, KeyError, TypeError) as error:
            _kill(server)
            server.wait()
            errors.seek(0)
            said = errors.read()[-4000:].decode(errors="replace")
            raise ListingError(f"{type(error).__name__}: {error}: {said}") from error
        finally:
            deadline.cancel()
            _kill(server)
            server.wait()
            _close(server.stdin, server.stdout)


def _kill(server: subprocess.Popen[bytes]) -> None:
    """End a server and all that it started: ``unshare`` and the first process of its namespace are one group.

    ``--kill-child`` alone leaves a server alive that changed its user.
    """
    if server.poll() is None:
        os.killpg(server.pid, signal.SIGKILL)


def _close(*pipes: IO[bytes] | None) -> None:
    for pipe in pipes:
        if pipe is not None:
            try:
                pipe.close()
            except BrokenPipeError:  # what was still to be written to a server that has ended
                continue


class _Session:
    """One client session: JSON-RPC, a message a line."""

    def __init__(self, server: subprocess.Popen[bytes]) -> None:
        assert server.stdin is not None
        assert server.stdout is not None
        self._to, self._from = server.stdin, server.stdout
        self._last_id = 0

    def listing(self) -> Listing:
        hello = self._ask(
            "initialize",
            {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "alert-quality", "version": "1"},
            },
        )
        self._send({"method": "notifications/initialized"})
        tools: list[Mapping[str, Any]] = []
        params: dict[str, Any] = {}
        for _ in range(PAGES_LIMIT):
            page = self._ask("tools/list", params)
            tools += page["tools"]
            if not page.get("nextCursor"):
                if not tools:
                    raise ValueError("it offers no tools")
                return Listing(tools=tools, instructions=hello.get("instructions") or "")
            params = {"cursor": page["nextCursor"]}
        raise ValueError(f"more than {PAGES_LIMIT} pages")

    def _send(self, message: Mapping[str, Any]) -> None:
        self._to.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        self._to.flush()

    def _ask(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any]:
        self._last_id += 1
        self._send({"id": self._last_id, "method": method, "params": params})
        for line in self._from:
            message = _message(line)
            if "method" in message and "id" in message:
                self._refuse(message)
            elif message.get("id") == self._last_id:
                if "error" in message:
                    raise ValueError(f"{method}: {message['error']}")
                result: Mapping[str, Any] = message["result"]
                return result
        raise ValueError(f"{method}: the server ended or took too long")

    def _refuse(self, request: Mapping[str, Any]) -> None:
        if request["method"] == "ping":
            self._send({"id": request["id"], "result": {}})
        else:
            self._send({"id": request["id"], "error": {"code": -32601, "message": "not offered by this client"}})


def _message(line: bytes) -> Mapping[str, Any]:
    """Return the message of a line; an empty one for what servers print beside the protocol."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
