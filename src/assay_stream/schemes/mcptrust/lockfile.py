"""MCPTrust lockfiles, versions 1.0, 2.0 and 3.0: read strictly, and written as MCPTrust writes them.

Members that are not known here survive reading and writing. Source: mcptrust/mcptrust, ``internal/models``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError
from assay_stream.limits import PIN_FILE_LIMITS
from assay_stream.schemes.mcptrust.hashes import RISK_LEVELS
from assay_stream.schemes.mcptrust.lock import Lock, PromptLock, TemplateLock, ToolLock

Version = Literal["1.0", "2.0", "3.0"]
VERSIONS: tuple[Version, ...] = ("1.0", "2.0", "3.0")
"""The versions of lockfile that are known. The first two have one shape, and cover tools alone."""

# Written into JSON texts only, where these characters cannot stand for anything else.
_HTML = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Lockfile:
    """One lockfile.

    Args:
        version: one of ``VERSIONS``.
        server: the command that starts the server (before 3.0), or the name it gives itself (3.0).
        rest: the file's other members, as they stand in the file.
    """

    version: Version
    server: str
    lock: Lock
    rest: Mapping[str, Any]


def new_lockfile(lock: Lock, *, server: str) -> Lockfile:
    """Return a lockfile of version 2.0, which holds the tools of a lock alone."""
    return Lockfile(version="2.0", server=server, lock=Lock(tools=lock.tools), rest={})


def new_lockfile_v3(lock: Lock, *, server: str, generator: str, updated_at: str) -> Lockfile:
    """Return a lockfile of version 3.0."""
    meta = {"generator": generator, "updatedAt": updated_at}
    covered = Lock(tools=lock.tools, prompts=lock.prompts or {}, templates=lock.templates or {})
    return Lockfile(version="3.0", server=server, lock=covered, rest={"meta": meta})


def read_lockfile(raw: bytes) -> Lockfile:
    """Read a lockfile.

    Raises:
        InputError: ``unknown_lockfile_version``, ``missing_field``, ``wrong_type``, ``bad_digest``,
            ``unknown_value``, ``ambiguous_name``, or as ``decode_json``.
    """
    document = _mapping(decode_json(raw, limits=PIN_FILE_LIMITS), "$")
    version = document.get("lockFileVersion") or document.get("version")
    if version not in VERSIONS:
        raise InputError(
            "unknown_lockfile_version", f"known versions of MCPTrust lockfiles: {', '.join(VERSIONS)}", path="$"
        )
    rest = dict(document)
    tools = {
        name: _read_tool(_mapping(tool, path), path)
        for name, tool, path in _members(_required(rest, "tools", "$"), "$.tools")
    }
    if version != "3.0":
        rest.pop("version", None)
        server = _text(rest, "server_command", "$")
        return Lockfile(version=version, server=server, lock=Lock(tools=tools), rest=rest)
    rest.pop("lockFileVersion", None)
    named, prompts, templates = (_section(rest, name) for name in ("server", "prompts", "resources"))
    lock = Lock(
        tools=tools,
        prompts={
            name: _read_prompt(_mapping(prompt, path), path)
            for name, prompt, path in _members(prompts.pop("definitions", None), "$.prompts.definitions")
        },
        templates=_read_templates(templates.pop("templates", None)),
    )
    return Lockfile(version=version, server=_text(named, "name", "$.server"), lock=lock, rest=rest)


def write_lockfile(lockfile: Lockfile) -> bytes:
    """Return a lockfile as MCPTrust writes it: two blanks of indent, sorted names, unknown members last."""
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


def _read_tool(tool: dict[str, Any], path: str) -> ToolLock:
    risk_level = _text(tool, "risk_level", path)
    if risk_level not in RISK_LEVELS:
        raise InputError("unknown_value", f"must be {', '.join(RISK_LEVELS)}", path=f"{path}.risk_level")
    return ToolLock(
        description_hash=_hash(tool, "description_hash", path),
        input_schema_hash=_hash(tool, "input_schema_hash", path, may_be_empty=True),
        risk_level=risk_level,
        extra=tool,
    )


def _written_tool(tool: ToolLock) -> dict[str, Any]:
    return {
        "description_hash": tool.description_hash,
        "input_schema_hash": tool.input_schema_hash,
        "risk_level": tool.risk_level,
        **tool.extra,
    }


def _read_prompt(prompt: dict[str, Any], path: str) -> PromptLock:
    return PromptLock(
        arguments_hash=_hash(prompt, "argumentsHash", path),
        description_hash=_optional_hash(prompt, "descriptionHash", path),
        extra=prompt,
    )


def _written_prompt(prompt: PromptLock) -> dict[str, Any]:
    return _stated({"argumentsHash": prompt.arguments_hash, "descriptionHash": prompt.description_hash}) | dict(
        prompt.extra
    )


def _read_templates(found: Any) -> dict[str, TemplateLock]:
    templates: dict[str, TemplateLock] = {}
    if not isinstance(found, list | None):
        raise InputError("wrong_type", "must be a list", path="$.resources.templates")
    for index, item in enumerate(found or []):
        path = f"$.resources.templates[{index}]"
        template = _mapping(item, path)
        uri = _text(template, "uriTemplate", path)
        if uri in templates:
            raise InputError("ambiguous_name", "the list has one URI template twice", path=path)
        mime_type = template.pop("mimeType", "")
        if not isinstance(mime_type, str):
            raise InputError("wrong_type", "must be a text", path=f"{path}.mimeType")
        templates[uri] = TemplateLock(
            template_hash=_hash(template, "templateHash", path),
            name_hash=_optional_hash(template, "nameHash", path),
            description_hash=_optional_hash(template, "descriptionHash", path),
            mime_type=mime_type,
            extra=template,
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


def _mapping(value: Any, path: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InputError("wrong_type", "must be an object", path=path)
    return dict(value)


def _section(rest: dict[str, Any], name: str) -> dict[str, Any]:
    section = _mapping(rest.get(name, {}), f"$.{name}")
    rest[name] = section
    return section


def _members(value: Any, path: str) -> Iterator[tuple[str, Any, str]]:
    for name, member in _mapping({} if value is None else value, path).items():
        yield name, member, f"{path}[{json.dumps(name[:64])}]"


def _required(members: dict[str, Any], name: str, path: str) -> Any:
    if name not in members:
        raise InputError("missing_field", "is required", path=f"{path}.{name}")
    return members.pop(name)


def _text(members: dict[str, Any], name: str, path: str) -> str:
    value = _required(members, name, path)
    if not isinstance(value, str):
        raise InputError("wrong_type", "must be a text", path=f"{path}.{name}")
    return value


def _hash(members: dict[str, Any], name: str, path: str, *, may_be_empty: bool = False) -> str:
    text = _text(members, name, path)
    if text or not may_be_empty:
        try:
            Digest.parse(text)
        except InputError as error:
            raise InputError(error.code, error.message, path=f"{path}.{name}") from None
    return text


def _optional_hash(members: dict[str, Any], name: str, path: str) -> str:
    return _hash(members, name, path, may_be_empty=True) if name in members else ""


def _indented(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    for character, escape in _HTML.items():
        text = text.replace(character, escape)
    return text.encode()
