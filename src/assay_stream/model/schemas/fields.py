"""Fields that several records share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

DigestText = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")]
BareHex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
# A scheme can print a word (a risk level) or nothing (the hash of a schema that is not there).
SchemeValue = Annotated[str, StringConstraints(pattern=r"^((sha256:)?[0-9a-f]{64}|LOW|MEDIUM|HIGH)?$")]
ActionText = Literal["allow", "warn", "block"]
UnknownText = Literal["allow_degraded", "warn", "block"]
Digits = Annotated[str, StringConstraints(pattern=r"^[0-9]+$")]
Base64 = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9+/]*={0,2}$")]
Natural = Annotated[int, Field(ge=0)]
Micros = Annotated[int, Field(ge=0, description="Event time, microseconds since the epoch.")]
Millis = Annotated[int, Field(ge=0, description="Milliseconds since the epoch.")]


class Closed(BaseModel):
    """A record that only assay-stream writes: it holds these fields and no others."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")


class OriginField(Closed):
    """Where an input record stands in its log: topic, partition and offset."""

    topic: str
    partition: Natural
    offset: Natural
