"""Strict reading of JSON objects: every error has a path, and none quotes the sender."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from assay_stream.canonical.digest import Digest
from assay_stream.errors import InputError

_KINDS: dict[type, str] = {
    str: "a string",
    bool: "true or false",
    int: "a whole number",
    list: "a list",
    dict: "an object",
}

_Value = TypeVar("_Value")


class Members:
    """A JSON object whose members are removed as they are read.

    Args:
        value: any value; refused with ``wrong_type`` if it is not an object.

    Attributes:
        rest: the members not taken yet.
    """

    def __init__(self, value: Any, path: str = "$") -> None:
        self.path = path
        self.rest = dict(self._checked(value, dict, path))

    def __contains__(self, name: str) -> bool:
        return name in self.rest

    def take(self, name: str, kind: type[_Value], *, step: str | None = None) -> _Value:
        """Remove and return a member of the given type.

        Args:
            step: used in the path where the name is the sender's own text.

        Raises:
            InputError: ``missing_field`` or ``wrong_type``.
        """
        path = f"{self.path}.{name}" if step is None else self.path + step
        if name not in self.rest:
            raise InputError("missing_field", "is required", path=path)
        return self._checked(self.rest.pop(name), kind, path)

    def object(self, name: str) -> Members:
        return Members(self.take(name, dict), f"{self.path}.{name}")

    def objects(self, name: str) -> Iterator[Members]:
        """Yield the objects of a member that is a list."""
        for index, item in enumerate(self.take(name, list)):
            yield Members(item, f"{self.path}.{name}[{index}]")

    def one_of(self, name: str, allowed: tuple[str, ...]) -> Any:
        """Take a string that must be one of ``allowed``.

        Raises:
            InputError: ``unknown_value``, or as ``take``.
        """
        value = self.take(name, str)
        if value not in allowed:
            raise InputError("unknown_value", f"must be one of: {', '.join(allowed)}", path=f"{self.path}.{name}")
        return value

    def digest(self, name: str) -> Digest:
        """Take a digest.

        Raises:
            InputError: ``bad_digest``, or as ``take``.
        """
        text = self.take(name, str)
        try:
            return Digest.parse(text)
        except InputError as error:
            raise InputError(error.code, error.message, path=f"{self.path}.{name}") from None

    @staticmethod
    def _checked(value: Any, kind: type[_Value], path: str) -> _Value:
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise InputError("wrong_type", f"must be {_KINDS[kind]}", path=path)
        return value
