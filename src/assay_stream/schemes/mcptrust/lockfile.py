"""MCPTrust lockfiles, versions 1.0, 2.0 and 3.0: read strictly, and written as MCPTrust writes them.

Unknown members survive a round trip. Source: mcptrust/mcptrust, ``internal/models``.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits.core import PIN_FILE_LIMITS
from assay_stream.schemes.mcptrust.hashes import RISK_LEVELS
from assay_stream.schemes.mcptrust.lock import Lock, PromptLock, TemplateLock, ToolLock
from assay_stream.schemes.members import Members

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


def new_lockfile(lock: Lock, *, server: str) -> Lockfile:
    """Return a lockfile of version 2.0, which holds only the tools of a lock."""
    return Lockfile(version="2.0", server=server, lock=Lock(tools=lock.tools), rest={})


def new_lockfile_v3(lock: Lock, *, server: str, generator: str, updated_at: str) -> Lockfile:
    meta = {"generator": generator, "updatedAt": updated_at}
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
    tools = {name: _read_tool(tool) for name, tool in _named(document, "tools")}
    if version != "3.0":
        document.rest.pop("version", None)
        server = document.take("server_command", str)
        return Lockfile(version=version, server=server, lock=Lock(tools=tools), rest=document.rest)
    document.rest.pop("lockFileVersion", None)
    named, prompts, templates = (_section(document, name) for name in ("server", "prompts", "resources"))
    lock = Lock(
        tools=tools,
        prompts={name: _read_prompt(prompt) for name, prompt in _named(prompts, "definitions")},
        templates=_read_templates(templates),
    )
    return Lockfile(version=version, server=named.take("name", str), lock=lock, rest=document.rest)


def write_lockfile(lockfile: Lockfile) -> bytes:
    """Serialise a lockfile as MCPTrust does: indented by two spaces, names sorted, unknown members last."""
    rest, lock = dict(lockfile.rest), lockfile.lock
    tools = {name: _written_tool(tool) for name, tool in sorted(lock.tools.items())}
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
        "prompts": {"definitions": {name: _written_prompt(one) for name, one in sorted((lock.prompts or {}).items())}}
        | rest.pop("prompts", {}),
        "resources": {"templates": [_written_template(uri, one) for uri, one in sorted((lock.templates or {}).items())]}
        | rest.pop("resources", {}),
        "tools": tools,
    }
    return _indented(document | rest) + b"\n"


def _read_tool(tool: Members) -> ToolLock:
    return ToolLock(
        risk_level=tool.one_of("risk_level", RISK_LEVELS),
        description_hash=str(tool.digest("description_hash")),
        input_schema_hash=_hash(tool, "input_schema_hash"),
        extra=tool.rest,
    )


def _written_tool(tool: ToolLock) -> dict[str, Any]:
    return {
        "description_hash": tool.description_hash,
        "input_schema_hash": tool.input_schema_hash,
        "risk_level": tool.risk_level,
        **tool.extra,
    }


def _read_prompt(prompt: Members) -> PromptLock:
    return PromptLock(
        arguments_hash=str(prompt.digest("argumentsHash")),
        description_hash=_optional_hash(prompt, "descriptionHash"),
        extra=prompt.rest,
    )


def _written_prompt(prompt: PromptLock) -> dict[str, Any]:
    return _stated({"argumentsHash": prompt.arguments_hash, "descriptionHash": prompt.description_hash}) | dict(
        prompt.extra
    )


def _read_templates(section: Members) -> dict[str, TemplateLock]:
    templates: dict[str, TemplateLock] = {}
    if section.rest.get("templates") is None:
        section.rest.pop("templates", None)
        return templates
    for template in section.objects("templates"):
        uri = template.take("uriTemplate", str)
        if uri in templates:
            raise InputError("ambiguous_name", "the list has one URI template twice", path=template.path)
        templates[uri] = TemplateLock(
            mime_type=template.take("mimeType", str) if "mimeType" in template else "",
            template_hash=str(template.digest("templateHash")),
            name_hash=_optional_hash(template, "nameHash"),
            description_hash=_optional_hash(template, "descriptionHash"),
            extra=template.rest,
        )
    return templates


def _written_template(uri: str, template: TemplateLock) -> dict[str, Any]:
    known = {
        "templateHash": template.template_hash,
        "nameHash": template.name_hash,
        "descriptionHash": template.description_hash,
        "mimeType": template.mime_type,
    }
    return {"uriTemplate": uri} | _stated(known) | dict(template.extra)


def _stated(members: dict[str, str]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value}


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


def _hash(members: Members, name: str) -> str:
    """Return a digest, or the empty string."""
    if members.rest.get(name) == "":
        return members.take(name, str)
    return str(members.digest(name))


def _optional_hash(members: Members, name: str) -> str:
    return _hash(members, name) if name in members else ""


def _indented(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    for character, escape in _HTML.items():
        text = text.replace(character, escape)
    return text.encode()
