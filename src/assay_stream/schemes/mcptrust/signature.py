"""Signatures of MCPTrust lockfiles: detached, Ed25519, over either of two canonical forms.

Source: mcptrust/mcptrust, ``internal/crypto`` and ``internal/locker``.
"""

import binascii
import re
from base64 import b64decode
from decimal import Decimal
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import canonicalize, plain_form
from assay_stream.errors import InputError
from assay_stream.limits.core import PIN_FILE_LIMITS
from assay_stream.schemes.mcptrust.hashes import go_canonical

Form = Literal["v1", "v2"]

_EXACT_INTEGER_MAX = 2**53 - 1
_PLAIN_EXPONENT_MIN, _PLAIN_EXPONENT_END = -4, 6
"""Between these exponents Go's format ``g`` writes a double without one."""

_KEY_BYTES_MAX = 1_024
"""A key file has 107 bytes; the rest is room for white space. What is cut off at this bound is no PEM block."""

_PEM = re.compile(r"\s*-----BEGIN ED25519 PUBLIC KEY-----\s+([A-Za-z0-9+/=\s]+?)\s+-----END ED25519 PUBLIC KEY-----\s*")


def verify_lockfile_signature(raw: bytes, signature: bytes, public_key_pem: bytes) -> Form:
    """Verify the detached Ed25519 signature of a lockfile, and return the canonical form it covers.

    Raises:
        InputError: ``signature_invalid``, ``bad_signature_file``, ``bad_public_key``, or as ``decode_json``.
    """
    form, digits = _read_signature(signature)
    key = _read_key(public_key_pem)
    value = decode_json(raw, limits=PIN_FILE_LIMITS)
    covered = go_canonical(value) if form == "v1" else canonical_v2(value)
    try:
        key.verify(digits, covered)
    except InvalidSignature:
        raise InputError(
            "signature_invalid", "the signature is not of this lockfile by this key: do not use the file"
        ) from None
    return form


def canonical_v2(value: Any) -> bytes:
    """Return JSON in MCPTrust's canonical form v2: RFC 8785 but for fractions and great numbers.

    Those stand as Go's ``strconv`` prints them in format ``g``: ``1e-07``, ``3.3e+08``.

    Raises:
        InputError: as ``canonicalize``.
    """
    form = plain_form(value)
    if form is not None:
        return form
    canonicalize(value)  # What RFC 8785 cannot write is refused here, before anything recurses into it.
    written = bytearray()
    _write_v2(value, written)
    return bytes(written)


def _write_v2(value: Any, out: bytearray) -> None:
    if isinstance(value, dict):
        for index, key in enumerate(sorted(value, key=lambda name: name.encode("utf-16-be"))):
            out += (b"," if index else b"{") + canonicalize(key) + b":"
            _write_v2(value[key], out)
        out += b"}" if value else b"{}"
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            out += b"," if index else b"["
            _write_v2(item, out)
        out += b"]" if value else b"[]"
    elif isinstance(value, int | float) and not isinstance(value, bool):
        out += _v2_number(float(value))
    else:
        out += canonicalize(value)


def _v2_number(number: float) -> bytes:
    if number.is_integer() and abs(number) <= _EXACT_INTEGER_MAX:
        return str(int(number)).encode()
    mantissa, exponent = f"{Decimal(repr(number)).normalize():e}".split("e")
    if _PLAIN_EXPONENT_MIN <= int(exponent) < _PLAIN_EXPONENT_END:
        return canonicalize(number)
    return f"{mantissa}e{exponent[0]}{exponent[1:]:0>2}".encode()


def _read_signature(raw: bytes) -> tuple[Form, bytes]:
    head, _, body = raw.strip().partition(b"\n")
    header: Any = {"canon_version": "v1"}
    if head.startswith(b"{"):
        header = decode_json(head)
    else:
        body = raw
    if header.get("sig_type", "ed25519") != "ed25519":
        raise InputError("bad_signature_file", "only Ed25519 signatures are verified here: use mcptrust verify")
    form = header.get("canon_version")
    if form not in ("v1", "v2"):
        raise InputError("bad_signature_file", "the header must name canon_version v1 or v2")
    try:
        return form, bytes.fromhex(body.strip().decode("ascii"))
    except ValueError:
        raise InputError("bad_signature_file", "the signature must be hexadecimal digits") from None


def _read_key(pem: bytes) -> Ed25519PublicKey:
    match = _PEM.fullmatch(pem[: _KEY_BYTES_MAX + 1].decode("ascii", "replace"))
    try:
        return Ed25519PublicKey.from_public_bytes(b64decode("".join(match[1].split()), validate=True) if match else b"")
    except (ValueError, binascii.Error):
        raise InputError("bad_public_key", "give the PEM block ED25519 PUBLIC KEY that mcptrust keygen wrote") from None
