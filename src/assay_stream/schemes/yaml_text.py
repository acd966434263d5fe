"""Strict decoding of other systems' YAML files: strings, lists and mappings with unique keys.

Scalars stay strings: what YAML makes of ``on``, ``1e3`` or an all-digit digest is never what was pinned.
"""

from typing import Any

import yaml

from assay_stream.canonical.decode import decode_json
from assay_stream.errors import InputError
from assay_stream.limits.core import Limits

_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_NULLS = frozenset(("", "~", "null", "Null", "NULL"))


class _Open:
    """A container that is being read."""

    def __init__(self, content: dict[str, Any] | list[Any]) -> None:
        self.content = content
        self.key: str | None = None


def decode_json_or_yaml(raw: bytes, *, limits: Limits) -> Any:
    """Decode one JSON text, or one YAML document.

    Raises:
        InputError: as ``decode_json`` and ``decode_yaml``.
    """
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
    reader = _Reader(limits)
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            reader.read(event)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise InputError("not_yaml", f"line {mark.line + 1 if mark else '?'}: not well-formed YAML") from None
    except yaml.YAMLError:
        raise InputError("not_yaml", "the text holds characters that YAML does not allow") from None
    return reader.root


class _Reader:
    """Build the value from the parser's events, without recursion."""

    def __init__(self, limits: Limits) -> None:
        self.root: Any = None
        self._depth_max = limits.depth_max
        self._open: list[_Open] = []
        self._anchors: dict[str, Any] = {}
        self._documents = 0

    def read(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                raise InputError("unsupported_yaml", "one document is read: split the file")
        elif isinstance(event, yaml.ScalarEvent):
            self._scalar(event)
        elif isinstance(event, yaml.AliasEvent):
            if event.anchor not in self._anchors:
                raise InputError("not_yaml", "an alias names an anchor that does not stand before it")
            self._put(self._anchors[event.anchor])
        elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
            self._start({} if isinstance(event, yaml.MappingStartEvent) else [], event.anchor)
        elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
            self._open.pop()

    def _start(self, content: dict[str, Any] | list[Any], anchor: str | None) -> None:
        if len(self._open) == self._depth_max:
            raise InputError("too_deep", f"more than {self._depth_max} nested containers")
        self._put(content, anchor)
        self._open.append(_Open(content))

    def _scalar(self, event: yaml.ScalarEvent) -> None:
        place = self._open[-1] if self._open else None
        if place is not None and isinstance(place.content, dict) and place.key is None:
            if event.value == "<<" and not event.style:
                raise InputError("unsupported_yaml", "merge keys are not read: write the members out")
            if event.value in place.content:
                raise InputError("duplicate_key", "a mapping has the same key twice: send each key once")
            place.key = event.value
            return
        is_null = not event.style and event.value in _NULLS
        self._put(None if is_null else event.value, event.anchor)

    def _put(self, value: Any, anchor: str | None = None) -> None:
        if anchor is not None:
            self._anchors[anchor] = value
        if not self._open:
            self.root = value
            return
        place = self._open[-1]
        if isinstance(place.content, list):
            place.content.append(value)
        elif place.key is None:
            raise InputError("unsupported_yaml", "keys must be plain scalars, not containers or aliases")
        else:
            place.content[place.key] = value
            place.key = None
