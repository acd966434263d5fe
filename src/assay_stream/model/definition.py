"""Definition records: what lets a reviewer see a definition."""

from typing import Any, NotRequired, Required, cast

from typing_extensions import TypedDict

from assay_stream.canonical.digest import canonicalize
from assay_stream.errors import InputError
from assay_stream.model.fields import DigestText
from assay_stream.model.record import Output, Record, Role
from assay_stream.schemes.assay import tool as assay


class Projection(TypedDict, total=False):
    """The bounded projection that the tool definition digest covers, without a server's id."""

    name: Required[str]
    description: str
    input_schema: dict[str, Any]


class Definition(TypedDict):
    """One distinct tool, prompt, resource template or instructions text, for reviewers. Its key is the full digest."""

    full_digest: DigestText
    definition: dict[str, Any]
    projection: NotRequired[Projection]


def definition_record(record: Record, full: str, definition: dict[str, Any]) -> Output:
    """Return the record of a definition: the same bytes for every observer and kind of list.

    Args:
        definition: a tool, a prompt or a resource template as received, or ``{"instructions": text}``.
    """
    value: Definition = {"full_digest": full, "definition": definition}
    label = "definition"
    if definition.keys() != {"instructions"}:
        try:
            value["projection"] = cast(Projection, assay.definition_projection(definition, server_id=None))
        except InputError:
            label = "definition:not_digestible"
    return Output(
        role=Role.DEFINITIONS,
        key=full.encode(),
        value=canonicalize(value),
        timestamp_ms=record.timestamp_ms,
        label=label,
    )
