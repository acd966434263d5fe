"""Plain calls: which calls take the short way, and which are left to the model."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assay_stream import __version__
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model import evidence, plain_call
from assay_stream.model.evidence import DecisionFields, DecisionPayload
from assay_stream.model.observation import CallData, CallModel
from assay_stream.model.plain_call import read_plain
from tests.support.events import SERVER, TEN_O_CLOCK_MS, a_call


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"error": {"code": "E", "message": "is dropped"}},
        {"actor": {"kind": "agent", "agent_id": "агент"}},
        {"ok": True, "delegation_depth": 2**53},
        {"x-unknown": {"is": ["passed", "over"]}},
    ],
    ids=str,
)
def test_an_ordinary_call_is_plain(data: dict[str, Any]) -> None:
    timing = {"started_at": "2026-03-01T00:00:10.500Z", "duration_ms": 12.5}
    written = json.loads(a_call(second=10.000001, **{"snapshot_id": "snapshot-1", "timing": timing, **data}))
    call = read_plain(json.dumps(written, separators=(",", ":"), ensure_ascii=False).encode(), DEFAULT_LIMITS)
    assert call is not None
    assert (call.server_id, call.tool_name, call.snapshot_id) == (SERVER, "read_file", "snapshot-1")
    assert call.time_us == TEN_O_CLOCK_MS * 1_000 + 10_000_001


@pytest.mark.parametrize(
    "limits", [Limits(record_bytes_max=10), Limits(depth_max=2), Limits(integer_digits_max=5)], ids=str
)
def test_narrower_limits_are_left_to_the_model(limits: Limits) -> None:
    """A bound that a plain call may exceed is checked where it is always checked."""
    assert read_plain(a_call(), limits) is None


def test_the_fields_that_are_written_stand_in_the_order_of_jcs() -> None:
    """msgspec writes them as they stand, also those of the objects within."""
    for written in (DecisionFields, *evidence._NESTED.values()):
        fields = written.__struct_fields__
        assert list(fields) == sorted(fields, key=lambda name: name.encode("utf-16-be"))


def test_what_calls_and_evidence_declare_is_known_here() -> None:
    """A field that only the model knew would be lost on the short way."""
    assert (
        set(DecisionFields.__struct_fields__)
        == CallData.__annotations__.keys() | DecisionPayload.__annotations__.keys()
    )
    assert set(plain_call.PlainEvent.__struct_fields__) == set(CallModel.model_fields)


_NATIVE = Path(__file__).parents[3] / "native"
_LOADED = "from assay_stream.model import plain_call as p; print(p.NATIVE_CALLS, p.read_native(b'{}', None))"


@pytest.mark.parametrize("says", ["", "extension.VERSION = '0.0.9'"])
def test_an_extension_that_is_not_of_this_version_is_not_used(says: str) -> None:
    """Nor a folder that an uninstallation left behind, which imports as a package that holds nothing."""
    given = f"import sys, types; extension = sys.modules['assay_stream_native'] = types.ModuleType('x'); {says}"
    ran = subprocess.run([sys.executable, "-c", f"{given}\n{_LOADED}"], capture_output=True, text=True, check=False)
    assert (ran.stdout, ran.stderr) == ("() None\n", "")


def test_the_extension_is_built_in_the_version_that_is_looked_for() -> None:
    """Else a release would build one that is never used."""
    built, packed = (tomllib.loads((_NATIVE / name).read_text()) for name in ("Cargo.toml", "pyproject.toml"))
    assert built["package"]["version"] == packed["project"]["version"] == __version__
