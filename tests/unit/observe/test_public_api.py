"""The public names of ``assay_stream.observe``, and what loading them pulls in."""

import subprocess
import sys

import pytest

import assay_stream.observe

BLOCKED = ("aiohttp", "cryptography", "faust", "jsonschema", "msgspec", "rich", "structlog", "typer", "yaml")


def without_extras(code: str) -> subprocess.CompletedProcess[str]:
    blocking = f"import sys; sys.modules.update(dict.fromkeys({BLOCKED!r}))\n"
    return subprocess.run([sys.executable, "-c", blocking + code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", assay_stream.observe.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(assay_stream.observe, name) is not None


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = assay_stream.observe.nothing


def test_a_proxy_loads_nothing_of_an_extra() -> None:
    """Publishing, tapping and enforcing work with the packages of the base install."""
    names = [name for name in assay_stream.observe.__all__ if not name.startswith("from_")]
    code = (
        f"from assay_stream.observe import {', '.join(names)}\nimport assay_stream.observe.gate\n"
        "from assay_stream.kafka.connection import follow\n"  # as its thread of verdicts does
        "from assay_stream.schemes.fingerprint import fingerprint\n"
        "print(len(fingerprint({'name': 'a', 'inputSchema': {}}, server_id='s').schemes) > 5)"
    )
    done = without_extras(code)
    assert done.stdout == "True\n", done.stderr


def test_a_missing_extra_is_named() -> None:
    """The readers of recorded traffic need the models."""
    done = without_extras("from assay_stream.observe import from_assay_log")
    assert "extra_missing" in done.stderr
    assert "assay-stream[cli]" in done.stderr
    assert "pip install '.[cli]'" in done.stderr
