"""Pin files that an operator already has: MCPTrust lockfiles, Hangar and Assay configuration.

Our own format, ``native``, has one JSON object per line: ``server_id`` (a string or null), ``tool_name``, ``scheme``,
``value``, and ``upstream`` if MCP Hangar binds the value to one.

Scalars stay strings: what YAML makes of ``on``, ``1e3`` or an all-digit digest is never what was pinned.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal

import yaml

from assay_stream.canonical.decode import Members, decode_json, is_unicode
from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError, named_in_errors
from assay_stream.limits import DEFAULT_LIMITS, PIN_FILE_LIMITS, Limits
from assay_stream.schemes.fingerprint import SCHEME_NAMES, PinEntry, check_value
from assay_stream.schemes.mcptrust_lockfile import Lock, LockfileStamp, new_lockfile, read_lockfile, write_lockfile

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


def decode_json_or_yaml(raw: bytes, *, limits: Limits) -> Any:
    """Decode one JSON text, or one YAML document."""
    if raw.lstrip()[:1] in (b"{", b"["):
        try:
            return decode_json(raw, limits=limits)
        except InputError as error:
            if error.code != "not_json":
                raise
    return decode_yaml(raw, limits=limits)


def decode_yaml(raw: bytes, *, limits: Limits) -> Any:
    """Decode one YAML document, every scalar as a string except a plain null.

    Raises:
        InputError: ``too_large``, ``not_utf8``, ``not_yaml``, ``too_deep``, ``duplicate_key`` or
            ``unsupported_yaml``.
    """
    if len(raw) > limits.record_bytes_max:
        raise InputError("too_large", f"{len(raw)} bytes, {limits.record_bytes_max} are allowed")
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError("not_utf8", f"byte {error.start} is not UTF-8: send UTF-8") from None
    try:
        return _Reader(yaml.parse(text, Loader=_LOADER), limits.depth_max).document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise InputError("not_yaml", f"line {mark.line + 1 if mark else '?'}: not well-formed YAML") from None
    except yaml.YAMLError:
        raise InputError("not_yaml", "the text holds characters that YAML does not allow") from None


class _Reader:
    """Builds the value of one document from the parser's events."""

    def __init__(self, events: Iterator[yaml.Event], depth_max: int) -> None:
        self._events = events
        self._depth_max = depth_max
        self._anchors: dict[str, Any] = {}

    def document(self) -> Any:
        root, documents = None, 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise InputError("unsupported_yaml", "one document is read: split the file")
                root = self._node(next(self._events), 0)
        return root

    def _node(self, event: Any, depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise InputError("not_yaml", "an alias names an anchor that does not stand before it")
            return self._anchors[event.anchor]
        value: Any = {} if isinstance(event, yaml.MappingStartEvent) else []
        if isinstance(event, yaml.ScalarEvent):
            value = None if not event.style and event.value in _NULLS else event.value
        elif depth == self._depth_max:
            raise InputError("too_deep", f"more than {self._depth_max} nested containers")
        if event.anchor is not None:
            self._anchors[event.anchor] = value
        if isinstance(event, yaml.SequenceStartEvent):
            while not isinstance(item := next(self._events), yaml.SequenceEndEvent):
                value.append(self._node(item, depth + 1))
        elif isinstance(event, yaml.MappingStartEvent):
            while not isinstance(key := next(self._events), yaml.MappingEndEvent):
                name = _key(key, value)
                value[name] = self._node(next(self._events), depth + 1)
        return value


def _key(event: yaml.Event, members: dict[str, Any]) -> str:
    if not isinstance(event, yaml.ScalarEvent):
        raise InputError("unsupported_yaml", "keys must be plain scalars, not containers or aliases")
    if event.value == "<<" and not event.style:
        raise InputError("unsupported_yaml", "merge keys are not read: write the members out")
    if event.value in members:
        raise InputError("duplicate_key", "a mapping has the same key twice: send each key once")
    return str(event.value)


PinFormat = Literal["mcptrust", "hangar", "assay", "native"]

_HANGAR = "hangar.v2"
_LOCKED = ("mcptrust.description_hash", "mcptrust.input_schema_hash", "mcptrust.risk_level")
_IDENTITY = ("assay.schema_hash", "assay.meta_hash")
_NATIVE_FIELDS = ("server_id", "tool_name", "scheme", "value")
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def read_pins(
    raw: bytes,
    *,
    format: PinFormat,  # noqa: A002
    server_id: str | None,
) -> list[PinEntry]:
    """Read the pins of a file, sorted.

    Args:
        server_id: assigned to pins whose file names no server; in a file that names servers, only this server's pins
            are read. ``None`` reads all.

    Raises:
        InputError: ``bad_pin_value``, ``duplicate_pin``, ``tenant_pins``, ``pin_name_differs``,
            ``bad_identifier``, ``missing_field``, ``unknown_field``, ``unknown_value``,
            ``wrong_type``, or as ``decode_json``, ``decode_yaml`` and ``read_lockfile``.
    """
    readers: dict[str, Callable[[], Iterable[PinEntry]]] = {
        "mcptrust": lambda: _read_mcptrust(raw, server_id),
        "hangar": lambda: _read_hangar(raw),
        "assay": lambda: _read_assay(raw),
        "native": lambda: _read_native(raw, server_id),
    }
    entries = [entry for entry in readers[format]() if server_id is None or entry.server_id == server_id]
    return _checked(entries)


def write_pins(
    entries: Iterable[PinEntry],
    *,
    format: PinFormat,  # noqa: A002
    server_id: str | None,
    lockfile_stamp: LockfileStamp | None = None,
) -> tuple[bytes, list[PinEntry]]:
    """Serialise pins, and return the bytes and the pins that the format cannot hold.

    A lockfile needs all three values of a tool and covers one server; Hangar holds one kind of digest; Assay needs both
    hashes and unique tool names. Equal pins give equal bytes.

    Args:
        server_id: write only this server's pins. ``None`` writes all, except that a lockfile gets only those without a
            server.
        lockfile_stamp: metadata for a lockfile of version 3.0. ``None`` writes version 2.0.

    Raises:
        InputError: ``bad_pin_value``, ``duplicate_pin``, ``unknown_value`` or ``bad_identifier``.
    """
    pins = _checked(entries)
    writers: dict[str, Callable[[list[PinEntry]], tuple[bytes, set[PinEntry]]]] = {
        "mcptrust": lambda chosen: _write_mcptrust(chosen, server_id, lockfile_stamp),
        "hangar": _write_hangar,
        "assay": _write_assay,
        "native": _write_native,
    }
    raw, held = writers[format]([pin for pin in pins if server_id is None or pin.server_id == server_id])
    return raw, [pin for pin in pins if pin not in held]


def _checked(entries: Iterable[PinEntry]) -> list[PinEntry]:
    found: dict[tuple[str | None, str, str], PinEntry] = {}
    for entry in entries:
        for name, what in (("server_id", entry.server_id), ("tool_name", entry.tool_name)):
            most = DEFAULT_LIMITS.identifier_chars_max
            if what is not None and not (what.strip() and is_unicode(what) and len(what) <= most):
                must_be = f"Unicode text of up to {most} characters, and not blank"
                raise InputError("bad_identifier", f"the {name} of a pin must be {must_be}")
        check_value(entry.scheme, entry.value)
        if entry[:3] in found:
            raise InputError("duplicate_pin", "one tool has two values under one scheme: keep one")
        found[entry[:3]] = entry
    order = {name: index for index, name in enumerate(SCHEME_NAMES)}
    return sorted(found.values(), key=lambda pin: (pin.server_id or "", pin.tool_name, order[pin.scheme]))


def _read_mcptrust(raw: bytes, server_id: str | None) -> Iterator[PinEntry]:
    for name, tool in read_lockfile(raw).lock.tools.items():
        for scheme in _LOCKED:
            yield PinEntry(server_id, name, scheme, tool[scheme.removeprefix("mcptrust.")])


def _write_mcptrust(
    pins: list[PinEntry], server_id: str | None, stamp: LockfileStamp | None
) -> tuple[bytes, set[PinEntry]]:
    own = [pin for pin in pins if pin.server_id == server_id]
    whole = _whole(own, _LOCKED)
    tools = {
        name: {pin.scheme.removeprefix("mcptrust."): pin.value for pin in values} for (_, name), values in whole.items()
    }
    lockfile = new_lockfile(Lock(tools=tools), server=server_id or "", stamp=stamp)
    return write_lockfile(lockfile), {pin for values in whole.values() for pin in values}


def _read_hangar(raw: bytes) -> Iterator[PinEntry]:
    document = _mapping(decode_json_or_yaml(raw, limits=PIN_FILE_LIMITS), "$")
    for server_id, pins, upstream in _hangar_pins(document):
        for name in list(pins.rest):
            yield PinEntry(server_id, name, _HANGAR, _value(_HANGAR, pins, name), upstream)


def _hangar_pins(document: Members) -> Iterator[tuple[str, Members, str | None]]:
    """Find the pins in a configuration or in either output of ``mcp-hangar pin``, with their upstreams."""
    if "mcp_servers" not in document:
        printed = _inner(document, "digests") if document.rest.keys() == {"digests", "unreachable"} else document
        yield from ((server_id, _inner(printed, server_id), None) for server_id in list(printed.rest))
        return
    servers = _inner(document, "mcp_servers")
    for server_id in list(servers.rest):
        projection = _inner(_inner(servers, server_id), "tool_projection")
        overrides = _inner(projection, "tenant_overrides")
        if any(isinstance(tenant, dict) and tenant.get("pins") for tenant in overrides.rest.values()):
            raise InputError(
                "tenant_pins",
                "pins of single tenants cannot be read: here a pin holds for every caller; read a copy without",
                path=overrides.path,
            )
        upstream = projection.rest.get("upstream")
        if upstream is not None and not (isinstance(upstream, str) and upstream):
            path = f"{projection.path}.upstream"
            raise InputError("wrong_type", "must be the text that mcp-hangar pin writes", path=path)
        yield server_id, _inner(projection, "pins"), upstream


def _write_hangar(pins: list[PinEntry]) -> tuple[bytes, set[PinEntry]]:
    servers: dict[str, Any] = {}
    held: set[PinEntry] = set()
    own = [(pin.server_id, pin) for pin in pins if pin.scheme == _HANGAR and pin.server_id is not None]
    # A server's pins share one binding: a pin bound to something else, or to nothing, would change meaning.
    bound_to = {server_id: pin.upstream for server_id, pin in reversed(own) if pin.upstream is not None}
    for server_id, pin in own:
        upstream = bound_to.get(server_id)
        if pin.upstream == upstream:
            server = servers.setdefault(server_id, {"tool_projection": {"pins": {}}})
            server["tool_projection"]["pins"][pin.tool_name] = pin.value
            if upstream is not None:
                server["tool_projection"]["upstream"] = upstream
            held.add(pin)
    return _yaml({"mcp_servers": servers}), held


def _read_assay(raw: bytes) -> Iterator[PinEntry]:
    pins = _inner(_mapping(decode_json_or_yaml(raw, limits=PIN_FILE_LIMITS), "$"), "tool_pins")
    for key in list(pins.rest):
        pin = _inner(pins, key)
        server_id, tool_name = pin.take("server_id", str), pin.take("tool_name", str)
        if tool_name != key:
            # Assay looks a pin up by its key and then compares the name: such a pin refuses every call.
            raise InputError("pin_name_differs", "a pin must be listed under its own tool_name", path=pin.path)
        for scheme in _IDENTITY:
            value = _value(scheme, pin, scheme.removeprefix("assay."))
            yield PinEntry(server_id, tool_name, scheme, value)


def _write_assay(pins: list[PinEntry]) -> tuple[bytes, set[PinEntry]]:
    whole = _whole([pin for pin in pins if pin.server_id is not None], _IDENTITY)
    servers = Counter(name for _, name in whole)
    tool_pins: dict[str, Any] = {}
    held: set[PinEntry] = set()
    for (server_id, name), (schema, meta) in whole.items():
        if servers[name] == 1:
            tool_pins[name] = {
                "server_id": server_id,
                "tool_name": name,
                "schema_hash": schema.value,
                "meta_hash": meta.value,
            }
            held |= {schema, meta}
    return _yaml({"tool_pins": tool_pins}), held


def _read_native(raw: bytes, server_id: str | None) -> Iterator[PinEntry]:
    if len(raw) > PIN_FILE_LIMITS.record_bytes_max:
        raise InputError("too_large", f"{len(raw)} bytes, {PIN_FILE_LIMITS.record_bytes_max} are allowed")
    for number, line in enumerate(raw.splitlines(), start=1):
        if not line.strip():
            continue
        with named_in_errors(f"line {number}"):
            yield _native_entry(_mapping(decode_json(line), "$"), server_id)


def _native_entry(pin: Members, server_id: str | None) -> PinEntry:
    if not pin.rest.keys() <= {*_NATIVE_FIELDS, "upstream"}:
        raise InputError(
            "unknown_field", f"a pin has {', '.join(_NATIVE_FIELDS)}, maybe upstream, and nothing else", path="$"
        )
    own = pin.rest.get("server_id")
    if own is not None and not isinstance(own, str):
        raise InputError("wrong_type", "must be a string or null", path="$.server_id")
    tool_name, scheme, value = (pin.take(name, str) for name in _NATIVE_FIELDS[1:])
    upstream = pin.take("upstream", str) if pin.rest.get("upstream") is not None else None
    return PinEntry(server_id if own is None else own, tool_name, scheme, check_value(scheme, value), upstream)


def _write_native(pins: list[PinEntry]) -> tuple[bytes, set[PinEntry]]:
    rows = [
        {name: value for name, value in pin._asdict().items() if (name, value) != ("upstream", None)} for pin in pins
    ]
    return b"".join(canonicalize(row) + b"\n" for row in rows), set(pins)


def _whole(pins: list[PinEntry], schemes: tuple[str, ...]) -> dict[tuple[str | None, str], tuple[PinEntry, ...]]:
    """Return the pins of each tool that has one under every given scheme, in the order of the schemes."""
    by_tool: dict[tuple[str | None, str], dict[str, PinEntry]] = {}
    for pin in pins:
        by_tool.setdefault((pin.server_id, pin.tool_name), {})[pin.scheme] = pin
    return {
        tool: tuple(found[scheme] for scheme in schemes)
        for tool, found in by_tool.items()
        if found.keys() >= set(schemes)
    }


def _yaml(document: dict[str, Any]) -> bytes:
    # All but ASCII is escaped: PyYAML folds U+0085 away where it writes it as it is.
    text: str = yaml.safe_dump(document, default_flow_style=False, sort_keys=True, allow_unicode=False)
    return text.encode("ascii")


def _mapping(value: Any, path: str) -> Members:
    return Members({} if value is None else value, path)


def _inner(parent: Members, name: str) -> Members:
    return _mapping(parent.rest.get(name), f"{parent.path}{_step(name)}")


def _value(scheme: str, parent: Members, name: str) -> str:
    value = parent.take(name, str, step=_step(name))
    try:
        return check_value(scheme, value)
    except InputError as error:
        raise InputError(error.code, error.message, path=f"{parent.path}{_step(name)}") from None


def _step(name: str) -> str:
    """Return a step of a JSON path; a name that is not plain is the sender's text and stays out of messages."""
    return f".{name}" if _PLAIN_NAME.fullmatch(name) else "[*]"
