"""Options shared by several commands, groups of them that a command takes as one parameter, and the files they name."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import socket
import ssl
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TextIO
from weakref import WeakSet

from assay_stream.cli.output import ReportFormat, RowFormat
from assay_stream.cli.shared import flag, option, say
from assay_stream.config import Settings, command_settings
from assay_stream.errors import ConfigurationError, InputError
from assay_stream.files.archive import files_in, open_archive, opened
from assay_stream.files.lines import EVENT_LINE_BYTES_MAX, lines_of
from assay_stream.files.local import reading, writing, writing_to
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.model.cloudevents import ACCEPTED, operator_time_us
from assay_stream.observe import Vantage

if TYPE_CHECKING:
    from assay_stream.observe.http.listener import Listener


STANDARD_INPUT = Path("-")
_TAKEN: WeakSet[TextIO] = WeakSet()


def copied_stdin(path: Path) -> Path:
    """Return the path, or for ``-`` a copy of standard input in a temporary file, deleted on exit and by SIGTERM."""
    if path != STANDARD_INPUT:
        return path
    _take_stdin()
    folder = TemporaryDirectory(prefix="assay-stream-")
    atexit.register(folder.cleanup)

    def end(number: int, _: object) -> None:
        folder.cleanup()
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, end)
    path = Path(folder.name) / "stdin"
    with writing(path), path.open("wb") as file:
        shutil.copyfileobj(sys.stdin.buffer, file)
    return path


def _take_stdin() -> None:
    if sys.stdin in _TAKEN:
        raise InputError("unreadable_file", "`-` stands for standard input twice: give the other input as a file")
    _TAKEN.add(sys.stdin)


def read_input(path: Path | None, *, bytes_max: int = DEFAULT_LIMITS.record_bytes_max, cut: bool = False) -> bytes:
    with _opened(path) as file:
        raw = file.read(bytes_max + 1)
    if len(raw) > bytes_max and not cut:
        name = "standard input" if path is None else path
        raise InputError("too_large", f"{name} is over the limit of {bytes_max} bytes: give a smaller file")
    return raw


@contextmanager
def _opened(path: Path | None) -> Iterator[BinaryIO]:
    if path is None or path == STANDARD_INPUT:
        yield sys.stdin.buffer
        return
    with reading(path), path.open("rb") as file:
        yield file


def every_line(path: Path | None) -> Iterator[bytes]:
    """Yield the lines of a file, decompressed if necessary, or of standard input.

    A line over the record limit is truncated just past it, so that its reader refuses it.
    """
    with _opened(path) if path is None or path == STANDARD_INPUT else opened(path) as file:
        yield from lines_of(file, name=str(path), bytes_max=EVENT_LINE_BYTES_MAX, too_long=lambda _: None)


def pieces(path: Path | None) -> Iterator[bytes]:
    with _opened(path) as file:
        while piece := file.read(65_536):
            yield piece


def input_lines(path: Path | None) -> Iterator[tuple[int, bytes]]:
    return _numbered(every_line(path))


def archive_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the non-blank lines of a file, which may be gzip or zstd, with their 1-based numbers."""
    return input_lines(path) if path == STANDARD_INPUT else _numbered(open_archive(path))


def _numbered(lines: Iterable[bytes]) -> Iterator[tuple[int, bytes]]:
    for number, line in enumerate(lines, start=1):
        if line.strip(b" \t\r\n"):
            yield number, line.rstrip(b"\r\n")


def tools_in(content: object) -> list[dict[str, Any]] | None:
    """Return the tools of a tools/list result, of the response around one, or of a snapshot event; else ``None``."""
    for part in (content, content.get("result"), content.get("data")) if isinstance(content, dict) else ():
        tools = part.get("tools") if isinstance(part, dict) else None
        if isinstance(tools, list):
            for index, tool in enumerate(tools):
                if not isinstance(tool, dict):
                    raise InputError("not_a_tool", "a tool must be a JSON object", path=f"$.tools[{index}]")
            return tools
    return None


Force = Annotated[bool, flag("Replace existing results once the new ones are complete.", "--force")]


def refuse_existing_file(path: Path, *, force: bool, otherwise: str = "give --force to replace it") -> None:
    if not force and path.is_file() and path.stat().st_size:
        raise ConfigurationError("output_exists", f"{path} exists: choose another name, or {otherwise}")


def refuse_filled_folder(folder: Path, *, force: bool, leftovers: Collection[str] = (), hint: str = "") -> None:
    """Refuse to write results into a folder that is not empty, unless ``force``."""
    if force or not folder.is_dir():
        return
    with writing_to(folder):
        found = sorted(entry.name for entry in folder.iterdir() if entry.name not in leftovers)
    if found:
        raise ConfigurationError(
            "output_exists",
            f"{folder} is not empty (it has {found[0]}): choose another folder, {hint}or give --force to replace "
            "the results in it",
        )


def write_key_files(private: tuple[Path, bytes], public: tuple[Path, bytes]) -> None:
    """Write both files of a key pair, or neither, with their final permissions from the first byte on."""
    with ExitStack() as undoing:
        for (path, content), file_mode in ((private, 0o600), (public, 0o644)):
            with writing(path):
                try:
                    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, file_mode)
                except FileExistsError:
                    raise ConfigurationError("file_exists", f"{path} exists: keys are never overwritten") from None
                undoing.callback(path.unlink, missing_ok=True)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
        undoing.pop_all()


def time_option(help_: str, *names: str, ahead: bool = False) -> Any:
    """Declare an option that parses a time to microseconds since the epoch."""

    def parse(text: str) -> int:
        return operator_time_us(text, now_us=time.time_ns() // 1_000, ahead=ahead)

    return option(f"{help_} TIME: {ACCEPTED}.", *names, parser=parse, metavar="TIME")


def files_option(help_: str, *names: str, kind: str | None = None) -> Any:
    """Declare an option that takes files of records, folders of them, or ``-``.

    If several files can be given, standard input is copied to a temporary file, since files may be read more than once.
    """

    def resolve(value: Any) -> Any:
        if value == STANDARD_INPUT:
            _take_stdin()
        if value is None or value == STANDARD_INPUT:
            return value
        if isinstance(value, Path):
            found = list(files_in(value, kind, say))
            if len(found) > 1:
                raise InputError("unreadable_file", f"{value} has {len(found)} such files: name one of them")
            return found[0]
        return [path for each in value for path in files_in(copied_stdin(each), kind, say)]

    return option(f"{help_} A file, a folder, or `-` (stdin).", *names, callback=resolve)


Bootstrap = Annotated[str | None, option("Kafka brokers, host:port. Default: ASSAY_STREAM_BOOTSTRAP_SERVERS.")]
Apply = Annotated[bool, flag("Write. Without it, only print what would be written.", "--apply")]
ServerId = Annotated[str, option("Your name for the server.")]
ServerIds = Annotated[list[str] | None, option("Only this server. Repeatable.", "--server-id")]
AnyServerId = Annotated[str | None, option("Only this server.")]
AnyTool = Annotated[str | None, option("Only this tool.", "--tool")]
AsJson = Annotated[bool, flag("Print one JSON object per line.", "--json")]
Format = Annotated[RowFormat, option("A table for people, or one JSON object per line.", "--format")]
Report = Annotated[ReportFormat, option("A table for people, one JSON object per line, or CSV.", "--format")]
FromKafka = Annotated[bool, flag("Read the deployment's topics, in no consumer group.", "--from-kafka")]
Inputs = Annotated[list[Path] | None, files_option("Recorded observations (NDJSON). Repeatable.", "--input")]
EvidenceFiles = Annotated[
    list[Path] | None, files_option("Evidence (NDJSON). Repeatable.", "--evidence", kind="evidence")
]
AlertFile = Annotated[
    Path | None, files_option("Alerts (NDJSON), in place of the topics.", "--input", "--from-file", kind="alerts")
]
SnapshotPartitions = Annotated[int | None, option("Partitions of the recorded snapshot topic.", min=1)]
ProgressOption = Annotated[bool | None, option("Report progress on standard error. Default: only on a terminal.")]
WebPort = Annotated[int | None, option("Serve /healthz, /readyz and /metrics on this port.", min=1, max=65_535)]
TlsCert = Annotated[
    Path | None, option("Certificate to serve HTTPS with (PEM, its key in the same file or --tls-key).")
]
TlsKey = Annotated[Path | None, option("Private key of that certificate.")]
ObserverId = Annotated[
    str | None, option("Name of this proxy. Default: the host's name.", envvar="ASSAY_STREAM_OBSERVER_ID")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsOptions:
    """Settings that a command which replays can override."""

    bootstrap_servers: Bootstrap = None
    redaction_enable: str | None = option("Redaction rules to enable, comma-separated.")
    redaction_disable: str | None = option("Redaction rules to disable, comma-separated.")
    redaction_names: str | None = option("Additional sensitive key names, comma-separated.")

    def settings(self, **further: object) -> Settings:
        return command_settings(**{field.name: getattr(self, field.name) for field in fields(self)}, **further)


@dataclass(frozen=True, slots=True, kw_only=True)
class VantageOptions:
    """Who observes which server."""

    observer_id: ObserverId = None
    unscoped: bool = flag("Keep the server's id out of definition digests.")
    auth_context: str | None = option("Label (not a secret) for the permissions in use.")

    def of(self, server_id: str) -> Vantage:
        return Vantage(
            server_id=server_id,
            observer_id=observer_or_host(self.observer_id),
            server_scoped=not self.unscoped,
            auth_context=self.auth_context,
        )


def observer_or_host(observer_id: str | None) -> str:
    return socket.gethostname() if observer_id is None else observer_id


def stated_servers(pairs: Iterable[str]) -> dict[str, str]:
    """Parse ``NAME=SERVER`` options: the operator's server names by their names elsewhere."""
    servers: dict[str, str] = {}
    for pair in pairs:
        name, equals, server_id = pair.partition("=")
        if not equals or not name or not server_id.strip():
            raise ConfigurationError("bad_option", "write --server NAME=SERVER")
        servers[name] = server_id
    return servers


def address_of(listen: str) -> tuple[str, int]:
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise ConfigurationError("cannot_listen", "--listen must be host:port, for example 127.0.0.1:8080")
    return host.strip("[]"), int(port)


def origin_of(listener: Listener, port: int) -> str:
    host = f"[{listener.host}]" if ":" in listener.host else listener.host
    return f"{'http' if listener.tls is None else 'https'}://{host}:{port}"


def serving_tls(certificate: Path | None, key: Path | None, client_ca: Path | None = None) -> ssl.SSLContext | None:
    """Return the server's TLS context, ``None`` without a certificate; ``client_ca`` signs client certificates.

    Raises:
        ConfigurationError: ``cannot_listen``, ``bad_option``.
    """
    if certificate is None:
        if key is not None or client_ca is not None:
            raise ConfigurationError("bad_option", "--tls-key and --client-ca need --tls-cert")
        return None
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    given = str(certificate) if key is None else f"{certificate} with {key}"
    try:
        tls.load_cert_chain(certificate, key)
        if client_ca is not None:
            given = str(client_ca)
            tls.load_verify_locations(client_ca)
            tls.verify_mode = ssl.CERT_OPTIONAL
    except OSError as error:
        raise ConfigurationError("cannot_listen", f"cannot use {given}: {error.strerror}") from None
    return tls
