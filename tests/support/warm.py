"""Our own programs, started from a process that has imported them already: importing takes longer than most commands.

What is started this way is a process like any other: a child of the test, with a pid, an environment, streams and
an exit code of its own. ``ASSAY_TEST_COLD=1`` starts everything anew.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import assay_stream
from assay_stream.errors import ConfigurationError

_ROOT = Path(__file__).resolve().parents[2]
_SCRIPTS = [f"tests.support.{name}" for name in ("conversing_server", "faulty_worker", "http_mcp_server", "mcp_tap")]
_AT_START = (
    *("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC_", "OPENSSL", "SSL_"),
    *("FORCE_", "NO_", "TERM", "PY_", "_TYPER", "GITHUB_", "FAUST", "MODE_"),
)
"""Variables that an interpreter or a library reads when it starts: where one is another, nothing is reused."""
_PR_SET_CHILD_SUBREAPER = 36


def _read_at_start(env: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in env.items() if name.startswith(_AT_START) and name != "PYTHONPATH"}


class _Template:
    def __init__(self) -> None:
        ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.env = _read_at_start(dict(os.environ))
        self._socket = ours
        self._prctl = ctypes.CDLL(None).prctl
        # Its own process, not one of a test's: the real class, whatever it is replaced by.
        self._process = _Popen(
            [sys.executable, "-m", "tests.support.warm", str(its.fileno())], cwd=_ROOT, pass_fds=[its.fileno()]
        )
        its.close()

    def fork(self, request: dict[str, Any], streams: list[int]) -> int:
        # An orphan falls to the next ancestor that asks for orphans, for as long as it does.
        self._prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        try:
            socket.send_fds(self._socket, [json.dumps(request).encode()], streams)
            answer = self._socket.recv(8)
        finally:
            self._prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)
        assert len(answer) == 8, "the process to fork from has ended"
        return int.from_bytes(answer, "big")


_REQUEST_BYTES_MAX = 1 << 17
_Popen = subprocess.Popen
_lock = threading.Lock()
_templates: list[_Template] = []


class WarmPopen(_Popen):  # type: ignore[type-arg]
    """Forks where the command is our own program in this interpreter, and starts anything else as ever."""

    def _execute_child(self, *given: Any) -> None:
        (args, executable, preexec, _close_fds, pass_fds, cwd, env, _startup, _flags, shell, *rest) = given
        pipes, (_restore, gid, gids, uid, umask, new_session, group) = rest[:6], rest[6:]
        command = [args] if isinstance(args, str | bytes) else [os.fspath(each) for each in args]
        env = {os.fsdecode(k): os.fsdecode(v) for k, v in (os.environ if env is None else env).items()}
        usual = (executable, preexec, pass_fds, shell, gid, gids, uid, umask, group)
        with _lock:
            if usual != (None, None, (), False, None, None, None, -1, -1) or not _is_ours(command, env):
                super()._execute_child(*given)  # type: ignore[misc]  # of CPython, in no stub
                return
            stdin, _, _, stdout, _, stderr = pipes
            streams = [stream if stream != -1 else number for number, stream in enumerate((stdin, stdout, stderr))]
            request = {"command": command[2:], "cwd": os.fspath(cwd or os.getcwd()), "env": env}
            self.pid = _templates[0].fork(request | {"new_session": new_session}, streams)
            self._child_created = True
            self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]


def _is_ours(command: list[Any], env: dict[str, str]) -> bool:
    if command[:2] != [sys.executable, "-m"] or len(command) < 3 or command[2] not in ("assay_stream", *_SCRIPTS):
        return False
    if not _templates:
        _templates.append(_Template())
    return _read_at_start(env) == _templates[0].env


def install() -> None:
    """Let whoever starts a process in this interpreter start it so."""
    if sys.platform.startswith("linux") and not os.environ.get("ASSAY_TEST_COLD"):
        subprocess.Popen = WarmPopen  # type: ignore[misc]


def _serve(link: socket.socket) -> dict[str, Any]:
    while True:
        data, descriptors, _, _ = socket.recv_fds(link, _REQUEST_BYTES_MAX, 3)
        if not data:
            os._exit(0)
        request: dict[str, Any] = json.loads(data)
        _load(request["command"][0])
        reading, writing = os.pipe()
        if (between := os.fork()) == 0:
            # The child in between ends at once: the other one is an orphan, and the test's.
            if (child := os.fork()) != 0:
                os.write(writing, child.to_bytes(8, "big"))
                os._exit(0)
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
            for descriptor in (*descriptors, reading, writing, link.detach()):
                os.close(descriptor)
            return request
        os.waitpid(between, 0)
        for descriptor in (*descriptors, writing):
            os.close(descriptor)
        link.sendall(os.read(reading, 8))
        os.close(reading)


def _load(program: str) -> None:
    """Import what a program imports, unless that was done; the program itself is run in each process anew."""
    if program not in sys.modules:
        importlib.import_module(program)
        _freeze()


def _freeze() -> None:
    # It looks for its descriptors in every process that is forked, and complains on standard error.
    assert "grpc" not in sys.modules, "leave out what imports it"
    assert threading.active_count() == 1, "a process with threads cannot fork safely"
    gc.collect()
    gc.freeze()


def _become(request: dict[str, Any]) -> None:
    if request["new_session"]:
        os.setsid()
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    for name, number, mode, errors in (
        ("stdin", 0, "r", "strict"),
        ("stdout", 1, "w", "strict"),
        ("stderr", 2, "w", "backslashreplace"),
    ):
        encoding = getattr(sys, name).encoding
        buffering = 1 if number == 2 or os.isatty(number) else -1
        stream = open(number, mode, buffering, encoding=encoding, errors=errors, closefd=False)  # noqa: SIM115
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.path[0] = request["cwd"]
    sys.argv = list(request["command"])


if __name__ == "__main__":
    _link = socket.socket(fileno=int(sys.argv[1]))
    for _module in pkgutil.walk_packages(assay_stream.__path__, "assay_stream."):
        # What needs an extra that is not installed is never run from here.
        with contextlib.suppress(ConfigurationError):
            if not _module.name.endswith("__main__"):
                importlib.import_module(_module.name)
    _freeze()
    _request = _serve(_link)
    _become(_request)
    for _script in _SCRIPTS:
        sys.modules.pop(_script, None)
    runpy.run_module(_request["command"][0], run_name="__main__", alter_sys=True)
