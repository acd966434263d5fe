"""Which extension is used: one of this very version, or none."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from assay_stream import __version__

_NATIVE = Path(__file__).parents[3] / "native"
_LOADED = (
    "from assay_stream.model import plain_call; print(plain_call.NATIVE_CALLS, plain_call.read_native(b'{}', None))"
)


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
