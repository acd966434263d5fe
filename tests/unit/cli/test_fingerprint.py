"""``assay-stream fingerprint``."""

import json
import subprocess
from functools import partial
from pathlib import Path

from assay_stream.schemes.fingerprint import SCHEMES, fingerprint
from tests.support.command import run_command

CAPTURES = Path(__file__).resolve().parents[2] / "data" / "captures"
LIST = CAPTURES / "mcp-server-time@2026.10.19.tools_list.json"
TOOL = {"name": "t", "description": "Does.", "inputSchema": {"type": "object"}}


run = partial(run_command, "fingerprint")


def lines(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, object]]:
    assert done.returncode == 0, done.stderr
    assert done.stderr == b""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_tool_on_standard_input() -> None:
    """A Tool object gives one line with every scheme."""
    (line,) = lines(run(stdin=json.dumps(TOOL).encode()))
    assert line == {"tool": "t", "fingerprints": dict(fingerprint(TOOL, server_id=None).schemes), "errors": {}}
    assert list(line["fingerprints"]) == list(SCHEMES)  # type: ignore[call-overload]


def test_a_list_in_a_file_and_the_response_around_it(tmp_path: Path) -> None:
    """A tools/list result and the JSON-RPC response around it give the same lines."""
    captured = json.loads(LIST.read_bytes())
    result = captured.get("result", captured)
    plain, wrapped = tmp_path / "plain.json", tmp_path / "wrapped.json"
    plain.write_text(json.dumps({"tools": result["tools"]}))
    wrapped.write_text(json.dumps({"jsonrpc": "2.0", "id": 1, "result": result}))
    one, other = lines(run(str(plain))), lines(run(str(wrapped)))
    assert one == other
    assert [line["tool"] for line in one] == [tool["name"] for tool in result["tools"]]


def test_several_files_come_one_after_the_other(tmp_path: Path) -> None:
    """The lines of each file stand in the order of the files."""
    paths = []
    for name in ("b", "a"):
        path = tmp_path / name
        path.write_text(json.dumps(TOOL | {"name": name}))
        paths.append(str(path))
    assert [line["tool"] for line in lines(run(*paths))] == ["b", "a"]


def test_the_server_enters_the_scoped_digest() -> None:
    """With --server-id assay.v1 is that of a server-scoped observation; the others stay."""
    raw = json.dumps(TOOL).encode()
    (scoped,), (unscoped,) = lines(run("--server-id", "s", stdin=raw)), lines(run(stdin=raw))
    assert scoped["fingerprints"] == dict(fingerprint(TOOL, server_id="s").schemes)
    assert scoped["fingerprints"] != unscoped["fingerprints"]


def test_a_scheme_that_refuses_is_null_with_its_error() -> None:
    """A definition that a scheme refuses is no error of the command."""
    (line,) = lines(run(stdin=b'{"name":"t","inputSchema":3}'))
    refusing = ("assay.v1", "mcptrust.description_hash", "mcptrust.input_schema_hash", "mcptrust.risk_level")
    assert line["errors"] == dict.fromkeys(refusing, "input_schema_not_object")
    assert line["fingerprints"]["assay.v1"] is None  # type: ignore[index]


def test_an_empty_list_is_an_answer() -> None:
    """A server without tools has none to print."""
    assert lines(run(stdin=b'{"tools":[]}')) == []
