"""Posted forms, and the result of an action on one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from assay_stream.console.sessions import Operator
from assay_stream.errors import InputError
from assay_stream.limits.console import CONSOLE_LIMITS, ConsoleLimits

Fields = Mapping[str, tuple[str, ...]]
"""Posted fields by name, each with its values in order."""

Decision = tuple[str, Mapping[str, Any]]
"""Event type and data of a decision, without its author."""

CSRF_FIELD = "csrf"


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """A form posted by an operator; session and CSRF token have been checked.

    Args:
        fields: without the token. Line ends are line feeds, whatever the browser sent.
        now_us: microseconds since the epoch.
    """

    fields: Fields
    operator: Operator
    now_us: int

    def values(self, name: str) -> tuple[str, ...]:
        return self.fields.get(name, ())

    def text(self, name: str) -> str | None:
        """Return a field, stripped; ``None`` if empty.

        Raises:
            InputError: ``bad_form`` if it is given twice.
        """
        return (self._value(name) or "").strip() or None

    def name(self, name: str) -> str:
        """Return a required field unchanged: names may begin and end with blanks.

        Raises:
            InputError: ``bad_form``.
        """
        value = self._value(name)
        if not value:
            raise InputError("bad_form", f"the form has no {name}: go back and fill it in")
        return value

    def reason(self) -> str:
        """Return the operator's reason.

        Raises:
            InputError: ``bad_form``.
        """
        reason = self.text("reason")
        if reason is None:
            raise InputError("bad_form", "give a reason: it is recorded with the decision")
        return reason

    def _value(self, name: str) -> str | None:
        values = self.values(name)
        if len(values) > 1:
            raise InputError("bad_form", f"the form has {name} more than once: load its page again")
        return values[0] if values else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """Result of an action.

    Args:
        decisions: to publish in order, all or, if one is invalid, none.
        address: the page to show once Kafka has them.
    """

    decisions: Sequence[Decision]
    address: str


def read_fields(body: bytes, limits: ConsoleLimits = CONSOLE_LIMITS) -> Fields:
    """Parse a form body (``application/x-www-form-urlencoded``).

    Raises:
        InputError: ``bad_form``.
    """
    if len(body) > limits.form_bytes_max:
        raise InputError("bad_form", f"the form is longer than {limits.form_bytes_max} bytes: send less at once")
    fields: dict[str, list[str]] = {}
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(body),
            errors="strict",
            max_num_fields=limits.form_fields_max,
        )
    except ValueError:
        raise InputError(
            "bad_form",
            f"the form cannot be read: it is damaged, or has more than {limits.form_fields_max} fields. "
            "Load its page again, and send less at once",
        ) from None
    for name, value in pairs:
        fields.setdefault(name, []).append(value.replace("\r\n", "\n"))
    return {name: tuple(values) for name, values in fields.items()}
