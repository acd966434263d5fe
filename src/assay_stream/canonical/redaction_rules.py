"""What redaction looks for: patterns of secrets, and the names of keys whose value is one (``redaction.toml``)."""

import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files


@dataclass(frozen=True, slots=True, kw_only=True)
class RedactionRule:
    """One pattern of what is not to be hashed; ``redaction.toml`` says what its fields mean."""

    id: str
    category: str
    hints: tuple[str, ...]
    regex: str
    reason: str
    costly: bool = False
    enabled: bool = True

    def replacement(self) -> str:
        return f"[REDACTED:{self.category}:{self.id}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Tokens with a prefix that their issuer documents. They count as ``secret_token``."""

    name: str
    hints: tuple[str, ...]
    regex: str
    reason: str


_DATA = tomllib.loads((files(__package__) / "redaction.toml").read_text(encoding="utf-8"))
_PARTS: dict[str, str] = _DATA["parts"]
_OF_ISSUERS = "secret_token"


def _expanded(parts: Sequence[str]) -> str:
    return re.sub(r"\(\?&(\w+)\)", lambda named: _expanded([_PARTS[named[1]]]), "".join(parts))


ISSUED = tuple(
    Issuer(**row | {"hints": tuple(row["hints"]), "regex": _expanded(row["regex"])}) for row in _DATA["issuer"]
)
_PARTS["issued"] = "|".join(issuer.regex for issuer in ISSUED)


def _rule(row: dict[str, object], hints: Sequence[str], regex: Sequence[str]) -> RedactionRule:
    issued = [hint for issuer in ISSUED for hint in issuer.hints] if row["id"] == _OF_ISSUERS else []
    return RedactionRule(**row | {"hints": (*hints, *issued), "regex": _expanded(regex)})  # type: ignore[arg-type]


RULES = tuple(_rule(row, row["hints"], row["regex"]) for row in _DATA["rule"])
SENSITIVE_NAMES: tuple[str, ...] = tuple(_DATA["sensitive_names"])
"""Key names whose value is replaced whole: as the whole name or its end, case and separators aside."""
