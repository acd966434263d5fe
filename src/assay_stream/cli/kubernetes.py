"""``assay-stream deploy kubernetes``: a deployment as manifests, from the tables of topics, grants and processes."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from assay_stream import __version__
from assay_stream.cli.files import Force, refuse_filled_folder
from assay_stream.cli.parameters import flag, option
from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError
from assay_stream.files.local import Aside, writing_to
from assay_stream.kafka.topics import ACCESS, AccessRole, Grant, Resource, grants_of, topic_names, topic_table
from assay_stream.model.record import Role

deploy_app = typer.Typer(help="Write what runs a deployment elsewhere.", no_args_is_help=True)

Manifest = dict[str, Any]

_MODE = 0o440
"""Of files from Secrets: for the process's group alone. The sealer refuses a key that others can read."""
_PAGES_PORT = 6066
_TLS, _KAFKA = "/run/assay-stream/brokers", "/run/assay-stream/user"
_UID = 10001
_STOP_MARGIN_S = 15
_STARTED_LOOK_S = 5
_LAG_RECORDS = 20_000
"""Lag per replica beyond which KEDA adds one: less than a second of the join's work."""
_OURS = {"app.kubernetes.io/part-of": "assay-stream"}
_ABOUT_PLACES = frozenset(
    {"bootstrap_servers", "security_protocol", "group_instance_id", "web_host", "web_port", "store", "spool"}
)
"""Settings that follow from where a process runs; replicas of one name would fence each other."""


class Authentication(StrEnum):
    SCRAM = "scram"
    TLS = "tls"
    TOKEN = "token"  # noqa: S105 - a way, not a token


_PROTOCOLS = {Authentication.SCRAM: "SASL_SSL", Authentication.TLS: "SSL", Authentication.TOKEN: "SASL_SSL"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A row of ``data/kubernetes.toml``, which documents the fields."""

    name: str
    command: list[str]
    memory: str
    user: AccessRole | None = None
    most: Role | None = None
    follows: Role | None = None
    serves: int | None = None
    reaches: str = "brokers"
    mounts: Mapping[str, str] = field(default_factory=dict)
    keeps: str = ""
    beside: str = ""

    @property
    def pages_port(self) -> int:
        return int(self.command[self.command.index("--web-port") + 1]) if "--web-port" in self.command else _PAGES_PORT


def _process(name: str, row: dict[str, Any]) -> Process:
    of_fields: dict[str, Any] = row | {key: Role(row[key]) for key in ("most", "follows") if key in row}
    if "user" in row:
        of_fields["user"] = AccessRole(row["user"])
    return Process(name=name, **of_fields)


_ROWS = tomllib.loads((files(__package__) / "data" / "kubernetes.toml").read_text(encoding="utf-8"))
PROCESSES: Mapping[str, Process] = {name: _process(name, row) for name, row in _ROWS.items()}
_ALWAYS = ("registry", "join", "alerts")


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """What is written.

    Args:
        cluster: name of the Strimzi cluster, empty for brokers that something else runs.
        authority: Secret that holds the brokers' authority as ``ca.crt``.
    """

    settings: Settings
    processes: Sequence[Process]
    image: str
    namespace: str
    cluster: str
    authority: str
    authentication: Authentication
    keda: bool
    prometheus: bool

    @property
    def brokers(self) -> str:
        return f"{self.cluster}-kafka-bootstrap:9093" if self.cluster else self.settings.bootstrap_servers

    @property
    def users(self) -> list[AccessRole]:
        return sorted({process.user for process in self.processes if process.user is not None})

    def partitions(self, role: Role) -> int:
        return next(spec.partitions for spec in topic_table(self.settings, agents="shipped") if spec.role is role)


@deploy_app.callback()
def _deploy() -> None:
    """Write what runs a deployment elsewhere."""


@deploy_app.command("kubernetes")
def kubernetes(
    output: Annotated[Path, option("Folder for the files; it must be empty or missing.", metavar="FOLDER")],
    image: Annotated[str, option("The image, best by digest: NAME@sha256:...")],
    namespace: str = option("Namespace of everything.", default="assay-stream"),
    strimzi: str = option(
        "Also write topics and users for this cluster of Strimzi's, which is in the same namespace. "
        "Its address replaces ASSAY_STREAM_BOOTSTRAP_SERVERS.",
        default="",
        metavar="CLUSTER",
    ),
    ca_secret: str = option(
        "Secret with the brokers' authority (ca.crt). Default with --strimzi: that cluster's.", default=""
    ),
    authentication: Authentication = option(
        "What processes show to the brokers: a password, a certificate or a token.", default=Authentication.SCRAM
    ),
    process: list[str] | None = option(
        f"Also write this process: {', '.join(sorted(set(PROCESSES) - set(_ALWAYS)))}. Repeatable."
    ),
    force: Force = False,
    keda: bool = flag("Let KEDA scale the stages by their lag."),
    prometheus: bool = flag("Let Prometheus' operator scrape them."),
) -> None:
    """Write a deployment for Kubernetes: a folder for `kubectl apply --kustomize`.

    Contacts nothing. Settings come from ASSAY_STREAM_* variables; secrets are never written, but named in the README
    of the folder.

    Example: assay-stream deploy kubernetes --strimzi kafka --image assay-stream@sha256:... --output manifests
    """
    wanted = dict.fromkeys((*_ALWAYS, *(process or ())))
    if strange := [name for name in wanted if name not in PROCESSES]:
        raise ConfigurationError(
            "bad_option", f"--process: there is no {strange[0][:64]!r}, but {', '.join(PROCESSES)}"
        )
    if keda and authentication is Authentication.TOKEN:
        raise ConfigurationError("bad_option", "--keda needs --authentication scram or tls: KEDA cannot use the token")
    wanted |= dict.fromkeys(PROCESSES[name].beside for name in wanted if PROCESSES[name].beside)
    if not (ca_secret or strimzi):
        raise ConfigurationError("bad_option", "give --strimzi, or --ca-secret for brokers that something else runs")
    deployment = Deployment(
        settings=load_settings(),
        processes=[PROCESSES[name] for name in PROCESSES if name in wanted],
        image=image,
        namespace=namespace,
        cluster=strimzi,
        authority=ca_secret or f"{strimzi}-cluster-ca-cert",
        authentication=authentication,
        keda=keda,
        prometheus=prometheus,
    )
    with writing_to(output):
        output.mkdir(parents=True, exist_ok=True)
    refuse_filled_folder(output, force=force)
    with writing_to(output), Aside() as aside:
        for name, text in texts_of(deployment).items():
            aside.path(output / name).write_text(text, encoding="utf-8")
    typer.echo(f"wrote {output}: read {output / 'README.md'}, then kubectl apply --kustomize {output}")


def texts_of(deployment: Deployment) -> dict[str, str]:
    """Return the files of a deployment by name."""
    manifests = manifests_of(deployment)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": deployment.namespace,
        "resources": sorted(manifests),
    }
    documents = {**manifests, "kustomization.yaml": [kustomization]}
    texts = {name: yaml.dump_all(each, Dumper=_Plain, sort_keys=False, width=120) for name, each in documents.items()}
    return {**texts, "README.md": _readme(deployment)}


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        """Write what stands in two places twice: people read it."""
        return True


def manifests_of(deployment: Deployment) -> dict[str, list[Manifest]]:
    """Return the manifests of a deployment, by the file that they stand in."""
    found = {"settings.yaml": [_settings(deployment)]}
    if deployment.cluster:
        found["topics.yaml"] = _topics(deployment)
        found["users.yaml"] = [_user(deployment, role) for role in deployment.users]
    for process in deployment.processes:
        if not process.beside:
            found[f"{process.name}.yaml"] = _of_process(deployment, process)
    if deployment.prometheus:
        found["monitoring.yaml"] = [_pod_monitor()]
    return found


def _named(api: str, kind: str, name: str, **more: Any) -> Manifest:
    labels = _OURS | more.pop("labels", {})
    return {"apiVersion": api, "kind": kind, "metadata": {"name": name, "labels": labels}, **more}


def _settings(deployment: Deployment) -> Manifest:
    settings = deployment.settings
    given = settings.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    # Secrets and files of this machine are nothing for a ConfigMap.
    kept = {
        name: str(value)
        for name, value in given.items()
        if not name.startswith(("sasl_", "ssl_", "seal_", "auth_")) and name not in _ABOUT_PLACES
    }
    data = {
        "bootstrap_servers": deployment.brokers,
        "security_protocol": _PROTOCOLS[deployment.authentication],
        "ssl_cafile": f"{_TLS}/ca.crt",
        **kept,
        **_shown_to_brokers(deployment.authentication),
    }
    return _named(
        "v1", "ConfigMap", "assay-stream", data={f"ASSAY_STREAM_{name.upper()}": value for name, value in data.items()}
    )


def _shown_to_brokers(authentication: Authentication) -> dict[str, str]:
    match authentication:
        case Authentication.SCRAM:
            return {"sasl_mechanism": "SCRAM-SHA-512", "sasl_password_file": f"{_KAFKA}/password"}
        case Authentication.TLS:
            return {"ssl_certfile": f"{_KAFKA}/user.crt", "ssl_keyfile": f"{_KAFKA}/user.key"}
        case Authentication.TOKEN:
            return {"sasl_mechanism": "OAUTHBEARER", "sasl_token_file": f"{_KAFKA}/token"}


# Kafka, as Strimzi runs it


def _topics(deployment: Deployment) -> list[Manifest]:
    agents = "shipped" if any(process.user is AccessRole.AGENTS for process in deployment.processes) else ""
    found = []
    for spec in topic_table(deployment.settings, agents=agents):
        replicas = deployment.settings.replication_factor
        topic = {"partitions": spec.partitions, "replicas": replicas, "config": dict(spec.config)}
        name = re.sub(r"[^a-z0-9.-]", "-", spec.name.lower())
        if name != spec.name:
            topic["topicName"] = spec.name
        labels = {"strimzi.io/cluster": deployment.cluster}
        found.append(_named("kafka.strimzi.io/v1", "KafkaTopic", name, labels=labels, spec=topic))
    return found


def _user(deployment: Deployment, role: AccessRole) -> Manifest:
    kind = {Authentication.SCRAM: "scram-sha-512", Authentication.TLS: "tls"}.get(deployment.authentication)
    spec: dict[str, Any] = {} if kind is None else {"authentication": {"type": kind}}
    acls = [_acl(grant) for grant in grants_of(role, deployment.settings)]
    spec["authorization"] = {"type": "simple", "acls": acls}
    labels = {"strimzi.io/cluster": deployment.cluster}
    return _named("kafka.strimzi.io/v1", "KafkaUser", _user_name(role), labels=labels, spec=spec)


def _acl(grant: Grant) -> dict[str, Any]:
    kind = "transactionalId" if grant.resource is Resource.TRANSACTIONAL_ID else grant.resource.value
    resource = {"type": kind, "name": grant.name, "patternType": "prefix" if grant.is_prefix else "literal"}
    return {"resource": resource, "operations": [operation.value for operation in grant.operations]}


def _user_name(role: AccessRole) -> str:
    return f"assay-{role}"


def _account(process: Process) -> str:
    """Return the service account: brokers that take its token may know it as the Kafka user of the same name."""
    return f"assay-{process.name}" if process.user is None else _user_name(process.user)


# Workloads


def _of_process(deployment: Deployment, process: Process) -> list[Manifest]:
    together = [process, *(each for each in deployment.processes if each.beside == process.name)]
    name, labels = f"assay-{process.name}", {"app.kubernetes.io/name": f"assay-{process.name}"}
    found = [
        _named("v1", "ServiceAccount", _account(process), labels=labels, automountServiceAccountToken=False),
        _workload(deployment, together, name, labels),
        _network_policy(deployment, together, name, labels),
    ]
    served = {each.name: each.serves for each in together if each.serves is not None}
    if served or process.keeps:
        ports = [{"name": port, "port": number, "targetPort": port} for port, number in served.items()]
        spec: Manifest = {"selector": labels, "ports": ports} if ports else {"selector": labels, "clusterIP": "None"}
        found.append(_named("v1", "Service", name, labels=labels, spec=spec))
    if process.most is not None:
        spec = {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
        found.append(_named("policy/v1", "PodDisruptionBudget", name, labels=labels, spec=spec))
    if deployment.keda and process.follows is not None and process.user is not None:
        found += _scaling(deployment, process, process.user, process.follows, name)
    return found


def _workload(deployment: Deployment, together: Sequence[Process], name: str, labels: dict[str, str]) -> Manifest:
    process = together[0]
    stop_s = deployment.settings.stop_limit_s + _STOP_MARGIN_S
    pod = {
        "serviceAccountName": _account(process),
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": stop_s,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _UID,
            "runAsGroup": _UID,
            "fsGroup": _UID,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [_container(deployment, each, together) for each in together],
        "volumes": _volumes(deployment, together),
    }
    if process.most is not None:
        spread = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway"}
        pod["topologySpreadConstraints"] = [{**spread, "labelSelector": {"matchLabels": labels}}]
    spec: Manifest = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": _OURS | labels}, "spec": pod},
    }
    if not (deployment.keda and process.follows):  # otherwise KEDA says how many
        spec = {"replicas": 1 if process.most is None else min(2, deployment.partitions(process.most)), **spec}
    if process.keeps:
        size = f"{math.ceil(deployment.settings.store_mib_max * 1.25 / 1_024)}Gi"
        claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
        spec |= {"serviceName": name, "volumeClaimTemplates": [{"metadata": {"name": "kept"}, "spec": claim}]}
        return _named("apps/v1", "StatefulSet", name, labels=labels, spec=spec)
    if process.most is None:  # a second one would fence the first, or wait for it
        spec["strategy"] = {"type": "Recreate"}
    return _named("apps/v1", "Deployment", name, labels=labels, spec=spec)


def _container(deployment: Deployment, process: Process, together: Sequence[Process]) -> Manifest:
    kept = next((each.keeps for each in together if each.keeps), "")
    mounts: list[Manifest] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the container's own
    mounts += [{"name": "kept" if kept else "home", "mountPath": "/var/lib/assay-stream"}]
    mounts += [{"name": name, "mountPath": folder, "readOnly": True} for name, folder in process.mounts.items()]
    more: Manifest = {}
    if process.user is not None:
        mounts += [
            {"name": "brokers", "mountPath": _TLS, "readOnly": True},
            {"name": "user", "mountPath": _KAFKA, "readOnly": True},
        ]
        more["envFrom"] = [{"configMapRef": {"name": "assay-stream"}}]
        if deployment.authentication is Authentication.SCRAM:
            more["env"] = [{"name": "ASSAY_STREAM_SASL_USERNAME", "value": _user_name(process.user)}]
    pages = {"port": "pages" if process.pages_port == _PAGES_PORT else "more-pages"}
    numbers = {pages["port"]: process.pages_port} | ({} if process.serves is None else {process.name: process.serves})
    # Pages are served once the brokers answer, and a process tries for as long as its setting says.
    looks = math.ceil((deployment.settings.connect_limit_s + 60) / _STARTED_LOOK_S)
    alive, ready = ({"httpGet": {"path": path, **pages}} for path in ("/healthz", "/readyz"))
    return {
        "name": process.name,
        "image": deployment.image,
        "args": process.command,
        **more,
        "ports": [{"name": port, "containerPort": number} for port, number in numbers.items()],
        "startupProbe": {**alive, "periodSeconds": _STARTED_LOOK_S, "failureThreshold": looks},
        "livenessProbe": {**alive, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 3},
        "readinessProbe": {**ready, "periodSeconds": 5, "timeoutSeconds": 5},
        "resources": {"requests": {"cpu": "250m", "memory": process.memory}, "limits": {"memory": process.memory}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _volumes(deployment: Deployment, together: Sequence[Process]) -> list[Manifest]:
    found: list[Manifest] = [{"name": "tmp", "emptyDir": {}}]
    if not together[0].keeps:
        found.append({"name": "home", "emptyDir": {}})
    for process in together:
        found += [
            {"name": name, "secret": {"secretName": f"assay-{name}", "defaultMode": _MODE}} for name in process.mounts
        ]
        if process.user is not None:
            found.append({"name": "brokers", "secret": {"secretName": deployment.authority}})
            found.append({"name": "user", **_user_volume(deployment, process.user)})
    return found


def _user_volume(deployment: Deployment, role: AccessRole) -> Manifest:
    if deployment.authentication is not Authentication.TOKEN:
        return {"secret": {"secretName": _user_name(role), "defaultMode": _MODE}}
    token = {"path": "token", "audience": "kafka", "expirationSeconds": 3_600}
    return {"projected": {"sources": [{"serviceAccountToken": token}]}}


def _network_policy(deployment: Deployment, together: Sequence[Process], name: str, labels: dict[str, str]) -> Manifest:
    opened = [each.pages_port for each in together] + [each.serves for each in together if each.serves is not None]
    spec: Manifest = {
        "podSelector": {"matchLabels": labels},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [{"ports": [{"protocol": "TCP", "port": port} for port in opened]}],
    }
    if any(each.reaches == "anything" for each in together):
        spec["egress"] = [{}]
    else:
        brokers = sorted({int(broker.rpartition(":")[2]) for broker in deployment.brokers.split(",")})
        names = [{"protocol": protocol, "port": 53} for protocol in ("UDP", "TCP")]
        spec["egress"] = [{"ports": names}, {"ports": [{"protocol": "TCP", "port": port} for port in brokers]}]
    return _named("networking.k8s.io/v1", "NetworkPolicy", name, labels=labels, spec=spec)


def _scaling(deployment: Deployment, process: Process, role: AccessRole, follows: Role, name: str) -> list[Manifest]:
    """Return what KEDA needs: it asks the brokers for the stage's lag, as the stage's user."""
    settings, labels = deployment.settings, {"app.kubernetes.io/name": name}
    asked = {
        "bootstrapServers": deployment.brokers,
        "consumerGroup": f"{settings.group_prefix}-{ACCESS[role].group}",
        "topic": topic_names(settings)[follows],
        "lagThreshold": str(_LAG_RECORDS),
        "tls": "enable",
    }
    user = _user_name(role)
    shown: Manifest = {"secretTargetRef": [{"parameter": "ca", "name": deployment.authority, "key": "ca.crt"}]}
    if deployment.authentication is Authentication.SCRAM:
        asked["sasl"] = "scram_sha512"
        shown["secretTargetRef"].append({"parameter": "password", "name": user, "key": "password"})
        named = {"name": "ASSAY_STREAM_SASL_USERNAME", "containerName": process.name}
        shown["env"] = [{"parameter": "username", **named}]
    else:
        pair = {"cert": "user.crt", "key": "user.key"}
        shown["secretTargetRef"] += [{"parameter": each, "name": user, "key": key} for each, key in pair.items()]
    spec = {
        "scaleTargetRef": {"name": name},
        "minReplicaCount": 1,
        "maxReplicaCount": deployment.partitions(follows),
        "triggers": [{"type": "kafka", "metadata": asked, "authenticationRef": {"name": name}}],
    }
    return [
        _named("keda.sh/v1alpha1", "TriggerAuthentication", name, labels=labels, spec=shown),
        _named("keda.sh/v1alpha1", "ScaledObject", name, labels=labels, spec=spec),
    ]


def _pod_monitor() -> Manifest:
    endpoints = [{"port": port, "path": "/metrics"} for port in ("pages", "more-pages")]
    spec = {"selector": {"matchLabels": _OURS}, "podMetricsEndpoints": endpoints}
    return _named("monitoring.coreos.com/v1", "PodMonitor", "assay-stream", spec=spec)


def _readme(deployment: Deployment) -> str:
    yours = {
        f"assay-{name}": f"`{Path(path).name}`, which `{process.command[0]}` reads in {folder}"
        for process in deployment.processes
        for name, folder in process.mounts.items()
        for path in process.command
        if path.startswith(f"{folder}/")
    }
    if not deployment.cluster:
        yours[deployment.authority] = "`ca.crt`: the authority of the brokers' certificates"
        keys = {Authentication.SCRAM: "`password`", Authentication.TLS: "`user.crt`, `user.key`"}
        if deployment.authentication in keys:
            for role in deployment.users:
                yours[_user_name(role)] = f"{keys[deployment.authentication]}, of the Kafka user of this name"
    rows = "".join(f"| {name} | {text} |\n" for name, text in yours.items())
    secrets = f"Make these Secrets in it:\n\n| Secret | holds |\n|---|---|\n{rows}\n" if rows else ""
    topics = (
        "" if deployment.cluster else "Create the topics (`topics apply`) and the grants (`topics acls`) first.\n\n"
    )
    return (
        f"# assay-stream {__version__} on Kubernetes\n\n"
        f"Written by `assay-stream deploy kubernetes`: write it again rather than edit it, and put what is yours into "
        f"an overlay of kustomize.\n\n{topics}"
        f"    kubectl create namespace {deployment.namespace}\n\n{secrets}"
        f"    kubectl apply --kustomize .\n\n"
        f"A process is up when `/readyz` on its pages says so: `kubectl get pods` shows it as ready.\n"
    )
