"""A deployment behind a secured listener: one user for each role, granted what the table says."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.protocol.admin import CreateAclsRequest

from assay_stream.config import Settings
from assay_stream.kafka.connection import open_admin
from assay_stream.kafka.topics import AccessRole, Grant, Operation, Resource, grants_of
from deploy.local.secured import SecuredBroker
from tests.support.deployment import Deployment

_RESOURCES = {Resource.TOPIC: 2, Resource.GROUP: 3, Resource.TRANSACTIONAL_ID: 5}
_OPERATIONS = {
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DESCRIBE: 8,
    Operation.DESCRIBE_CONFIGS: 10,
}
_LITERAL, _PREFIXED, _ALLOW = 3, 4, 3

ALL_STAGES = "stages"
"""A user with the grants of the three stages, for a worker that runs them all."""

USERS = [*AccessRole, ALL_STAGES]


def password_of(user: str) -> str:
    """A user's password: planted, so that a test can look for it where it must not be."""
    return f"planted-password-of-{user}"


class _CreateAcls(CreateAclsRequest):  # type: ignore[misc]  # aiokafka is not typed
    def __init__(self, rows: Sequence[tuple[object, ...]]) -> None:
        self._rows = rows

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._rows)


@dataclass
class SecuredDeployment(Deployment):
    """Set up over the broker's plain listener; its users come over the secured one."""

    broker: SecuredBroker | None = None

    def env_of(self, user: str, **more: str) -> dict[str, str]:
        assert self.broker is not None
        return {
            "ASSAY_STREAM_BOOTSTRAP_SERVERS": self.broker.secured,
            "ASSAY_STREAM_SECURITY_PROTOCOL": "SASL_SSL",
            "ASSAY_STREAM_SSL_CAFILE": str(self.broker.cafile),
            "ASSAY_STREAM_SASL_USERNAME": user,
            "ASSAY_STREAM_SASL_PASSWORD": password_of(user),
            "ASSAY_STREAM_CONNECT_LIMIT_S": "10",
            **more,
        }

    def as_user(self, user: str, **more: str) -> Deployment:
        return Deployment(self.bootstrap, self.name, env=self.env | self.env_of(user, **more))

    async def grant(self) -> None:
        """Grant every role what it needs, and the user of all stages what they need."""
        for actor in AccessRole:
            await grant(self.settings, f"User:{actor}", grants_of(actor, self.settings))
        for actor in (AccessRole.REGISTRY, AccessRole.JOIN, AccessRole.ALERTS):
            await grant(self.settings, f"User:{ALL_STAGES}", grants_of(actor, self.settings))


async def grant(settings: Settings, principal: str, grants: Iterable[Grant]) -> None:
    async with open_admin(settings) as admin:
        rows = [
            (
                _RESOURCES[wanted.resource],
                wanted.name,
                _PREFIXED if wanted.is_prefix else _LITERAL,
                principal,
                "*",
                _OPERATIONS[operation],
                _ALLOW,
            )
            for wanted in grants
            for operation in wanted.operations
        ]
        answer = await admin._client.send(admin._client.get_random_node(), _CreateAcls(rows))
        assert {entry[0] for entry in answer.creation_responses} == {0}, answer
