"""JSON Schemas (draft 2020-12) of every record, generated from models, and the AsyncAPI document over them.

The core builds its records as plain dicts, for speed. The models here say what those dicts hold; the
conformance tests hold real records of the engine against them. A field that may be absent is absent, never
null.

    python -m assay_stream.model.schemas --check schemas      exit code 1 if a committed file differs
    python -m assay_stream.model.schemas --write schemas      rewrite the files
"""

from assay_stream.model.schemas.folder import all_files, all_schemas, asyncapi, differing_files, main

__all__ = ["all_files", "all_schemas", "asyncapi", "differing_files", "main"]
