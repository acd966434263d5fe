"""Run the long tests whose subject has changed since they last passed (``tiers.toml``).

    python deploy/tiers.py          # what has changed
    python deploy/tiers.py --all    # everything, as before a release

A tier that passes on committed files is noted in ``tiers_passed.json`` with a digest of what it covers: commit that
file with the change, and CI need not run the tier again.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TIERS = ROOT / "deploy" / "tiers.toml"
PASSED = ROOT / "deploy" / "tiers_passed.json"


def digest_of(paths: Sequence[str]) -> str:
    """Return a digest over names, modes and contents of the committed files under git pathspecs."""
    listed = _git("ls-files", "--stage", "--", *paths)
    return hashlib.sha256(listed.encode()).hexdigest()


def is_committed(paths: Sequence[str]) -> bool:
    return not _git("status", "--porcelain", "--", *paths)


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout  # noqa: S603


def main(arguments: Sequence[str]) -> int:
    """Run the tiers that have to run, and end with the status of the first that fails."""
    if set(arguments) - {"--all"}:
        print(__doc__, file=sys.stderr)
        return 2
    passed = json.loads(PASSED.read_text()) if PASSED.exists() else {}
    for name, tier in tomllib.loads(TIERS.read_text()).items():
        digest = digest_of(tier["paths"])
        if passed.get(name) == digest and is_committed(tier["paths"]) and "--all" not in arguments:
            print(f"{name}: passed on these very files before, not run again")
            continue
        if status := subprocess.run(tier["run"], cwd=ROOT, check=False).returncode:  # noqa: S603 - our own file
            return status
        if is_committed(tier["paths"]):
            PASSED.write_text(json.dumps(passed := passed | {name: digest}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
