"""Erasures carried out in files: a folder written again, with a stub in place of every erased record.

A stub is a record at the same place with the same timestamp, without key and value. Its headers name the erasure and,
of evidence, hold the hash of its leaf, so that seals still verify. Other lines are copied to the byte; calls, refused
ones too, and evidence without a place in a log are left out. Lists, decisions and alerts are never touched; of refused
records only calls are.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from assay_stream.bindings.erasures import Erasures, ScopeAct, Subject, acts_in, subject_of
from assay_stream.canonical.decode import read_leniently
from assay_stream.errors import InputError
from assay_stream.files.archive import open_archive, opened, write_archive
from assay_stream.files.lines import lines_of, record_line, record_line_parts, record_of_line
from assay_stream.files.local import PREFIX, path_text, writing_to
from assay_stream.model.checkpoint import leaf_of
from assay_stream.model.evidence import CHANGE_TYPE
from assay_stream.model.finding import ANY_SERVER
from assay_stream.model.record import ERASED_HEADER, ERASED_LEAF_HEADER, Headers, Origin, Record, Role, erased_by

_ERASED = (Role.CALLS, Role.REROUTED, Role.EVIDENCE, Role.REJECTED)
_SUFFIXES = (".ndjson", ".jsonl")
_NOWHERE = Origin("", 0, 0)


@dataclass(slots=True)
class Erased:
    """What was erased in a folder.

    Args:
        counts: by erasure and role, how many records have a stub in their place, those of earlier runs included, and as
            ``left_out`` how many lines without a place in a log were left out.
        copied: names of other files, which were not read.
    """

    counts: dict[str, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    copied: list[str] = field(default_factory=list)

    def with_room(self, due: list[ScopeAct], role: Role) -> ScopeAct:
        """Return the erasure that accounts for one more record.

        Raises:
            InputError: ``erasure_exceeded``, where ``seal verify`` would find it: for calls that came late.
        """
        for act in due:
            if role is not Role.EVIDENCE or self.counts[act.scope_id][role.value] < (act.records or 0):
                return act
        raise _exceeded(due[0])

    def check(self, erasures: Erasures) -> None:
        """Check the accounts in the end: what an earlier run erased can come behind what this one does.

        Raises:
            InputError: ``erasure_exceeded``.
        """
        for act in erasures.standing():
            if self.counts.get(act.scope_id, Counter())[Role.EVIDENCE.value] > (act.records or 0):
                raise _exceeded(act)


def _exceeded(act: ScopeAct) -> InputError:
    return InputError(
        "erasure_exceeded",
        f"{act.scope_id} accounts for {act.records} records of evidence, and more are in its scope: some came after it "
        "was decided. Decide on them too, with another erasure",
    )


def acts_of_files(paths: Iterable[Path]) -> Iterator[ScopeAct]:
    """Yield the erasures and holds in archives, in changes as a replay writes them, and in files of decisions.

    Raises:
        InputError: as ``open_archive``; ``bad_record_line``.
    """
    for path in paths:
        for number, line in enumerate(open_archive(path, too_long=lambda _: None)):
            place = Origin(str(path), 0, number)  # files of one name can be in several folders
            record = record_line_parts(line, place)
            if record is None:
                event = read_leniently(line)
                if event is None and line.strip():
                    why = f"line {number + 1} of {path} cannot be read, and may state a legal hold: archive it again"
                    raise InputError("bad_record_line", why)
                kind = event.get("type") if isinstance(event, dict) else None
                role = Role.CHANGES if kind == CHANGE_TYPE else Role.CONTROL
                record = Record(role, place, ANY_SERVER.encode(), line.strip())
            yield from acts_in([record])


def stub_of(record: Record, erasure: ScopeAct) -> Record:
    """Return what stands in place of an erased record."""
    headers: Headers = ((ERASED_HEADER, erasure.scope_id.encode()),)
    if record.role is Role.EVIDENCE:
        headers = (*headers, (ERASED_LEAF_HEADER, leaf_of(record).hex().encode()))
    return record._replace(key=None, value=None, headers=headers)


def erase_folder(source: Path, target: Path, erasures: Erasures) -> Erased:
    """Write a folder of archives or results again, without what was erased; the source stays as it is.

    Raises:
        InputError: ``folder_not_empty``, ``erasure_exceeded``, ``unreadable_file``, ``unwritable_folder``; as
            ``archive.opened``.
    """
    if not source.is_dir():
        raise InputError("unreadable_file", f"{source} is not a folder")
    # `Path.resolve` has an error of its own for a link that leads to itself.
    if Path(os.path.realpath(source)) in Path(os.path.realpath(target)).parents:
        raise InputError("folder_not_empty", f"{target} lies in {source}: choose a folder outside it")
    part, found = target.with_name(PREFIX + target.name), Erased()
    with writing_to(target):
        if target.exists() and (not target.is_dir() or any(target.iterdir())):
            raise InputError("folder_not_empty", f"{target} is there already: choose another folder")
        if part.exists():
            why = "another run is writing it, or was killed: remove it if none is, or choose another folder"
            raise InputError("folder_not_empty", f"{part} is there already: {why}")
        part.mkdir(parents=True)
        try:
            for path in sorted(source.iterdir()):
                if path.name.removesuffix(".gz").removesuffix(".zst").endswith(_SUFFIXES):
                    _erase_file(path, part / path.name, erasures, found)
                elif path.is_dir():
                    raise InputError("unreadable_file", f"{path} is a folder in the folder: erase in it by itself")
                else:
                    found.copied.append(path_text(path.name))
                    shutil.copyfile(path, part / path.name)
            found.check(erasures)
            part.replace(target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
    return found


def _erase_file(source: Path, target: Path, erasures: Erasures, found: Erased) -> None:
    with opened(source) as stream, write_archive(target) as file:
        for number, line in enumerate(lines_of(stream, name=str(source))):
            record = record_line_parts(line, Origin(source.name, 0, number))
            if record is None:
                if due := erasures.due(_subject_in(line)):
                    found.counts[due[0].scope_id]["left_out"] += 1
                else:
                    file.write(line)
                continue
            scope_id = erased_by(record)
            due = erasures.due(subject_of(record.value, record.headers)) if record.role in _ERASED else []
            if due:
                act = found.with_room(due, record.role)
                scope_id, line = act.scope_id, record_line(stub_of(record, act)) + b"\n"
            if scope_id is not None:
                found.counts[scope_id][record.role.value] += 1
            file.write(line)


def _subject_in(line: bytes) -> Subject | None:
    """Return what a line without a place in a log is about: an event, or what a replay refused (``rejected_line``)."""
    content = read_leniently(line)
    if isinstance(content, dict) and isinstance(content.get("error"), dict):
        whole = content | {"origin": _NOWHERE.as_json(), "role": Role.REJECTED.value, "timestamp_ms": 0}
        with suppress(InputError):
            refused = record_of_line(whole, _NOWHERE, (Role.REJECTED,))
            return subject_of(refused.value, refused.headers) or subject_of(line)
    return subject_of(line)
