"""MCPTrust: what is locked of a server, and its lockfiles, versions 1.0, 2.0 and 3.0.

Unknown members survive a round trip. Source: mcptrust/mcptrust, ``internal/models``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import InputError
from assay_stream.limits.core import PIN_FILE_LIMITS
from assay_stream.schemes.mcptrust import hashes
from assay_stream.schemes.mcptrust.hashes import RISK_LEVELS, read_text
from assay_stream.schemes.members import Members

Manifest = Mapping[str, Any]
Locked = TypeVar("Locked")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolLock:
    """Locked hashes of a tool.

    Args:
        description_hash: ``sha256:<hex>``.
        input_schema_hash: ``sha256:<hex>``, empty if the schema is absent or empty.
        risk_level: ``LOW``, ``MEDIUM`` or ``HIGH``.
        extra: unknown members, written back unchanged.
    """

    description_hash: str
    input_schema_hash: str
    risk_level: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptLock:
    """Locked hashes of a prompt.

    Args:
        arguments_hash: ``sha256:<hex>``.
        description_hash: ``sha256:<hex>``, empty if there is no description.
    """

    arguments_hash: str
    description_hash: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateLock:
    """Locked hashes of a resource template.

    Args:
        template_hash: ``sha256:<hex>`` over URI template and MIME type.
        name_hash: ``sha256:<hex>``, empty if there is no name.
        description_hash: ``sha256:<hex>``, empty if there is no description.
        mime_type: as declared, empty if absent.
    """

    template_hash: str
    name_hash: str = ""
    description_hash: str = ""
    mime_type: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lock:
    """All locked hashes of a server.

    Args:
        tools: by name.
        prompts: by name; ``None`` if the lock does not cover prompts.
        templates: by URI template; ``None`` if the lock does not cover templates.
    """

    tools: Mapping[str, ToolLock]
    prompts: Mapping[str, PromptLock] | None = None
    templates: Mapping[str, TemplateLock] | None = None


def lock(manifest: Manifest) -> Lock:
    """Compute the hashes that MCPTrust locks for a server's lists.

    Raises:
        InputError: ``wrong_type``, ``ambiguous_tool_name``, ``ambiguous_name``, or as the hash functions.
    """
    tools = _keyed(manifest, "tools", "name", lock_tool)
    prompts = _keyed(manifest, "prompts", "name", _lock_prompt)
    return Lock(
        tools=tools, prompts=prompts, templates=_keyed(manifest, "resourceTemplates", "uriTemplate", _lock_template)
    )


def lock_tool(tool: hashes.Tool) -> ToolLock:
    """Compute the hashes that MCPTrust locks for one tool.

    Raises:
        InputError: as the hash functions.
    """
    return ToolLock(
        description_hash=hashes.description_hash(tool),
        input_schema_hash=hashes.input_schema_hash(tool),
        risk_level=hashes.risk_level(tool),
    )


def _optional_hash(item: Mapping[str, Any], name: str) -> str:
    text = read_text(item, name)
    return hashes.normalized_hash(text) if text else ""


def _lock_prompt(prompt: Mapping[str, Any]) -> PromptLock:
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
    return PromptLock(arguments_hash=str(jcs_digest(arguments)), description_hash=_optional_hash(prompt, "description"))


def _lock_template(template: Mapping[str, Any]) -> TemplateLock:
    mime_type = read_text(template, "mimeType")
    covered = {"uriTemplate": read_text(template, "uriTemplate")} | ({"mimeType": mime_type} if mime_type else {})
    return TemplateLock(
        template_hash=str(jcs_digest(covered)),
        name_hash=_optional_hash(template, "name"),
        description_hash=_optional_hash(template, "description"),
        mime_type=mime_type,
    )


def _objects(item: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    found = item.get(name)
    if found is None:
        return ()
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise InputError("wrong_type", "must be a list of objects", path=f"$.{name}")
    return found


def _keyed(
    manifest: Manifest, name: str, key: str, lock_one: Callable[[Mapping[str, Any]], Locked]
) -> dict[str, Locked]:
    locked: dict[str, Locked] = {}
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
        description_hash=_recorded_hash(prompt, "descriptionHash"),
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
            name_hash=_recorded_hash(template, "nameHash"),
            description_hash=_recorded_hash(template, "descriptionHash"),
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


def _recorded_hash(members: Members, name: str) -> str:
    return _hash(members, name) if name in members else ""


def _indented(document: dict[str, Any]) -> bytes:
    text = json.dumps(document, indent=2, ensure_ascii=False)
    for character, escape in _HTML.items():
        text = text.replace(character, escape)
    return text.encode()
