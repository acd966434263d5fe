"""Modules of gateways that are not installed here, with the few names that a feed needs of them."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any
from unittest import mock


@contextmanager
def standing_in(names: Mapping[str, Mapping[str, Any]], module: str) -> Iterator[ModuleType]:
    """Import a module while others, by their dotted names, have the given names; it is forgotten afterwards."""
    made: dict[str, ModuleType] = {}
    for dotted, members in names.items():
        parts = dotted.split(".")
        for count in range(1, len(parts) + 1):
            made.setdefault(".".join(parts[:count]), ModuleType(".".join(parts[:count])))
        vars(made[dotted]).update(members)
    with mock.patch.dict(sys.modules, made):
        sys.modules.pop(module, None)
        yield importlib.import_module(module)
    sys.modules.pop(module, None)
