"""Lists that a hostile server serves, one class of attack each: for the suite on Kafka and for the bench.

Imports nothing of the product, so that the bench can run an older version on the same input.
"""

from collections.abc import Callable, Iterator
from typing import Any

from tests.support.hostile import PAIRS

Tools = list[dict[str, Any]]
Shown = tuple[str, Tools]
"""An observer, and the list that it is shown."""

_OBSERVER = "proxy-1"
TOOLS = 2_000
OBSERVERS = 4_000


def _pair(name: str, size: int) -> Callable[[], Iterator[Shown]]:
    def lists() -> Iterator[Shown]:
        for tool in PAIRS[name](size):
            yield _OBSERVER, [tool]

    return lists


def new_tools() -> Iterator[Shown]:
    """One tool, and then so many beside it that nobody has seen before."""
    few: Tools = [{"name": "first", "description": "Does one thing.", "inputSchema": {"type": "object"}}]
    yield _OBSERVER, few
    properties = {
        f"field_{index}": {"type": "string", "description": f"Field {index}, as the customer gave it."}
        for index in range(8)
    }
    schema = {"type": "object", "properties": properties, "required": ["field_0"]}
    yield (
        _OBSERVER,
        [
            *few,
            *(
                {
                    "name": f"report_{number}",
                    "description": f"Fetches report {number} for a customer. " * 4,
                    "inputSchema": schema,
                }
                for number in range(TOOLS)
            ),
        ],
    )


def many_observers() -> Iterator[Shown]:
    """One server as so many observers see it: each is shown a list, and later another one."""
    for version in range(2):
        tools: Tools = [
            {"name": f"action_{index}", "description": f"Does thing {index} of version {version}."}
            for index in range(3)
        ]
        for number in range(OBSERVERS):
            yield f"proxy-{number}", tools


CLASSES: dict[str, tuple[str, Callable[[], Iterator[Shown]]]] = {
    "references beside one wide enum": ("CPU", _pair("references_to_one_enum", 119_000)),
    "a chain of references, each beside an enum": ("CPU", _pair("chain_beside_enum", 119_000)),
    "references to a wide object": ("memory", _pair("chain_beside_object", 206_000)),
    "a long path for each of many elements": ("memory", _pair("long_paths_to_bare_elements", 71_000)),
    "a long path for each of more elements": ("memory", _pair("long_paths_to_bare_elements", 206_000)),
    f"{TOOLS:,} new tools": ("quadratic", new_tools),
    f"{OBSERVERS:,} observers": ("quadratic", many_observers),
    "1 against true at every level": ("quadratic", _pair("true_and_one", 200_000)),
    "text that NFKC expands": ("quadratic", _pair("expanding_text", 200_000)),
    "tens of thousands of empty strings": ("quadratic", _pair("empty_strings", 200_000)),
}
"""Row of the attack, and what is shown to whom, by name of the class."""


def shown_by_tap(name: str) -> list[Tools]:
    """Return the lists of a class as one observer is shown them."""
    return [tools for _, tools in CLASSES[name][1]()]
