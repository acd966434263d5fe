"""MCPTrust: what is locked of a server, its lockfiles (versions 1.0, 2.0 and 3.0), and drift from them.

Unknown members survive a round trip. Source: mcptrust/mcptrust, ``internal/models``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any, Literal, NamedTuple

from assay_stream.canonical.decode import Members, decode_json
from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import InputError
from assay_stream.limits import PIN_FILE_LIMITS
from assay_stream.schemes import mcptrust_hashes as hashes
from assay_stream.schemes.mcptrust_hashes import RISK_LEVELS, normalized_hash, read_text

Manifest = Mapping[str, Any]
Entry = Mapping[str, Any]
"""What is locked of a tool, prompt or template, as a lockfile has it: hashes are ``sha256:<hex>``.

The hash of an input schema that is absent or empty is the empty text; whatever else is absent has no member. Unknown
members come last, and are written back unchanged.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """All locked hashes of a server.

    Args:
        tools: by name.
        prompts: by name; ``None`` if the lock does not cover prompts.
        templates: by URI template; ``None`` if the lock does not cover templates.
    """

    tools: Mapping[str, Entry]
    prompts: Mapping[str, Entry] | None = None
    templates: Mapping[str, Entry] | None = None


def lock(manifest: Manifest) -> Lock:
    """Compute the hashes that MCPTrust locks for a server's lists.

    Raises:
        InputError: ``wrong_type``, ``ambiguous_tool_name``, ``ambiguous_name``, or as the hash functions.
    """
    return Lock(
        tools=_keyed(manifest, "tools", "name", _lock_tool),
        prompts=_keyed(manifest, "prompts", "name", _lock_prompt),
        templates=_keyed(manifest, "resourceTemplates", "uriTemplate", _lock_template),
    )


def _lock_tool(tool: Mapping[str, Any]) -> Entry:
    return {
        "description_hash": hashes.description_hash(tool),
        "input_schema_hash": hashes.input_schema_hash(tool),
        "risk_level": hashes.risk_level(tool),
    }


def _optional_hash(item: Mapping[str, Any], name: str) -> str:
    text = read_text(item, name)
    return hashes.normalized_hash(text) if text else ""


def _lock_prompt(prompt: Mapping[str, Any]) -> Entry:
    arguments = []
    for argument in _objects(prompt, "arguments"):
        covered: dict[str, Any] = {"name": read_text(argument, "name")}
        if description := read_text(argument, "description"):
            covered["description"] = description
        required = argument.get("required")
        if required is not None and not isinstance(required, bool):
            raise InputError("wrong_type", "must be true or false", path="$.required")
        arguments.append(covered | ({"required": True} if required else {}))
    arguments.sort(key=lambda covered: str(covered["name"]))
    return _stated(argumentsHash=str(jcs_digest(arguments)), descriptionHash=_optional_hash(prompt, "description"))


def _lock_template(template: Mapping[str, Any]) -> Entry:
    mime_type = read_text(template, "mimeType")
    covered = {"uriTemplate": read_text(template, "uriTemplate")} | ({"mimeType": mime_type} if mime_type else {})
    return _stated(
        templateHash=str(jcs_digest(covered)),
        nameHash=_optional_hash(template, "name"),
        descriptionHash=_optional_hash(template, "description"),
        mimeType=mime_type,
    )


def _stated(**members: str) -> Entry:
    return {name: value for name, value in members.items() if value}


def _objects(item: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = item.get(name)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InputError("wrong_type", "must be a list of objects", path=f"$.{name}")
    return found


def _keyed(manifest: Manifest, name: str, key: str, lock_one: Callable[[Mapping[str, Any]], Entry]) -> dict[str, Entry]:
    locked: dict[str, Entry] = {}
    for index, item in enumerate(_objects(manifest, name)):
        path = f"$.{name}[{index}]"
        try:
            identifier = read_text(item, key)
            if identifier in locked:
                message = "the list has one name twice: no lock can tell the two apart"
                if name == "tools":
                    raise InputError("ambiguous_tool_name", message)
                raise InputError("ambiguous_name", message)
            locked[identifier] = lock_one(item)
        except InputError as error:
            raise InputError(error.code, error.message, path=path + error.path.removeprefix("$")) from None
    return locked


Version = Literal["1.0", "2.0", "3.0"]
VERSIONS: tuple[Version, ...] = ("1.0", "2.0", "3.0")
"""The versions of lockfile that are known. The first two have one shape, and cover tools alone."""

# Written into JSON texts only, where these characters cannot stand for anything else.
_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lockfile:
    """A lockfile.

    Args:
        version: one of ``VERSIONS``.
        server: the command that starts the server (before 3.0), or its self-declared name (3.0).
        rest: the file's other members, unchanged.
    """

    version: Version
    server: str
    lock: Lock
    rest: Mapping[str, Any]


class LockfileStamp(NamedTuple):
    """Metadata of a version 3.0 lockfile.

    Args:
        generator: name and version of the program that writes it.
        updated_at: RFC 3339.
    """

    generator: str
    updated_at: str


def new_lockfile(lock: Lock, *, server: str, stamp: LockfileStamp | None = None) -> Lockfile:
    """Return a lockfile of version 3.0, or of 2.0 without a stamp: it holds only the tools of a lock."""
    if stamp is None:
        return Lockfile(version="2.0", server=server, lock=Lock(tools=lock.tools), rest={})
    meta = {"generator": stamp.generator, "updatedAt": stamp.updated_at}
    covered = Lock(tools=lock.tools, prompts=lock.prompts or {}, templates=lock.templates or {})
    return Lockfile(version="3.0", server=server, lock=covered, rest={"meta": meta})


def read_lockfile(raw: bytes) -> Lockfile:
    """Read a lockfile.

    Raises:
        InputError: ``unknown_lockfile_version``, ``missing_field``, ``wrong_type``, ``bad_digest``,
            ``unknown_value``, ``ambiguous_name``, or as ``decode_json``.
    """
    document = Members(decode_json(raw, limits=PIN_FILE_LIMITS))
    version = document.rest.get("lockFileVersion") or document.rest.get("version")
    if version not in VERSIONS:
        raise InputError(
            "unknown_lockfile_version", f"known versions of MCPTrust lockfiles: {', '.join(VERSIONS)}", path="$"
        )
    if "tools" not in document:
        raise InputError("missing_field", "is required", path="$.tools")
    tools = {name: _entry(tool, _TOOL) for name, tool in _named(document, "tools")}
    if version != "3.0":
        document.rest.pop("version", None)
        server = document.take("server_command", str)
        return Lockfile(version=version, server=server, lock=Lock(tools=tools), rest=document.rest)
    document.rest.pop("lockFileVersion", None)
    named, prompts, templates = (_section(document, name) for name in ("server", "prompts", "resources"))
    lock = Lock(
        tools=tools,
        prompts={name: _entry(prompt, _PROMPT) for name, prompt in _named(prompts, "definitions")},
        templates=_read_templates(templates),
    )
    return Lockfile(version=version, server=named.take("name", str), lock=lock, rest=document.rest)


def write_lockfile(lockfile: Lockfile) -> bytes:
    """Serialise a lockfile as MCPTrust does: indented by two spaces, names sorted, unknown members last."""
    rest, lock = dict(lockfile.rest), lockfile.lock
    tools = dict(sorted(lock.tools.items()))
    document: dict[str, Any]
    if lockfile.version != "3.0":
        document = {"version": lockfile.version, "server_command": lockfile.server}
        if "artifact" in rest:
            document["artifact"] = rest.pop("artifact")
        return _indented(document | {"tools": tools} | rest)
    document = {
        "lockFileVersion": lockfile.version,
        "meta": rest.pop("meta", {}),
        "server": {"name": lockfile.server} | rest.pop("server", {}),
        "prompts": {"definitions": dict(sorted((lock.prompts or {}).items()))} | rest.pop("prompts", {}),
        "resources": {
            "templates": [{"uriTemplate": uri, **entry} for uri, entry in sorted((lock.templates or {}).items())]
        }
        | rest.pop("resources", {}),
        "tools": tools,
    }
    return _indented(document | rest) + b"\n"


def _read_templates(section: Members) -> dict[str, Entry]:
    templates: dict[str, Entry] = {}
    if section.rest.get("templates") is None:
        section.rest.pop("templates", None)
        return templates
    for template in section.objects("templates"):
        uri = template.take("uriTemplate", str)
        if uri in templates:
            raise InputError("ambiguous_name", "the list has one URI template twice", path=template.path)
        templates[uri] = _entry(template, _TEMPLATE)
    return templates


def _section(document: Members, name: str) -> Members:
    """Return a section that may be absent; members that are not taken stay in the document."""
    section = Members(document.rest.get(name, {}), f"$.{name}")
    document.rest[name] = section.rest
    return section


def _named(parent: Members, name: str) -> Iterator[tuple[str, Members]]:
    """Yield the members of an object of objects, which may be absent or null."""
    path, found = f"{parent.path}.{name}", parent.rest.pop(name, None)
    for key, value in Members({} if found is None else found, path).rest.items():
        yield key, Members(value, f"{path}[{json.dumps(key[:64])}]")


def _digest(members: Members, name: str) -> str:
    return str(members.digest(name))


def _digest_or_empty(members: Members, name: str) -> str:
    return members.take(name, str) if members.rest.get(name) == "" else _digest(members, name)


def _digest_if_any(members: Members, name: str) -> str | None:
    return (_digest_or_empty(members, name) or None) if name in members else None


def _text_if_any(members: Members, name: str) -> str | None:
    return (members.take(name, str) or None) if name in members else None


def _risk_level(members: Members, name: str) -> str:
    return str(members.one_of(name, RISK_LEVELS))


_Known = Mapping[str, Callable[[Members, str], str | None]]
_TOOL: _Known = {
    "description_hash": _digest, "input_schema_hash": _digest_or_empty, "risk_level": _risk_level,
}  # fmt: skip
_PROMPT: _Known = {"argumentsHash": _digest, "descriptionHash": _digest_if_any}
_TEMPLATE: _Known = {
    "templateHash": _digest, "nameHash": _digest_if_any, "descriptionHash": _digest_if_any, "mimeType": _text_if_any,
}  # fmt: skip


def _entry(members: Members, known: _Known) -> Entry:
    # Of several faults one that is in no hash is named first.
    read = {name: known[name](members, name) for name in sorted(known, key=lambda name: name.lower().endswith("hash"))}
    return {name: value for name in known if (value := read[name]) is not None} | members.rest


def _indented(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    for character, escape in _HTML.items():
        text = text.replace(character, escape)
    return text.encode()


class McpTrustSeverity(IntEnum):
    """Severity of a difference. ``info`` is also what MCPTrust prints for *safe*."""

    INFO = 0
    MODERATE = 1
    CRITICAL = 2

    def __str__(self) -> str:
        return self.name.lower()


class DifferenceKind(StrEnum):
    TOOL_ADDED = "tool_added"
    TOOL_REMOVED = "tool_removed"
    TOOL_DESCRIPTION = "tool_description_changed"
    TOOL_SCHEMA = "tool_schema_changed"
    TOOL_RISK = "tool_risk_level_changed"
    PROMPT_ADDED = "prompt_added"
    PROMPT_REMOVED = "prompt_removed"
    PROMPT_ARGUMENTS = "prompt_arguments_changed"
    PROMPT_DESCRIPTION = "prompt_description_changed"
    TEMPLATE_ADDED = "template_added"
    TEMPLATE_REMOVED = "template_removed"
    TEMPLATE_CHANGED = "template_changed"


_INFO, _MODERATE, _CRITICAL = McpTrustSeverity
_TABLE: tuple[tuple[DifferenceKind, str, McpTrustSeverity | None, McpTrustSeverity, str], ...] = (
    (DifferenceKind.TOOL_ADDED, "TOOL_ADDED", _CRITICAL, _CRITICAL, ""),
    (DifferenceKind.TOOL_REMOVED, "TOOL_REMOVED", _CRITICAL, _INFO, ""),
    (DifferenceKind.TOOL_DESCRIPTION, "TOOL_CHANGED", _MODERATE, _INFO, "description_hash"),
    (DifferenceKind.TOOL_SCHEMA, "TOOL_CHANGED", _CRITICAL, _CRITICAL, "input_schema_hash"),
    (DifferenceKind.TOOL_RISK, "TOOL_RISK_LEVEL_CHANGED", None, _CRITICAL, "risk_level"),
    (DifferenceKind.PROMPT_ADDED, "PROMPT_ADDED", _CRITICAL, _CRITICAL, ""),
    (DifferenceKind.PROMPT_REMOVED, "PROMPT_REMOVED", _CRITICAL, _CRITICAL, ""),
    (DifferenceKind.PROMPT_ARGUMENTS, "PROMPT_ARGS_CHANGED", _CRITICAL, _INFO, "argumentsHash"),
    (DifferenceKind.PROMPT_DESCRIPTION, "PROMPT_DESC_CHANGED", _MODERATE, _INFO, "descriptionHash"),
    (DifferenceKind.TEMPLATE_ADDED, "TEMPLATE_ADDED", _CRITICAL, _CRITICAL, ""),
    (DifferenceKind.TEMPLATE_REMOVED, "TEMPLATE_REMOVED", _CRITICAL, _CRITICAL, ""),
    (DifferenceKind.TEMPLATE_CHANGED, "TEMPLATE_CHANGED", _CRITICAL, _INFO, "templateHash"),
)
"""Each change with its drift type in a v3 check, the severity that MCPTrust's code assigns, the one that it publishes,
and the member of an entry that is compared; where an entry comes or goes, none is.

A v3 check has no type for the risk level; that name is ours, and the code reports no change of it there. What is
published is silent on prompts and templates that come or go: there the code's severities stand.
"""

_TYPES = {change: name for change, name, *_ in _TABLE}
CODE: Mapping[DifferenceKind, McpTrustSeverity] = {
    change: found for change, _, found, *_ in _TABLE if found is not None
}
PUBLISHED: Mapping[DifferenceKind, McpTrustSeverity] = {change: found for change, _, _, found, _ in _TABLE}
PROFILES: Mapping[str, Mapping[DifferenceKind, McpTrustSeverity]] = {"mcptrust": PUBLISHED, "mcptrust-code": CODE}
"""The severity tables by profile name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftItem:
    """One difference of a named tool, prompt or URI template; ``old`` or ``new`` is empty if there was or is none."""

    change: DifferenceKind
    identifier: str
    old: str = ""
    new: str = ""

    @property
    def type(self) -> str:
        """The drift type as printed by a v3 check."""
        return _TYPES[self.change]


def drift(before: Lock, after: Manifest) -> tuple[DriftItem, ...]:
    """Return the differences between a lock and a server's lists, sorted by type and identifier.

    Only what the lock covers is compared; a prompt's description only if it was locked.

    Args:
        after: ``{"tools": [...], "prompts": [...], "resourceTemplates": [...]}``.

    Raises:
        InputError: as ``lock``.
    """
    observed = lock(after)
    items: list[DriftItem] = []
    for subject in ("tool", "prompt", "template"):
        old, new = (getattr(side, f"{subject}s") for side in (before, observed))
        if old is None:
            continue
        added, removed = DifferenceKind(f"{subject}_added"), DifferenceKind(f"{subject}_removed")
        items += (DriftItem(change=added, identifier=name) for name in new.keys() - old.keys())
        items += (DriftItem(change=removed, identifier=name) for name in old.keys() - new.keys())
        for name in old.keys() & new.keys():
            items += _changes(subject, name, old[name], new[name])
    return tuple(sorted(items, key=lambda item: (item.type, item.identifier)))


def check_result(
    items: Sequence[DriftItem], *, server: str, lockfile: str, fail_on: McpTrustSeverity = McpTrustSeverity.CRITICAL
) -> dict[str, Any]:
    """Return drift in the format of a v3 check, with the severities of its code; the messages are ours."""
    reported = [(item, CODE[item.change]) for item in items if item.change in CODE]
    counts = {
        str(severity): sum(found is severity for _, found in reported)
        for severity in sorted(McpTrustSeverity, reverse=True)
    }
    return {
        "lockfileVersion": "3.0",
        "server": server,
        "lockfile": lockfile,
        "summary": counts | {"total": len(reported)},
        "drift": [
            {
                "type": item.type,
                "severity": str(severity),
                "identifier": item.identifier,
                **_stated(oldHash=item.old, newHash=item.new),
                "message": f"{item.change.value.replace('_', ' ')}: {item.identifier}",
            }
            for item, severity in reported
        ],
        "failOn": str(fail_on),
        "outcome": "FAIL" if any(severity >= fail_on for _, severity in reported) else "PASS",
    }


def _changes(subject: str, name: str, before: Entry, after: Entry) -> Iterable[DriftItem]:
    for change, *_, member in _TABLE:
        if not member or not change.startswith(subject):
            continue
        old, new = before.get(member, ""), after.get(member, "")
        if change is DifferenceKind.PROMPT_DESCRIPTION:
            if not old:
                continue
            # One that went away hashes as the empty text.
            new = new or normalized_hash("")
        if old != new:
            yield DriftItem(change=change, identifier=name, old=old, new=new)
