"""MITRE ATLAS techniques of an alert, by its kinds and indicators (``attacks.toml``)."""

import tomllib
from collections.abc import Iterable
from importlib.resources import files
from typing import Any

_TABLE = tomllib.loads((files(__package__) / "attacks.toml").read_text(encoding="utf-8"))
_TECHNIQUES: dict[str, dict[str, Any]] = _TABLE["techniques"]

ATLAS_VERSION: str = _TABLE["version"]
"""Release of ATLAS that the ids are from."""


def technique_ids(stated: Iterable[str], kinds: Iterable[str], indicators: Iterable[str]) -> list[str]:
    """Return the techniques and sub-techniques that an alert shows, sorted.

    Args:
        stated: ids in the record; unknown ones are left out.
        kinds: what was found.
        indicators: rules that matched in the text.
    """
    found = {_TABLE["refined"].get(each, each) for each in stated}
    for table, names in (("kinds", kinds), ("indicators", indicators)):
        found.update(each for name in names for each in _TABLE[table].get(name, ()))
    return sorted(found & _TECHNIQUES.keys())


def attack_objects(ids: Iterable[str]) -> list[dict[str, Any]]:
    """Return OCSF ``attack`` objects: one for each technique and tactic, as ``tactics`` is deprecated there.

    Args:
        ids: as returned by ``technique_ids``.
    """
    return [
        {
            "tactic": {"uid": tactic, "name": _TABLE["tactics"][tactic]},
            "technique": _entry(each[:9]),
            **({"sub_technique": _entry(each)} if len(each) > 9 else {}),
            "version": ATLAS_VERSION,
        }
        for each in ids
        for tactic in _TECHNIQUES[each[:9]]["tactics"]
    ]


def _entry(technique: str) -> dict[str, str]:
    return {"uid": technique, "name": _TECHNIQUES[technique]["name"]}
