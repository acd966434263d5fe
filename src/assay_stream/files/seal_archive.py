"""Evidence and checkpoints copied into files, one for each log that holds something."""

from __future__ import annotations

from pathlib import Path

from assay_stream.errors import InputError
from assay_stream.files.archive import write_archive
from assay_stream.files.record_line import record_line
from assay_stream.files.seal_files import FILE_PREFIX, LogName, Logs
from assay_stream.model.record import Role


def write_logs(folder: Path, evidence: Logs, checkpoints: Logs, *, compress: bool = False) -> dict[str, int]:
    """Write both kinds of log, and return how many records of each were written.

    Args:
        folder: where to; made if missing.
        evidence: the evidence.
        checkpoints: the checkpoints over it.
        compress: whether to write gzip.

    Raises:
        InputError: ``folder_not_empty``, ``unwritable_folder``.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise InputError("folder_not_empty", f"{folder} holds something: archives are never mixed, choose another")
        return {
            role.value: sum(_write_log(folder, role, logs, name, compress=compress) for name in logs.names())
            for role, logs in ((Role.CHECKPOINTS, checkpoints), (Role.EVIDENCE, evidence))
        }
    except OSError as error:
        raise InputError("unwritable_folder", f"cannot write to {folder}: {error.strerror}") from None


def _write_log(folder: Path, role: Role, logs: Logs, name: LogName, *, compress: bool) -> int:
    path = folder / f"{FILE_PREFIX[role]}{name.partition}.ndjson{'.gz' if compress else ''}"
    count = 0
    with write_archive(path) as file:
        for record in logs.records(name):
            file.write(record_line(record) + b"\n")
            count += 1
    if not count:
        path.unlink()
    return count
