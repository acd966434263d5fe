"""Fingerprints: one observed tool definition, its digest under every named scheme, and the values that pin it.

``full`` is the digest of the whole definition as received. It is not an outside standard: it distinguishes definitions
that are equal under the bounded schemes (a flipped ``annotations.destructiveHint``, say).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, NamedTuple, TypeVar

from assay_stream.canonical.digest import Canonicalized, canonicalize, jcs_digest, sha256_of
from assay_stream.errors import InputError
from assay_stream.schemes import assay_manifest as manifest, assay_tool as assay, hangar, mcptrust_hashes as mcptrust
from assay_stream.schemes.assay_tool import Tool
from assay_stream.schemes.schemapin_canonical import schema_digest

_PREFIXED = re.compile(r"sha256:[0-9a-f]{64}")
_BARE = re.compile(r"[0-9a-f]{64}")


class Scheme(NamedTuple):
    """One scheme that can be pinned: what its values look like, and its value for a tool of a server, if any."""

    form: re.Pattern[str]
    value_of: Callable[[Tool, str | None], str]


SCHEMES: Mapping[str, Scheme] = {
    "assay.v1": Scheme(_PREFIXED, lambda tool, server_id: str(assay.definition_digest(tool, server_id=server_id))),
    "assay.schema_hash": Scheme(_BARE, lambda tool, _: assay.schema_hash(tool)),
    "assay.meta_hash": Scheme(_BARE, lambda tool, _: assay.meta_hash(tool)),
    "assay.p60": Scheme(_PREFIXED, lambda tool, _: str(manifest.manifest_tool_digest(tool))),
    "schemapin.v1": Scheme(_BARE, lambda tool, _: schema_digest(tool).hex),
    "hangar.v1_2": Scheme(_BARE, lambda tool, _: hangar.digest_v1_2(tool)),
    "hangar.v2": Scheme(_BARE, lambda tool, _: hangar.digest_v2(tool)),
    "mcptrust.description_hash": Scheme(_PREFIXED, lambda tool, _: mcptrust.description_hash(tool)),
    "mcptrust.input_schema_hash": Scheme(
        re.compile(rf"({_PREFIXED.pattern})?"), lambda tool, _: mcptrust.input_schema_hash(tool)
    ),
    "mcptrust.risk_level": Scheme(re.compile("LOW|MEDIUM|HIGH"), lambda tool, _: mcptrust.risk_level(tool)),
}
SCHEME_NAMES = tuple(SCHEMES)
_HEX_DIGITS = 64


class PinEntry(NamedTuple):
    """One pin: the value that a tool's definition must have under one scheme.

    Args:
        server_id: ``None`` if the file names no server.
        scheme: one of ``SCHEME_NAMES``.
        upstream: what MCP Hangar binds the value to (``tool_projection.upstream``), ``None`` if unbound.
    """

    server_id: str | None
    tool_name: str
    scheme: str
    value: str
    upstream: str | None = None


def check_value(scheme: str, value: str) -> str:
    """Return ``value`` if it is valid under the scheme.

    Args:
        value: 64 hexadecimal digits, with or without ``sha256:``, or a risk level; empty for no input schema.

    Raises:
        InputError: ``unknown_value`` for an unknown scheme, ``bad_pin_value``.
    """
    if scheme not in SCHEMES:
        raise InputError("unknown_value", f"the scheme must be one of {', '.join(SCHEME_NAMES)}", path="$.scheme")
    form = SCHEMES[scheme].form
    if not form.fullmatch(value):
        wanted = {_PREFIXED: "sha256: and 64 lowercase hexadecimal digits", _BARE: "64 lowercase hexadecimal digits"}
        described = wanted.get(form, "LOW, MEDIUM or HIGH")
        if scheme == "mcptrust.input_schema_hash":
            described = f"{wanted[_PREFIXED]}, or empty for a tool without input schema"
        raise InputError("bad_pin_value", f"a value of {scheme} is {described}", path="$.value")
    return value


def printed_value(scheme: str, value: str) -> str:
    """Return a value in the notation of its scheme; digests may be given with or without ``sha256:``.

    Raises:
        InputError: as ``check_value``.
    """
    digits = value.removeprefix("sha256:")
    if len(digits) == _HEX_DIGITS:
        is_bare = scheme in SCHEMES and SCHEMES[scheme].form is _BARE
        value = digits if is_bare else f"sha256:{digits}"
    return check_value(scheme, value)


_OTHER_SPELLINGS = {"mcptrust.input_schema_hash": "mcptrust.input_schema_hash.before_go_1_22"}
"""Schemes whose peer prints one of two values, depending on what built it. The second one is there where it
differs; a pin may hold either."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """Digests that identify one observed definition.

    Args:
        full: digest of the whole definition as received, ``sha256:<hex>``.
        schemes: digest under each named scheme; a scheme that refuses the definition is absent.
        errors: error code of each scheme that refused it.
        fields: digest of each top-level field of the definition, so that changes can be located without keeping the
            definition.
        size_bytes: length of the definition in canonical form; 0 if it was not computed here.
    """

    full: str
    schemes: Mapping[str, str]
    errors: Mapping[str, str]
    fields: Mapping[str, str]
    size_bytes: int = field(default=0, compare=False)

    def definition_digest(self) -> str | None:
        """Return the tool definition digest v1, or ``None`` if the definition has none."""
        return self.schemes.get("assay.v1")

    def has_value(self, scheme: str, value: str) -> bool:
        """Return True if the definition has this value under a scheme, in any spelling the scheme's own tools print."""
        return value in (self.schemes.get(scheme), self.schemes.get(_OTHER_SPELLINGS.get(scheme, "")))


def fingerprint(tool: Tool, *, server_id: str | None) -> Fingerprint:
    """Compute the fingerprint of one tool definition.

    Args:
        tool: the definition exactly as received, decoded strictly.
        server_id: the server that the digests are scoped to, ``None`` if the observation is not server-scoped.

    Raises:
        InputError: if the whole definition cannot be canonicalised.
    """
    # Most schemes cover the same parts: each is written once.
    tool = {name: Canonicalized(value) if type(value) is dict else value for name, value in tool.items()}
    schemes: dict[str, str] = {}
    errors: dict[str, str] = {}
    for name, scheme in SCHEMES.items():
        try:
            schemes[name] = scheme.value_of(tool, server_id)
        except InputError as error:
            errors[name] = error.code
    if "mcptrust.input_schema_hash" in schemes:
        older = mcptrust.input_schema_hash_before_go_1_22(tool)
        if older is not None:
            schemes[_OTHER_SPELLINGS["mcptrust.input_schema_hash"]] = older
    canonical = canonicalize(tool)
    return Fingerprint(
        full=str(sha256_of(canonical)),
        schemes=schemes,
        errors=errors,
        fields={name: str(jcs_digest(value)) for name, value in tool.items()},
        size_bytes=len(canonical),
    )


def changed_fields(before: Fingerprint, after: Fingerprint) -> tuple[str, ...]:
    """Return the top-level fields that differ, sorted."""
    names = before.fields.keys() | after.fields.keys()
    return tuple(sorted(name for name in names if before.fields.get(name) != after.fields.get(name)))


Value = TypeVar("Value")


class ContentCache(Generic[Value]):
    """LRU cache of values, keyed by the exact bytes they were computed from.

    Equal bytes give equal values, so a hit can never be wrong; the bound only costs time. The threads of all partitions
    share it.

    Args:
        entries_max: maximum number of values.
        weight_max: maximum total weight, ``None`` for no bound.
    """

    def __init__(self, entries_max: int, weight_max: int | None = None) -> None:
        self._entries_max = entries_max
        self._weight_max = weight_max
        self._weight = 0
        self._values: OrderedDict[bytes, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, content: bytes) -> Value | None:
        with self._lock:
            found = self._values.get(content)
            if found is None:
                return None
            self._values.move_to_end(content)
            return found[0]

    def put(self, content: bytes, value: Value, weight: int = 0) -> None:
        """Store a value. One that outweighs the whole cache is not kept."""
        with self._lock:
            _, weight_before = self._values.pop(content, (None, 0))
            self._weight -= weight_before
            if self._weight_max is not None and weight > self._weight_max:
                return
            self._values[content] = value, weight
            self._weight += weight
            while len(self._values) > self._entries_max or (
                self._weight_max is not None and self._weight > self._weight_max
            ):
                _, (_, gone) = self._values.popitem(last=False)
                self._weight -= gone
