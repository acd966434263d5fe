r"""Alerts as CEF lines, held against "Implementing ArcSight CEF", revision 25.

"Character Encoding" there: a pipe in the header is escaped with a backslash, in the extension it is not; a
backslash is escaped with another in both; an equals sign is escaped in the extension, in the header it is not; a
line end is ``\n`` or ``\r`` in a value of the extension, and nothing else may hold one.
"""

import re
from typing import Any

import pytest

from assay_stream.alerts.formats import read_alert
from assay_stream.alerts.formats.cef import to_cef
from assay_stream.model.kinds import Kind
from tests.support.alerts import alert_of, alert_records, finding_of

_KEY = re.compile(r"(?:^| )([A-Za-z0-9]+)=")


def read_cef(line: str) -> tuple[list[str], dict[str, str]]:
    """Header fields and extension of a CEF line, by a reader that knows nothing of our writer."""
    fields, rest = [], line
    for _ in range(7):
        field, position = "", 0
        while rest[position] != "|":
            if rest[position] == "\\":
                assert rest[position + 1] in "\\|"
                position += 1
            field += rest[position]
            position += 1
        fields.append(field)
        rest = rest[position + 1 :]
    starts = list(_KEY.finditer(rest))
    ends = [match.start() for match in starts[1:]] + [len(rest)]
    pairs = {match[1]: rest[match.end() : end] for match, end in zip(starts, ends, strict=True)}
    unescaped = {"\\\\": "\\", "\\=": "=", "\\n": "\n", "\\r": "\r"}
    return fields, {key: re.sub(r"\\[\\=nr]", lambda m: unescaped[m[0]], text) for key, text in pairs.items()}


def cef(**members: Any) -> str:
    return to_cef(alert_of() | members)


def test_the_header_has_its_seven_fields() -> None:
    fields, _ = read_cef(cef())
    assert fields == [
        "CEF:0",
        "assay-stream",
        "assay-stream",
        "1.2.3",
        "tool_changed",
        "The definition of a tool changed",
        "8",
    ]


def test_the_extension_says_what_was_found() -> None:
    _, extension = read_cef(cef())
    assert extension["cs1"] == finding_of().uid()
    assert (extension["cs1Label"], extension["cs2Label"], extension["cs2"]) == ("uid", "serverId", "server")
    assert (extension["cs3Label"], extension["cs3"]) == ("toolName", "tool")
    assert (extension["cnt"], extension["rt"]) == ("1", "1772323200123")
    assert (extension["cn1"], extension["cn1Label"]) == ("4", "severityId")


def test_a_prompt_stands_where_a_tool_would() -> None:
    """Under a label of its own: six custom strings are all there are."""
    _, extension = read_cef(to_cef(alert_of(None, kind=Kind.PROMPT_CHANGED, item_name="ask")))
    assert (extension["cs3Label"], extension["cs3"]) == ("itemName", "ask")


@pytest.mark.parametrize(
    ("severity_id", "expected"), [(1, "1"), (2, "3"), (3, "5"), (4, "8"), (5, "10"), (6, "10"), (0, "Unknown")]
)
def test_the_severity_falls_into_the_band_of_its_name(severity_id: int, expected: str) -> None:
    """CEF, header "Severity": 0-3 low, 4-6 medium, 7-8 high, 9-10 very high, or Unknown."""
    assert read_cef(cef(severity_id=severity_id))[0][6] == expected


def test_a_pipe_and_a_backslash_are_escaped_in_the_header() -> None:
    r"""``detected a \ in packet | here`` is written ``detected a \\ in packet \| here``."""
    alert = alert_of()
    alert["finding_info"]["title"] = "detected a \\ in packet | here = x\nnext"
    line = to_cef(alert)
    assert "|detected a \\\\ in packet \\| here = x next|" in line
    assert read_cef(line)[0][5] == "detected a \\ in packet | here = x next"


def test_an_equals_sign_and_line_ends_are_escaped_in_the_extension() -> None:
    r"""``a=b``, a backslash and line ends are written ``a\=b``, ``\\``, ``\n`` and ``\r``; a pipe stays."""
    line = cef(message="a=b | c\\d\r\ne")
    assert " msg=a\\=b | c\\\\d\\r\\ne cn1=" in line
    assert read_cef(line)[1]["msg"] == "a=b | c\\d\r\ne"


def test_a_name_cannot_forge_a_field() -> None:
    name = "x cs1=forged\nCEF:0|evil|evil|1|1|1|1| cnt=99\u2028\x00"
    line = to_cef(alert_of(name))
    assert len(line.splitlines()) == 1
    _, extension = read_cef(line)
    assert extension["cs1"] == finding_of(name).uid()
    assert extension["cnt"] == "1"
    assert extension["cs3"] == name.replace("\u2028", "\\u{2028}").replace("\x00", "\\u{0}")


def test_values_keep_to_the_lengths_of_the_dictionary() -> None:
    """A message of 1023 characters, custom strings of 4000: cut before they are escaped."""
    _, extension = read_cef(to_cef(alert_of("=" * 5_000)))
    assert len(extension["msg"]) == 1_023
    assert extension["cs3"] == "=" * 4_000


def test_why_has_a_field_of_its_own() -> None:
    """A server that chooses a long name pushes it out of the message, and out of nothing else."""
    path = '$.inputSchema.properties["a\\n| cs1=x"].description'
    finding = finding_of("t" * 1_024, indicators=(("secrecy_asked", 5, path),))
    _, extension = read_cef(to_cef(read_alert(alert_records(finding)[0].value)))
    assert "secrecy_asked" not in extension["msg"]
    assert (extension["flexString1"], extension["flexString1Label"]) == (f"secrecy_asked at {path}", "why")


def test_indicators_change_codes_and_techniques_are_kept() -> None:
    """Under keys of our own, named as "User-Defined Extensions" has it: all custom strings are taken."""
    alert = alert_of(
        indicators=(("data_sent", 4, "description"),), changes=(("description_words_added", "/description", "widens"),)
    )
    _, extension = read_cef(to_cef(alert))
    assert extension["AssaystreamAlertIndicators"] == "data_sent"
    assert extension["AssaystreamAlertChangeCodes"] == "description_words_added"
    assert extension["AssaystreamAlertAttacks"] == "AML.T0086,AML.T0109,AML.T0110.000"
