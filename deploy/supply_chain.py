"""What the pinned packages are, and what is known against them.

    python deploy/supply_chain.py audit        holds requirements.lock against published advisories
    python deploy/supply_chain.py sbom FILE    writes the pins as CycloneDX: the same pins, the same bytes

Both run tools of an environment of their own (`deploy/requirements/tools.lock`), which `make audit` and
`make sbom` set up.
An advisory ends the audit with exit code 1, a failed audit with 2. Where the advisory service could not be asked,
or knew none of the packages, nothing was audited: exit code 3.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

NOT_AUDITED: Final = 3
"""Exit code where nothing was audited: neither good news nor a finding."""

ROOT: Final = Path(__file__).resolve().parents[1]
LOCK: Final = ROOT / "requirements.lock"
SPEC_VERSION: Final = "1.6"

_UNREACHABLE: Final = ("ConnectionError", "ServiceError", "Could not connect", "Max retries", "timed out", "HTTPError")
"""What pip-audit says where the advisory service does not answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of an audit.

    Args:
        code: exit code: 0 nothing found; 1 an advisory; 2 the audit itself failed; 3 nothing was audited.
        lines: what to tell.
    """

    code: int
    lines: list[str]


def verdict(stdout: str, stderr: str) -> Verdict:
    """Return what an audit means.

    Args:
        stdout: what pip-audit printed, JSON where it came so far.
        stderr: what it logged.
    """
    try:
        dependencies = json.loads(stdout)["dependencies"]
    except (ValueError, KeyError, TypeError):
        last = (stderr.strip().splitlines() or ["nothing"])[-1]
        if any(text in stderr for text in _UNREACHABLE):
            return Verdict(code=NOT_AUDITED, lines=[f"NOT AUDITED: the advisory service cannot be reached ({last})"])
        return Verdict(code=2, lines=[f"the audit failed: {last}"])
    found = [
        f"{entry['name']} {entry['version']}: {flaw['id']}, mended in {', '.join(flaw['fix_versions']) or 'no version'}"
        for entry in dependencies
        for flaw in entry.get("vulns", ())
    ]
    skipped = [entry["name"] for entry in dependencies if "skip_reason" in entry]
    asked = len(dependencies) - len(skipped)
    if not asked:
        return Verdict(code=NOT_AUDITED, lines=["NOT AUDITED: the advisory service reported on no package"])
    lines = [*found, f"{asked} packages audited, {len(found)} advisories"]
    if skipped:
        lines.append(f"NOT AUDITED, for the service does not know them: {', '.join(skipped)}")
    return Verdict(code=1 if found else 0, lines=lines)


def audit() -> int:
    """Hold the lock against published advisories, and return the exit code."""
    command = [sys.executable, "-m", "pip_audit", "--requirement", str(LOCK), "--no-deps", "--disable-pip"]
    done = subprocess.run(  # noqa: S603 - the tool of this environment
        [*command, "--format", "json", "--progress-spinner", "off"], capture_output=True, text=True, check=False
    )
    told = verdict(done.stdout, done.stderr)
    for line in told.lines:
        print(line)
    return told.code


def sbom(path: Path) -> int:
    """Write the pins as CycloneDX JSON, and return the exit code.

    Args:
        path: the file.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-W", "ignore", "-m", "cyclonedx_py", "requirements", str(LOCK)]
    options = ["--pyproject", str(ROOT / "pyproject.toml"), "--mc-type", "application", "--sv", SPEC_VERSION]
    done = subprocess.run(  # noqa: S603 - the tool of this environment
        [*command, *options, "--of", "JSON", "--output-reproducible", "-o", str(path)], check=False
    )
    return done.returncode


def main(arguments: list[str]) -> int:
    """Run the command line."""
    match arguments:
        case ["audit"]:
            return audit()
        case ["sbom", path]:
            return sbom(Path(path))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
