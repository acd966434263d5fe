"""Writes the golden files with the code at hand: once, by the commit that later ones are held against.

python -m tests.golden.make
"""

from __future__ import annotations

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden import live, store
from tests.golden.outputs import all_outputs
from tests.golden.scenarios import HISTORIES, archive_of, outputs_of_captures, outputs_of_history, scenarios


def main() -> None:
    """Write every scenario that is not there, and the digests."""
    for scenario in scenarios():
        if (store.FOLDER / f"{scenario.name}.tar.xz").exists():
            print(f"kept: {scenario.name}", file=sys.stderr)
            continue
        archive = archive_of(scenario)
        with TemporaryDirectory() as folder:
            outputs = all_outputs(scenario, archive, Path(folder))
        store.write(scenario.name, outputs | {store.ARCHIVE: archive})
    if (store.FOLDER / f"{live.NAME}.tar.xz").exists() and not (store.FOLDER / f"{live.REPORTS}.tar.xz").exists():
        with TemporaryDirectory() as folder:
            store.write(live.REPORTS, live.reports(Path(folder)))
    if not store.DIGESTS.exists():
        with TemporaryDirectory() as folder:
            found = {str(seed): outputs_of_history(seed, Path(folder)) for seed in HISTORIES}
        found["captures"] = outputs_of_captures()
        store.write_digests({group: store.digests_of(outputs) for group, outputs in found.items()})


if __name__ == "__main__":
    main()
