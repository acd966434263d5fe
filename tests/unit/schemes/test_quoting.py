"""No refusal of what a peer or a server wrote repeats any of it: messages end in logs, headers and terminals."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import orjson
import pytest

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import AssayStreamError
from assay_stream.schemes import handshake_contract as contract
from assay_stream.schemes.assay_bundle import check_event, read_manifest
from assay_stream.schemes.assay_manifest import read_declared
from assay_stream.schemes.assay_tool import check_envelope, check_payload
from assay_stream.schemes.fingerprint import SCHEMES
from assay_stream.schemes.mcptrust_lockfile import lock, read_lockfile
from assay_stream.schemes.schemapin import parse_revocations, parse_well_known
from tests.conformance.test_assay_vectors import BASELINES, FILES
from tests.support.exports import evidence
from tests.support.schemapin import a_document
from tests.unit.schemes.test_assay_bundle import CONTENT
from tests.unit.schemes.test_handshake_htc import REQUEST
from tests.unit.schemes.test_mcptrust_lockfile import V2, V3

SECRET = "hunter2"
BAD: tuple[Any, ...] = (SECRET, f"{SECRET}\ud800", [SECRET], {"x": SECRET}, {SECRET: 1e400})
TOOL = {
    "name": "t",
    "description": "d",
    "inputSchema": {"type": "object", "properties": {"x": {"type": "string"}}},
    "annotations": {"readOnlyHint": True},
    "_meta": {"schemapin_signature": "AA=="},
}
MANIFEST = {
    "tools": [TOOL],
    "prompts": [{"name": "p", "description": "d", "arguments": [{"name": "a", "required": True}]}],
    "resourceTemplates": [{"uriTemplate": "u", "mimeType": "x/y"}],
}
EVENT: dict[str, Any] = orjson.loads(evidence())
REVOKED = {
    "schema_version": "1.2",
    "domain": "a.example",
    "revoked_keys": [{"fingerprint": "sha256:aa", "reason": "x"}],
}


def raw(document: Any) -> bytes:
    return json.dumps(document).encode()


READERS: Mapping[str, tuple[Callable[[Any], object], Any]] = {
    **{
        name: (partial(lambda value_of, tool: value_of(tool, "s"), each.value_of), TOOL)
        for name, each in SCHEMES.items()
    },
    "canonical form": (canonicalize, TOOL),
    "MCPTrust lock": (lock, MANIFEST),
    "MCPTrust lockfile 2.0": (lambda document: read_lockfile(raw(document)), V2),
    "MCPTrust lockfile 3.0": (lambda document: read_lockfile(raw(document)), V3),
    "SchemaPin discovery": (parse_well_known, a_document()),
    "SchemaPin revocations": (parse_revocations, REVOKED),
    "Assay bundle": (lambda document: read_manifest(raw(document)), CONTENT),
    "Assay event": (check_event, EVENT),
    "Assay envelope": (check_envelope, EVENT),
    "Assay payload": (check_payload, EVENT["data"]),
    "Assay manifest": (read_declared, FILES[BASELINES[0]]),
    "Handshake call": (lambda document: contract.check_envelope(raw(document)), REQUEST),
}


def altered(value: Any) -> Iterator[Any]:
    """Yield a document with each value in it replaced by each of the bad ones."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, member in members:
        for other in (*BAD, *altered(member)):
            changed = value.copy()
            changed[place] = other
            yield changed


@pytest.mark.parametrize("name", READERS)
def test_no_message_quotes_what_was_refused(name: str) -> None:
    read, document = READERS[name]
    messages = []
    for changed in altered(document):
        try:
            read(changed)
        except AssayStreamError as error:
            messages.append(error.message)
    assert messages
    assert not [message for message in messages if SECRET in message]
