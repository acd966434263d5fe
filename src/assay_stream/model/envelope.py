"""The Assay envelope around a payload, as JCS bytes, and who writes it.

The record says what was observed and by which rule it was bound. It never says that a tool is safe.
"""

from dataclasses import dataclass, field
from hashlib import sha256

import orjson

from assay_stream.canonical.digest import canonicalize
from assay_stream.model.observation import CallEvent
from assay_stream.model.record import Headers

EVIDENCE_TYPE = "assay.tool.decision"
EVIDENCE_SOURCE = "urn:assay-stream"
STRUCTURED: Headers = (("content-type", b"application/cloudevents+json"),)

_COVERED_MIDDLE = b',"datacontenttype":"application/json","specversion":"1.0","subject":'
_TYPE_AND_END = b',"type":"' + EVIDENCE_TYPE.encode() + b'"}'


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """Who writes the evidence, as the envelope names it.

    Args:
        git: commit it was built from, ``unknown`` where the build did not say.
    """

    version: str
    git: str = "unknown"
    name: str = "assay-stream"
    fragment: bytes = field(init=False, repr=False, compare=False)
    """Its part of every envelope, between the content hash and the data."""

    def __post_init__(self) -> None:
        constant = {
            "assaygit": self.git,
            "assaypii": False,
            "assayproducer": self.name,
            "assayproducerversion": self.version,
            "assaysecrets": False,
        }
        fragment = b'",' + canonicalize(constant)[1:-1] + b',"data":'
        object.__setattr__(self, "fragment", fragment)


def envelope(data: bytes, event: CallEvent, producer: Producer) -> bytes:
    """Return the evidence record's bytes: JCS of the Assay envelope around a payload.

    Run id and sequence are a bundle's notions and are assigned at export. The parts are canonicalised one by one
    and set together in JCS order: ``assay...`` < ``data`` < ``datacontenttype`` < ... < ``type``.

    Args:
        data: the payload as JCS bytes.
    """
    subject = orjson.dumps(event.tool_name)
    covered = b"".join((b'{"data":', data, _COVERED_MIDDLE, subject, _TYPE_AND_END))
    identity = sha256(orjson.dumps([event.source, event.id])).hexdigest()
    parts = [
        b'{"assaycontenthash":"sha256:',
        sha256(covered).hexdigest().encode(),
        producer.fragment,
        data,
        b',"datacontenttype":"application/json","id":"',
        identity.encode(),
        b'","source":"',
        EVIDENCE_SOURCE.encode(),
        b'","specversion":"1.0","subject":',
        subject,
        b',"time":"',
        event.time.encode(),
        b'"',
    ]
    if event.traceparent is not None:
        parts += (b',"traceparent":', orjson.dumps(event.traceparent))
    parts.append(_TYPE_AND_END)
    return b"".join(parts)
