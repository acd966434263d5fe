"""``assay-stream demo``: the story of a rug pull, from recorded traffic, with no broker."""

from importlib.resources import files
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer

from assay_stream import __version__
from assay_stream.alerts.rules import AlertRules
from assay_stream.cli.demo_story import CHAPTERS, TOLD, DemoStory
from assay_stream.cli.output import Colour, Painter
from assay_stream.errors import ConfigurationError
from assay_stream.files.archive import read_lines
from assay_stream.files.failures import writing_to
from assay_stream.model.envelope import Producer
from assay_stream.replay.results import Results
from assay_stream.replay.run import Replay, spooled

_COLUMNS = 80
_SERVER_ID = "notes"
_OBSERVED = "observed.ndjson"


def demo(
    no_broker: Annotated[bool, typer.Option("--no-broker", help="Tell it from recorded traffic, in files.")] = False,
    output: Annotated[Path, typer.Option(help="Folder to write to; it must not exist.")] = Path("assay-stream-demo"),
) -> None:
    """Show what assay-stream does: a benign upgrade, an approval, a rug pull, a refused call.

    Recorded MCP traffic of small servers goes through the same stages as in production. Needs no Kafka, no Java and no
    network, and writes into a new folder only. With real servers on a real broker: `make demo` in a checkout.
    """
    if not no_broker:
        raise ConfigurationError(
            "bad_option", "add --no-broker; the demo with a broker is `make demo`, in a checkout of the repository"
        )
    if not tell(output):
        raise typer.Exit(1)


def tell(folder: Path) -> bool:
    """Replay the recorded chapters into a new folder, and print the story; return True if it is complete.

    Raises:
        ConfigurationError: ``output_exists``.
        InputError: ``unwritable_folder``.
    """
    if folder.exists() or folder.is_symlink():
        raise ConfigurationError("output_exists", f"{folder} exists: name a new folder with --output")
    chapters = [_lines_of(number) for number in range(1, len(CHAPTERS) + 1)]
    lines = [line for chapter in chapters for line in chapter]
    story = DemoStory(Painter(Colour.AUTO, columns=_COLUMNS), _SERVER_ID)
    with writing_to(folder), Results(folder, {}) as results, spooled(read_lines(lines, name=_OBSERVED)) as spool:
        (folder / _OBSERVED).write_bytes(b"".join(line + b"\n" for line in lines))
        results.start()
        # Time advances between records only, so what is due then belongs to the chapter before; the last step to none.
        steps = Replay(
            spool, producer=Producer(version=__version__), alert_rules=AlertRules(version=__version__)
        ).steps()
        for chapter in chapters:
            story.begin()
            for _ in chapter:
                for written in next(steps):
                    results.write(written)
                    if written.role in TOLD:
                        story.take(written.role, written.value or b"")
            story.tell()
        for written in next(steps):
            results.write(written)
        results.end()
    if not story.end():
        return False
    alerts, uid = quote(str(folder / "alerts.ndjson")), story.first_paged()
    story.say("", f"The records are in {folder}. To look at them:")
    story.commands(
        f"assay-stream alerts list --input {alerts}",
        f"assay-stream alerts show {uid} --input {alerts}",
        f"assay-stream alerts explain {uid} --input {alerts}",
    )
    store = quote(str(folder / "store"))
    story.say("", "The same in a browser (needs the extra `console`), at http://127.0.0.1:8090/:")
    story.commands(
        f"assay-stream store load --store {store} {quote(str(folder / _OBSERVED))}",
        f"assay-stream console --store {store}",
    )
    return True


def _lines_of(chapter: int) -> list[bytes]:
    return (files(__package__) / "data" / "demo" / f"{chapter}.ndjson").read_bytes().splitlines()
