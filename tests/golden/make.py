"""Writes the golden files with the code at hand: once, by the commit that later ones are held against.

python -m tests.golden.make
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden import store
from tests.golden.outputs import all_outputs
from tests.golden.scenarios import archive_of, scenarios


def main() -> None:
    """Write every scenario that is not there."""
    for scenario in scenarios():
        if (store.FOLDER / f"{scenario.name}.tar.xz").exists():
            print(f"kept: {scenario.name}", file=sys.stderr)
            continue
        archive = archive_of(scenario)
        begun_s = time.process_time()
        with TemporaryDirectory() as folder:
            outputs = all_outputs(scenario, archive, Path(folder))
        store.write(scenario.name, outputs | {store.ARCHIVE: archive})
        print(f"made: {scenario.name} in {time.process_time() - begun_s:.1f} s", file=sys.stderr)


if __name__ == "__main__":
    main()
