"""``assay-stream deploy kubernetes``: a deployment as manifests, from the tables of topics, grants and processes."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
import yaml
from pydantic import SecretStr, TypeAdapter

from assay_stream import __version__
from assay_stream.cli.options import Force, refuse_filled_folder
from assay_stream.cli.shared import flag, option
from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError
from assay_stream.files.local import Aside, path_text, writing_to
from assay_stream.kafka.topics import ACCESS, AccessRole, Resource, grants_of, topic_names, topic_table
from assay_stream.model.record import Role

deploy_app = typer.Typer(help="Write the manifests of a deployment.", no_args_is_help=True)

Manifest = dict[str, Any]

_MODE = 0o440
"""Of files from Secrets: for the process's group alone. The sealer refuses a key that others can read."""
_PAGES_PORT = 6066
_TLS, _KAFKA = "/run/assay-stream/brokers", "/run/assay-stream/user"
_IMAGE = re.compile(r"[^@\s]+(@sha256:[0-9a-f]{64}|@sha512:[0-9a-f]{128})?")
_STOP_MARGIN_S = 15
_STARTED_LOOK_S = 5
_ABOUT_PLACES = ("bootstrap_servers", "security_protocol", "group_instance_id", "web_host", "web_port")
"""Settings that follow from where a process runs; replicas of one name would fence each other."""


Authentication = Literal["scram", "tls", "token"]
_SHOWN_TO_BROKERS = {
    "scram": {"sasl_mechanism": "SCRAM-SHA-512", "sasl_password_file": f"{_KAFKA}/password"},
    "tls": {"ssl_certfile": f"{_KAFKA}/user.crt", "ssl_keyfile": f"{_KAFKA}/user.key"},
    "token": {"sasl_mechanism": "OAUTHBEARER", "sasl_token_file": f"{_KAFKA}/token"},
}


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

    @property
    def account(self) -> str:
        """Name of its service account, which brokers that take its token may know as the Kafka user of this name."""
        return f"assay-{self.name if self.user is None else self.user}"


def _data(name: str) -> str:
    return (files(__package__) / "data" / name).read_text(encoding="utf-8")


PROCESSES: Mapping[str, Process] = {
    name: TypeAdapter(Process).validate_python({"name": name, **row})
    for name, row in tomllib.loads(_data("kubernetes.toml")).items()
}
_ALWAYS = ("registry", "join", "alerts")


@dataclass(frozen=True, kw_only=True)
class Deployment:
    """What is written, and where."""

    output: Annotated[Path, option("Folder for the files; it must be empty or missing.", metavar="FOLDER")]
    image: Annotated[str, option("The image, best by digest: NAME@sha256:...")]
    namespace: str = option("Namespace of everything.", default="assay-stream")
    strimzi: str = option(
        "Also write topics and users for this cluster of Strimzi's, which is in the same namespace. "
        "Its address replaces ASSAY_STREAM_BOOTSTRAP_SERVERS.",
        default="",
        metavar="CLUSTER",
    )
    ca_secret: str = option(
        "Secret with the brokers' authority (ca.crt). Default with --strimzi: that cluster's.", default=""
    )
    authentication: Authentication = option(
        "What processes show to the brokers: a password, a certificate or a token.", default="scram"
    )
    process: list[str] | None = option(
        f"Also write this process: {', '.join(sorted(set(PROCESSES) - set(_ALWAYS)))}. Repeatable."
    )
    force: Force = False
    keda: bool = flag("Let KEDA scale the stages by their lag.")
    prometheus: bool = flag("Let the Prometheus operator scrape the processes.")

    @cached_property
    def settings(self) -> Settings:
        return load_settings()

    @cached_property
    def processes(self) -> list[Process]:
        """The chosen processes, in the order of their table, with those in whose pods they run.

        Raises:
            ConfigurationError: ``bad_option``.
        """
        wanted = dict.fromkeys((*_ALWAYS, *(self.process or ())))
        if strange := [name for name in wanted if name not in PROCESSES]:
            raise ConfigurationError("bad_option", f"--process: {strange[0]!r:.66} is none of {', '.join(PROCESSES)}")
        wanted |= dict.fromkeys(PROCESSES[name].beside for name in wanted if PROCESSES[name].beside)
        return [PROCESSES[name] for name in PROCESSES if name in wanted]

    @property
    def authority(self) -> str:
        """Name of the Secret with the brokers' authority."""
        return self.ca_secret or f"{self.strimzi}-cluster-ca-cert"

    @property
    def brokers(self) -> str:
        return f"{self.strimzi}-kafka-bootstrap:9093" if self.strimzi else self.settings.bootstrap_servers

    @property
    def users(self) -> list[AccessRole]:
        return sorted({process.user for process in self.processes if process.user is not None})

    def partitions(self, role: Role) -> int:
        return next(spec.partitions for spec in topic_table(self.settings, agents="shipped") if spec.role is role)


@deploy_app.command("kubernetes")
def kubernetes(deployment: Deployment) -> None:
    """Write a deployment for Kubernetes: a folder for `kubectl apply --kustomize`.

    Contacts nothing. Settings come from ASSAY_STREAM_* variables; secrets are never written, but named in the README
    of the folder.

    Example: assay-stream deploy kubernetes --strimzi kafka --image assay-stream@sha256:... --output manifests
    """
    output, processes = deployment.output, deployment.processes
    if not _IMAGE.fullmatch(deployment.image):
        raise ConfigurationError("bad_option", "--image must be NAME, NAME:TAG or NAME@sha256:<64 hexadecimal digits>")
    if deployment.keda and deployment.authentication == "token":
        raise ConfigurationError("bad_option", "--keda needs --authentication scram or tls: KEDA cannot use the token")
    if not (deployment.ca_secret or deployment.strimzi):
        raise ConfigurationError("bad_option", "give --strimzi, or --ca-secret for brokers that something else runs")
    if not deployment.strimzi and "bootstrap_servers" not in deployment.settings.model_fields_set:
        raise ConfigurationError("bad_option", "--ca-secret needs the brokers: set ASSAY_STREAM_BOOTSTRAP_SERVERS")
    parts: Mapping[str, Any] = yaml.safe_load(_data("kubernetes.yaml"))
    manifests = {"settings.yaml": [_filled(parts["settings"], data=_settings(deployment))]}
    if deployment.strimzi:
        manifests["topics.yaml"] = _topics(parts, deployment)
        manifests["users.yaml"] = [_user(parts, deployment, role) for role in deployment.users]
    for process in processes:
        if not process.beside:
            manifests[f"{process.name}.yaml"] = _of_process(parts, deployment, process)
    if deployment.prometheus:
        manifests["monitoring.yaml"] = [parts["monitor"]]
    names = {"namespace": deployment.namespace, "resources": sorted(manifests)}
    manifests["kustomization.yaml"] = [_filled(parts["kustomization"], **names)]
    texts = {name: yaml.dump_all(each, Dumper=_Plain, sort_keys=False, width=120) for name, each in manifests.items()}
    texts["README.md"] = _readme(parts["readme"], deployment)
    with writing_to(output):
        output.mkdir(parents=True, exist_ok=True)
    refuse_filled_folder(output, force=deployment.force)
    with writing_to(output), Aside() as aside:
        for name, text in texts.items():
            aside.path(output / name).write_text(text, encoding="utf-8")
    wrote, readme = path_text(output), path_text(output / "README.md")
    typer.echo(f"wrote {wrote}: read {readme}, then kubectl apply --kustomize {wrote}")


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, _data: Any) -> bool:
        """Write what stands in two places twice: people read it."""
        return True


def _filled(part: Any, **values: Any) -> Any:
    """Fill a part of ``data/kubernetes.yaml``, which documents how."""
    if isinstance(part, str):
        return values.get(part[1:]) if part.startswith("$") else part
    if isinstance(part, list):
        return [_filled(each, **values) for each in part]
    if isinstance(part, dict):
        filled = {name: _filled(each, **values) for name, each in part.items()}
        return {name: each for name, each in filled.items() if each is not None}
    return part


def _settings(deployment: Deployment) -> dict[str, str]:
    given = deployment.settings.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    data = {
        "bootstrap_servers": deployment.brokers,
        "security_protocol": "SSL" if deployment.authentication == "tls" else "SASL_SSL",
        "ssl_cafile": f"{_TLS}/ca.crt",
    }
    # Secrets and files of this machine are nothing for a ConfigMap.
    data |= {
        name: str(value)
        for name, value in given.items()
        if not name.startswith("sasl_")
        and name not in _ABOUT_PLACES
        and not isinstance(getattr(deployment.settings, name), SecretStr | Path)
    }
    data |= _SHOWN_TO_BROKERS[deployment.authentication]
    return {f"ASSAY_STREAM_{name.upper()}": value for name, value in data.items()}


def _topics(parts: Mapping[str, Any], deployment: Deployment) -> list[Manifest]:
    agents = "shipped" if any(process.user is AccessRole.AGENTS for process in deployment.processes) else ""
    found = []
    for spec in topic_table(deployment.settings, agents=agents):
        name = re.sub(r"[^a-z0-9.-]", "-", spec.name.lower())
        values: dict[str, Any] = {"name": name, "topic": None if name == spec.name else spec.name}
        values |= {"replicas": deployment.settings.replication_factor, "cluster": deployment.strimzi}
        found.append(_filled(parts["topic"], **values, partitions=spec.partitions, config=dict(spec.config)))
    return found


def _user(parts: Mapping[str, Any], deployment: Deployment, role: AccessRole) -> Manifest:
    kind = {"scram": "scram-sha-512", "tls": "tls"}.get(deployment.authentication)
    shown, acls = None if kind is None else {"type": kind}, []
    for grant in grants_of(role, deployment.settings):
        of = "transactionalId" if grant.resource is Resource.TRANSACTIONAL_ID else grant.resource.value
        resource = {"type": of, "name": grant.name, "patternType": "prefix" if grant.is_prefix else "literal"}
        acls.append({"resource": resource, "operations": [operation.value for operation in grant.operations]})
    values = {"name": f"assay-{role}", "cluster": deployment.strimzi, "authentication": shown, "acls": acls}
    user: Manifest = _filled(parts["user"], **values)
    return user


def _of_process(parts: Mapping[str, Any], deployment: Deployment, process: Process) -> list[Manifest]:
    """Return the manifests of a process, and of those that run in its pods."""
    together = [process, *(each for each in deployment.processes if each.beside == process.name)]
    served = {each.name: each.serves for each in together if each.serves is not None}
    settings, is_scaled = deployment.settings, bool(deployment.keda and process.follows)
    size = f"{math.ceil(settings.store_mib_max * 1.25 / 1_024)}Gi"
    named = {"name": f"assay-{process.name}", "account": process.account}
    values: dict[str, Any] = named | {
        "kind": "StatefulSet" if process.keeps else "Deployment",
        "stop_s": settings.stop_limit_s + _STOP_MARGIN_S,
        "containers": [_container(parts["container"], deployment, each, together) for each in together],
        "volumes": _volumes(deployment, together),
        "opened": [{"protocol": "TCP", "port": port} for port in (*(e.pages_port for e in together), *served.values())],
        "egress": [{}],
        "ports": [{"name": port, "port": number, "targetPort": port} for port, number in served.items()] or None,
        "cluster_ip": None if served else "None",
    }
    if not is_scaled:  # otherwise KEDA says how many
        values["replicas"] = 1 if process.most is None else min(2, deployment.partitions(process.most))
    if process.most is not None:
        values["spread"] = [_filled(parts["spread"], **named)]
    if process.keeps:
        values |= {"service": named["name"], "claims": [_filled(parts["claim"], size=size)]}
    elif process.most is None:  # a second one would fence the first, or wait for it
        values["strategy"] = {"type": "Recreate"}
    if all(each.reaches == "brokers" for each in together):
        ports = sorted({int(broker.rpartition(":")[2]) for broker in deployment.brokers.split(",")})
        values["egress"] = _filled(parts["egress"], brokers=[{"protocol": "TCP", "port": port} for port in ports])
    kinds = ["account", "workload", "policy"]
    kinds += ["service"] if served or process.keeps else []
    kinds += ["budget"] if process.most is not None else []
    if is_scaled and process.user is not None and process.follows is not None:
        kinds += ["trigger", "scaling"]
        values |= _scaling(deployment, process, process.user, process.follows)
    return [_filled(parts[kind], **values) for kind in kinds]


def _container(part: Any, deployment: Deployment, process: Process, together: Sequence[Process]) -> Manifest:
    kept = "kept" if any(each.keeps for each in together) else "home"
    folders = dict(process.mounts)
    more: Manifest = {}
    if process.user is not None:
        folders |= {"brokers": _TLS, "user": _KAFKA}
        more["env_from"] = [{"configMapRef": {"name": "assay-stream"}}]
        if deployment.authentication == "scram":
            more["env"] = [{"name": "ASSAY_STREAM_SASL_USERNAME", "value": process.account}]
    mounts: list[Manifest] = [{"name": "tmp", "mountPath": "/tmp"}]  # noqa: S108 - the container's own
    mounts += [{"name": kept, "mountPath": "/var/lib/assay-stream"}]
    mounts += [{"name": name, "mountPath": folder, "readOnly": True} for name, folder in folders.items()]
    pages = "pages" if process.pages_port == _PAGES_PORT else "more-pages"
    numbers = {pages: process.pages_port} | ({} if process.serves is None else {process.name: process.serves})
    container: Manifest = _filled(
        part,
        name=process.name,
        image=deployment.image,
        args=process.command,
        ports=[{"name": port, "containerPort": number} for port, number in numbers.items()],
        pages=pages,
        looks=math.ceil((deployment.settings.connect_limit_s + 60) / _STARTED_LOOK_S),
        memory=process.memory,
        mounts=mounts,
        **more,
    )
    return container


def _volumes(deployment: Deployment, together: Sequence[Process]) -> list[Manifest]:
    found: list[Manifest] = [{"name": "tmp", "emptyDir": {}}]
    if not together[0].keeps:
        found.append({"name": "home", "emptyDir": {}})
    for process in together:
        found += [
            {"name": name, "secret": {"secretName": f"assay-{name}", "defaultMode": _MODE}} for name in process.mounts
        ]
        if process.user is None:
            continue
        found.append({"name": "brokers", "secret": {"secretName": deployment.authority}})
        if deployment.authentication == "token":
            token = {"path": "token", "audience": "kafka", "expirationSeconds": 3_600}
            found.append({"name": "user", "projected": {"sources": [{"serviceAccountToken": token}]}})
        else:
            found.append({"name": "user", "secret": {"secretName": process.account, "defaultMode": _MODE}})
    return found


def _scaling(deployment: Deployment, process: Process, user: AccessRole, follows: Role) -> dict[str, Any]:
    keys, env, sasl = {"cert": "user.crt", "key": "user.key"}, None, None
    if deployment.authentication == "scram":
        named = {"name": "ASSAY_STREAM_SASL_USERNAME", "containerName": process.name}
        keys, env, sasl = {"password": "password"}, [{"parameter": "username", **named}], "scram_sha512"
    secrets = [{"parameter": "ca", "name": deployment.authority, "key": "ca.crt"}]
    secrets += [{"parameter": each, "name": process.account, "key": key} for each, key in keys.items()]
    return {
        "secrets": secrets,
        "env": env,
        "brokers": deployment.brokers,
        "group": f"{deployment.settings.group_prefix}-{ACCESS[user].group}",
        "topic": topic_names(deployment.settings)[follows],
        "sasl": sasl,
        "replicas_max": deployment.partitions(follows),
    }


def _readme(text: str, deployment: Deployment) -> str:
    yours = {
        f"assay-{name}": f"`{Path(path).name}`, which `{process.command[0]}` reads in {folder}"
        for process in deployment.processes
        for name, folder in process.mounts.items()
        for path in process.command
        if path.startswith(f"{folder}/")
    }
    topics = ""
    if not deployment.strimzi:
        topics = "Create the topics (`topics apply`) and the grants (`topics acls`) first.\n\n"
        yours[deployment.authority] = "`ca.crt`: the authority of the brokers' certificates"
        keys = {"scram": "`password`", "tls": "`user.crt`, `user.key`"}
        if deployment.authentication in keys:
            for role in deployment.users:
                yours[f"assay-{role}"] = f"{keys[deployment.authentication]}, of the Kafka user of this name"
    rows = "".join(f"| {name} | {text} |\n" for name, text in yours.items())
    secrets = f"Create these Secrets in it:\n\n| Secret | holds |\n|---|---|\n{rows}\n" if rows else ""
    return text.format(version=__version__, namespace=deployment.namespace, topics=topics, secrets=secrets)
