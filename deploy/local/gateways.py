"""Real MCP gateways on this machine, each in an environment of its own under `.gateways/`, for tests of their feeds.

    python -m deploy.local.gateways fastmcp litellm contextforge       installs once

What is installed stands in `deploy/gateways/*.lock`, with hashes. Our own package is not: a gateway finds it in `src/`.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Final

from deploy.local.servers import ROOT, ServerError, make_environment, once

GATEWAYS: Final = ("fastmcp", "litellm", "contextforge")


def built(gateway: str) -> Path | None:
    """Return the Python of a gateway's environment; ``None`` if it was not installed as it is pinned now."""
    home = _home(gateway)
    return home / "bin" / "python" if (home / ".complete").exists() else None


def gateway_python(gateway: str) -> Path:
    """Install a gateway, once for each state of its lock, and return the Python of its environment.

    Raises:
        ServerError: where it cannot be installed.
    """
    home = _home(gateway)
    # The lock is complete, and some of its pins are not what the gateways ask for: see overrides.in.
    locked = ("--no-deps", "--require-hashes", "--requirement", str(_lock(gateway)))
    once(home, lambda: make_environment(home, gateway, *locked))
    return home / "bin" / "python"


def _lock(gateway: str) -> Path:
    return ROOT / "deploy" / "gateways" / f"{gateway}.lock"


def _home(gateway: str) -> Path:
    return ROOT / ".gateways" / f"{gateway}-{hashlib.sha256(_lock(gateway).read_bytes()).hexdigest()[:12]}"


if __name__ == "__main__":
    try:
        for name in sys.argv[1:] or GATEWAYS:
            print(gateway_python(name))
    except ServerError as error:
        sys.exit(f"gateways.py: {error}")
