"""Plug-ins: found by name, imported when used, and refused by name where two clash or one is broken."""

import subprocess
import sys
import tomllib
from collections import Counter
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

from assay_stream.alerts.formats import as_lines, view_of
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.forward.receivers import read_receivers
from assay_stream.observe.logs.calls import from_log
from assay_stream.plugins import FEEDS, FORMATS, LOGS, RECEIVERS, Group
from tests.support.alerts import alert_of
from tests.support.errors import raises_code
from tests.support.logs import whose
from tests.support.strangers import put_distribution
from tests.support.toml import toml_of

GROUPS = (FEEDS, FORMATS, LOGS, RECEIVERS)
OURS = {point.module for group in GROUPS for point in entry_points(group=group.name)}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def refusal(group: Group[Any], name: str) -> str:
    with raises_code("bad_plugin", kind=ConfigurationError) as caught:
        group.load(name)
    return caught.value.message


@pytest.mark.parametrize("group", [FORMATS, RECEIVERS, LOGS], ids=lambda group: group.noun)
def test_each_of_ours_has_what_a_plug_in_must_have(group: Group[Any]) -> None:
    for name in group.names():
        group.load(name)


def test_the_contract_that_keeps_the_core_from_importing_them_names_each() -> None:
    pyproject = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    (contract,) = (each for each in pyproject["tool"]["importlinter"]["contracts"] if each["type"] == "protected")
    assert set(contract["protected_modules"]) >= OURS


def test_no_command_imports_one_that_is_not_named() -> None:
    """Not even to list the names in its help."""
    code = (
        "import sys; from assay_stream.cli import alerts, publishing, tap\n"
        f"print(sorted(sys.modules.keys() & {OURS!r}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_name_that_nobody_has_is_answered_with_those_there_are() -> None:
    assert "asim, cef, ecs, hec, jsonl, ocsf, ocsf-1.9, sarif" in refusal(FORMATS, "pdf")


def test_two_of_one_name_are_refused_with_both_owners(folder: Path) -> None:
    """Whoever can install a package must not take the place of ``slack`` unnoticed."""
    for name in ("one-pager", "two-pager"):
        put_distribution(folder, name, RECEIVERS.name, "pager", "PLUGIN = 1\n")
    assert "pager of one-pager 1.0 and of two-pager 1.0" in refusal(RECEIVERS, "pager")
    assert RECEIVERS.names().count("pager") == 1
    assert not {"one_pager", "two_pager"} & sys.modules.keys()


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("import nothing_of_this_name\n", "ModuleNotFoundError: No module named 'nothing_of_this_name'"),
        ("OTHER = 1\n", "AttributeError"),
        ("raise RuntimeError('no licence')\n", "RuntimeError: no licence"),
        ("PLUGIN = 1\n", "lacks media_type, write, write_file"),
    ],
)
def test_one_that_cannot_be_used_is_named_with_its_owner(folder: Path, code: str, why: str) -> None:
    name = f"broken-{abs(hash(code))}"
    put_distribution(folder, name, FORMATS.name, name, code)
    message = refusal(FORMATS, name)
    assert f"{name} 1.0" in message
    assert why in message


BAD = """
class PLUGIN:
    settings, is_for_people = {settings}, False
    def __init__(self, entry): raise KeyError(entry["type"] + " secret")
    def write(self, alert): ...
    async def send(self, view, body): ...
    async def close(self): ...
"""


@pytest.mark.parametrize(("settings", "why"), [("{}", "KeyError"), ("{'url': 'text'}", "AttributeError")])
def test_a_receiver_that_fails_is_named_and_not_quoted(folder: Path, settings: str, why: str) -> None:
    name = f"bad-{why.lower()}"
    put_distribution(folder, name, RECEIVERS.name, name, BAD.format(settings=settings))
    file = toml_of({"receivers": [{"name": "soc", "type": name}]}).encode()
    with pytest.raises(ConfigurationError, match=f"bad_receivers: r.toml, entry 1: .*{name} 1.0 fails: {why}$"):
        read_receivers(file, "r.toml", group_prefix="p")


LOG = """
from assay_stream.plugins import LogReader
def read(line, identity, whose, counts):
    yield from ()
    raise KeyError(line["secret"])
def decode(raw):
    return {"secret": 1} if raw == b"1" else raw.hidden
def split(pieces):
    yield b"1"
    raise OSError("hidden")
PLUGIN = LogReader(read=read, decode=decode, split=split if SPLITS else None)
"""


@pytest.mark.parametrize(
    ("splits", "said"),
    [(False, ["line 1: KeyError", "line 3: AttributeError"]), (True, ["line 1: KeyError", "line 2: OSError"])],
)
def test_a_log_reader_that_fails_is_named_with_its_line_and_not_quoted(
    folder: Path, splits: bool, said: list[str]
) -> None:
    """What it was given may be a secret, and so may the words of its exception. The lines after it are read."""
    name = f"bad-log-{splits}".lower()
    put_distribution(folder, name, LOGS.name, name, LOG.replace("SPLITS", str(splits)))
    errors: list[InputError] = []
    assert list(from_log(name, [b"1", b"", b"2"], whose(), Counter(), on_error=errors.append)) == []
    assert {error.code for error in errors} == {"plugin_failed"}
    fails = f"the log reader {name} of {name} 1.0 fails: "
    assert [error.message.replace(fails, "") for error in errors] == said


@pytest.mark.parametrize(
    ("many", "said"),
    [("None", f" on the alert {view_of(alert_of()).uid}: KeyError"), ("lambda alerts: alerts[9]", ": IndexError")],
)
def test_a_format_that_fails_is_named_with_its_alert(folder: Path, many: str, said: str) -> None:
    name = f"bad-format-{len(many)}"
    code = (
        "from assay_stream.plugins import Format\nPLUGIN = Format(media_type='text/plain', write=lambda a: a['none'], "
    )
    put_distribution(folder, name, FORMATS.name, name, f"{code}write_file={many})\n")
    with raises_code("plugin_failed") as caught:
        list(as_lines([alert_of()], name))
    assert caught.value.message == f"the format {name} of {name} 1.0 fails{said}"


@pytest.mark.parametrize("line", ["None", "b'x'", "'\\ud800'"])
def test_a_format_that_returns_no_text_is_named(folder: Path, line: str) -> None:
    name = f"no-text-{len(line)}"
    code = (
        f"from assay_stream.plugins import Format\nPLUGIN = Format(media_type='text/plain', write=lambda a: {line})\n"
    )
    put_distribution(folder, name, FORMATS.name, name, code)
    with raises_code("plugin_failed", match=f"the format {name} of {name} 1.0 fails"):
        list(as_lines([alert_of()], name))


def test_a_log_reader_that_yields_no_observation_is_named(folder: Path) -> None:
    code = "from assay_stream.plugins import LogReader\nPLUGIN = LogReader(read=lambda *_: [{}])\n"
    put_distribution(folder, "no-call", LOGS.name, "no-call", code)
    errors: list[InputError] = []
    assert list(from_log("no-call", [b"{}"], whose(), Counter(), on_error=errors.append)) == []
    assert [error.code for error in errors] == ["plugin_failed"]
