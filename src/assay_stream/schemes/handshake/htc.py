"""HTC-1.0 (Handshake's tool contract): the checks of its envelopes.

1. The raw envelope is limited in size before anything is decoded.
2. It is decoded strictly: whatever two parsers could read differently is refused.
3. It is validated against ``SCHEMA``: as a response if it has ``ok``, else as a request.
4. ``args`` and ``result`` are at most 32 KiB in canonical form; anything larger must be passed by reference.
"""

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any, Final

from jsonschema import Draft202012Validator, FormatChecker, ValidationError
from jsonschema.validators import extend
from referencing import Registry
from referencing.jsonschema import DRAFT202012

from assay_stream.canonical.decode import decode_json
from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.limits.core import DEFAULT_LIMITS, Limits
from assay_stream.schemes.handshake.event import UUID, is_time

_formats = FormatChecker(formats=())
_formats.checks("uuid")(lambda value: not isinstance(value, str) or re.fullmatch(UUID, value) is not None)
_formats.checks("date-time")(lambda value: not isinstance(value, str) or is_time(value))

SCHEMA: Final[dict[str, Any]] = json.loads((files(__package__) / "data" / "htc_v1.json").read_bytes())
"""The JSON Schema of request, response and error envelopes: our own, from the requirements and bounds of Handshake's
tool contract. No schema can say that a payload is 32 KiB at most."""
# A registry of its own, which retrieves nothing: no schema is ever fetched.
_REGISTRY = Registry().with_resource(SCHEMA["$id"], DRAFT202012.create_resource(SCHEMA))


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[ValidationError]:
    # Every pattern of the schema spans the whole text. Python's `$` would let a line feed stand behind it.
    if isinstance(instance, str) and not re.fullmatch(pattern, instance):
        yield ValidationError("does not match")


_Validator = extend(Draft202012Validator, {"pattern": _pattern})


def _validator(part: str) -> Any:
    reference = {"$ref": f"{SCHEMA['$id']}#/$defs/{part}"}
    return _Validator(reference, registry=_REGISTRY, format_checker=_formats)


_REQUEST, _RESPONSE = _validator("request"), _validator("response")

_REASONS = {
    "required": ("missing_field", "a required field is missing"),
    "additionalProperties": ("unknown_field", "the contract does not define this field"),
    "type": ("wrong_type", "the value has the wrong JSON type"),
    "enum": ("unknown_value", "the value is not one of those allowed"),
    "const": ("unknown_value", "the value is not the required one"),
    "maxLength": ("too_long", "the text is longer than the contract allows"),
    "minLength": ("empty_value", "the text must not be empty"),
    "minimum": ("out_of_range", "the number is out of range"),
}
_OTHER_REASON = ("bad_format", "the value does not have the required form")


def check_envelope(raw: bytes, *, limits: Limits = DEFAULT_LIMITS) -> None:
    """Check one envelope.

    Raises:
        InputError: as ``decode_json``; ``not_an_envelope``, ``payload_too_large``, or a code of the schema.
    """
    if len(raw) > limits.htc_envelope_bytes_max:
        raise InputError("too_large", f"{len(raw)} bytes, {limits.htc_envelope_bytes_max} are allowed")
    envelope = decode_json(raw, limits=limits)
    if not isinstance(envelope, dict):
        raise InputError("not_an_envelope", "an envelope is one JSON object", path="$")
    # Requests know no `ok` and responses need it, so this is the schema's oneOf, with a path in its errors.
    errors = (_RESPONSE if "ok" in envelope else _REQUEST).iter_errors(envelope)
    found = sorted(map(_as_input_error, errors), key=lambda error: (error.path, error.code))
    if found:
        raise found[0]
    for name in ("args", "result"):
        if name in envelope and len(canonicalize(envelope[name])) > limits.htc_payload_bytes_max:
            raise InputError(
                "payload_too_large",
                f"over {limits.htc_payload_bytes_max} bytes: store it and send {name}_ref",
                path=f"$.{name}",
            )


def _as_input_error(error: ValidationError) -> InputError:
    keyword = str(error.validator)
    reason, message = _REASONS.get(keyword, _OTHER_REASON)
    path = error.json_path
    if keyword == "required":
        # One error for each missing field; its message is the only place that names it.
        wanted = [name for name in error.validator_value if name not in error.instance]
        named = [name for name in wanted if error.message.startswith(repr(name))]
        path = f"{path}.{(named or wanted)[0]}"
    return InputError(reason, message, path=path)
