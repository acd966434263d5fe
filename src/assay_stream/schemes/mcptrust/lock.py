"""What MCPTrust locks of a server: hashes of its tools, prompts and resource templates, by name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from assay_stream.canonical.digest import jcs_digest
from assay_stream.errors import InputError
from assay_stream.schemes.mcptrust import hashes
from assay_stream.schemes.mcptrust.hashes import read_text

Lockfile = Mapping[str, Any]
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


def lock(manifest: Lockfile) -> Lock:
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
    manifest: Lockfile, name: str, key: str, lock_one: Callable[[Mapping[str, Any]], Locked]
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
