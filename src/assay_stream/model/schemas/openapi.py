"""The OpenAPI 3.1 document of ``ingest``: what it takes, and what it answers."""

from typing import Any

from pydantic.json_schema import models_json_schema

from assay_stream import __version__
from assay_stream.limits.serving import INGEST_LIMITS
from assay_stream.model.ingest import IngestAnswer, RequestRefusal
from assay_stream.model.record import CALL_TYPE, LIST_CHANGED_TYPE, LOSS_TYPE, SNAPSHOT_TYPE
from assay_stream.model.schemas.documents import INPUTS, add_conditions, without_markup

_TAKEN = (SNAPSHOT_TYPE, LIST_CHANGED_TYPE, LOSS_TYPE, CALL_TYPE)
_ANSWERS = {
    202: "Every event is acknowledged by Kafka, now or before.",
    207: "Some events are acknowledged by Kafka, others are not: look at each.",
    403: "The events are somebody else's: the path names the field.",
    413: "The request, or each of its events, is too large.",
    422: "No event is valid. The codes are those of assay.rejected.",
    503: "Kafka does not answer, or ingest is starting: send it again. Events may be stored all the same.",
}
_REFUSALS = {
    401: "No client is known by this token or certificate.",
    405: "Events are sent with POST.",
    408: "The body did not arrive in time.",
    415: "The content type, the charset or the encoding is none that is taken.",
    421: "No such host is served here.",
    429: "Too much is waiting for Kafka, or too many requests are in progress: send it again.",
}
_RETRIED = (207, 429, 503)


def openapi() -> dict[str, Any]:
    """Return the OpenAPI document."""
    models: list[Any] = [(INPUTS[name], "validation") for name in _TAKEN]
    models += [(IngestAnswer, "validation"), (RequestRefusal, "validation")]
    names, schemas = models_json_schema(models, ref_template="#/components/schemas/{model}")
    components = without_markup(schemas["$defs"])
    add_conditions(components)
    event = {"oneOf": [names[model] for model in models[: len(_TAKEN)]]}
    batch = {"type": "array", "items": event, "minItems": 1, "maxItems": INGEST_LIMITS.events_max}
    answers = {status: {"oneOf": [names[models[-2]], names[models[-1]]]} for status in _ANSWERS}
    answers |= dict.fromkeys(_REFUSALS, names[models[-1]])
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "assay-stream ingest",
            "version": __version__,
            "description": "Observations as CloudEvents 1.0 over HTTP, in structured, binary and batched mode.",
            "license": {"name": "Apache-2.0", "url": "https://www.apache.org/licenses/LICENSE-2.0"},
        },
        "paths": {
            "/v1/events": {
                "post": {
                    "operationId": "sendEvents",
                    "summary": "Send events. Each is published once within the window, by its source and id.",
                    "security": [{"token": []}, {"certificate": []}],
                    "parameters": [_attribute(name) for name in ("specversion", "type", "source", "id", "time")],
                    "requestBody": {
                        "required": True,
                        "content": {
                            "application/cloudevents+json": {"schema": event},
                            "application/cloudevents-batch+json": {"schema": batch},
                            "application/json": {"schema": {"type": "object", "description": "Data, in binary mode."}},
                        },
                    },
                    "responses": {
                        str(status): _response(status, answers[status]) for status in sorted(_ANSWERS | _REFUSALS)
                    },
                }
            }
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}, "certificate": {"type": "mutualTLS"}},
            "schemas": components,
        },
    }


def _attribute(name: str) -> dict[str, Any]:
    return {
        "name": f"ce-{name}",
        "in": "header",
        "required": False,
        "description": "In binary mode only, where it is required.",
        "schema": {"type": "string"},
    }


def _response(status: int, schema: dict[str, Any]) -> dict[str, Any]:
    response: dict[str, Any] = {
        "description": _ANSWERS.get(status) or _REFUSALS[status],
        "content": {"application/json": {"schema": schema}},
    }
    if status in _RETRIED:
        response["headers"] = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return response
