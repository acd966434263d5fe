"""`deploy kubernetes`: manifests that Kubernetes, Strimzi, KEDA and Prometheus take, and that name only what exists."""

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import typer
import yaml

from assay_stream.cli.app import app
from assay_stream.cli.kubernetes import PROCESSES
from assay_stream.config import Settings
from assay_stream.kafka.topics import AccessRole, Operation, grants_of, topic_table
from tests.support.command import run_command_text

CRDS = Path(__file__).parent.parent / "data" / "crds"
EVERYTHING = [word for name in PROCESSES for word in ("--process", name)]
IMAGE = "registry.example/assay-stream@sha256:" + "0" * 64

Manifest = dict[str, Any]


def written(folder: Path, *options: str, **env: str) -> list[Manifest]:
    done = run_command_text(
        *["deploy", "kubernetes", "--image", IMAGE, "--output", str(folder), *options], stdin=b"", **env
    )
    assert done.returncode == 0, done.stderr
    texts = [path.read_text() for path in sorted(folder.glob("*.yaml")) if path.name != "kustomization.yaml"]
    return [manifest for text in texts for manifest in yaml.load_all(text, yaml.CSafeLoader)]


@pytest.fixture(scope="module")
def manifests(tmp_path_factory: pytest.TempPathFactory) -> list[Manifest]:
    folder = tmp_path_factory.mktemp("kubernetes") / "all"
    return written(folder, "--strimzi", "kafka", "--keda", "--prometheus", *EVERYTHING)


def of_kind(manifests: list[Manifest], *kinds: str) -> list[Manifest]:
    found = [manifest for manifest in manifests if manifest["kind"] in kinds]
    assert found
    return found


def pods(manifests: list[Manifest]) -> Iterator[tuple[str, Manifest]]:
    for workload in of_kind(manifests, "Deployment", "StatefulSet"):
        yield workload["metadata"]["name"], workload["spec"]["template"]["spec"]


def strict(schema: Any) -> Any:
    """A CRD's schema in which a field that it does not name is an error; Kubernetes drops such a field."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(each) for name, each in schema.items()}
    if isinstance(schema.get("properties"), dict) and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found.setdefault("additionalProperties", False)
    return found


def test_every_manifest_is_valid(tmp_path: Path) -> None:
    """By the schemas of Kubernetes, and for what is not its own by those of the CRDs; equal ones once."""
    distinct: dict[str, Manifest] = {}
    brokers = {"ASSAY_STREAM_BOOTSTRAP_SERVERS": "kafka:9093"}
    for shown, cluster in product(("scram", "tls", "token"), (("--strimzi", "kafka"), ("--ca-secret", "brokers"))):
        more = ["--prometheus", *EVERYTHING] if shown == "token" else ["--keda", "--prometheus", *EVERYTHING]
        found = written(tmp_path / f"{shown}{cluster[0]}", "--authentication", shown, *cluster, *more, **brokers)
        distinct |= {json.dumps(manifest): manifest for manifest in found}
    customs = {}
    for crd in (json.loads(path.read_text()) for path in CRDS.glob("*.json")):
        schema = strict(crd["schema"]) | {"additionalProperties": True}
        jsonschema.Draft202012Validator.check_schema(schema)
        customs[crd["kind"]] = (crd["apiVersion"], jsonschema.Draft202012Validator(schema))
    for manifest in distinct.values():
        if manifest["kind"] in customs:
            version, custom = customs[manifest["kind"]]
            assert manifest["apiVersion"] == version
            custom.validate(manifest)
        else:
            kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_topics_are_those_of_the_table(manifests: list[Manifest]) -> None:
    table = {spec.name: spec for spec in topic_table(Settings(), agents="shipped")}
    topics = {manifest["metadata"]["name"]: manifest["spec"] for manifest in of_kind(manifests, "KafkaTopic")}
    assert topics.keys() == {name.replace("_", "-") for name in table}
    for spec in table.values():
        topic = topics[spec.name.replace("_", "-")]
        assert topic["partitions"] == spec.partitions
        assert topic["config"] == dict(spec.config)


def test_a_topic_whose_name_kubernetes_does_not_take_keeps_it(tmp_path: Path) -> None:
    found = written(tmp_path / "k", "--strimzi", "kafka", ASSAY_STREAM_TOPIC_PREFIX="Team_A.")
    topic = of_kind(found, "KafkaTopic")[0]
    assert topic["metadata"]["name"].startswith("team-a.")
    assert topic["spec"]["topicName"].startswith("Team_A.")


def test_users_get_the_grants_of_their_role(manifests: list[Manifest]) -> None:
    users = {manifest["metadata"]["name"]: manifest for manifest in of_kind(manifests, "KafkaUser")}
    assert users.keys() == {f"assay-{each.user}" for each in PROCESSES.values() if each.user is not None}
    acls = users["assay-join"]["spec"]["authorization"]["acls"]
    granted = {
        (acl["resource"]["type"], acl["resource"]["name"], operation) for acl in acls for operation in acl["operations"]
    }
    kinds = {"transactional-id": "transactionalId"}
    assert granted == {
        (kinds.get(grant.resource, grant.resource), grant.name, operation)
        for grant in grants_of(AccessRole.JOIN, Settings())
        for operation in grant.operations
    }
    assert ("topic", "assay.tool.decision", Operation.WRITE) in granted


def test_every_command_and_option_exists(manifests: list[Manifest]) -> None:
    root = typer.main.get_command(app)
    for _, pod in pods(manifests):
        for container in pod["containers"]:
            command: Any = root
            words = list(container["args"])
            with root.make_context("assay-stream", [], resilient_parsing=True) as context:
                while hasattr(command, "get_command") and words and not words[0].startswith("-"):
                    found = command.get_command(context, words.pop(0))
                    assert found is not None, container["args"]
                    command = found
            known = {name for each in command.params for name in each.opts}
            assert {word for word in words if word.startswith("--")} <= known, container["args"]


def test_every_setting_exists(manifests: list[Manifest]) -> None:
    [settings] = of_kind(manifests, "ConfigMap")
    names = set(settings["data"])
    for _, pod in pods(manifests):
        names |= {each["name"] for container in pod["containers"] for each in container.get("env", ())}
    assert {name.removeprefix("ASSAY_STREAM_").lower() for name in names} <= Settings.model_fields.keys()


def test_settings_of_the_deployment_are_passed_on_and_secrets_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "k"
    found = written(
        folder,
        *["--strimzi", "kafka"],
        ASSAY_STREAM_CALL_PARTITIONS="24",
        ASSAY_STREAM_SASL_PASSWORD="planted",
        ASSAY_STREAM_SEAL_KEY_PASSWORD="planted",
        ASSAY_STREAM_DIGEST_KEY="planted",
        ASSAY_STREAM_GROUP_INSTANCE_ID="planted",
    )
    assert of_kind(found, "ConfigMap")[0]["data"]["ASSAY_STREAM_CALL_PARTITIONS"] == "24"
    assert not any(word in path.read_text() for path in folder.iterdir() for word in ("planted", "DIGEST_KEY"))


def test_ports_and_volumes_fit(manifests: list[Manifest]) -> None:
    """A probe asks a port of its container, a service leads to one, and what is mounted is a volume of the pod."""
    ports: dict[str, set[str]] = {}
    claims = {
        workload["metadata"]["name"]: {
            each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", ())
        }
        for workload in of_kind(manifests, "Deployment", "StatefulSet")
    }
    for name, pod in pods(manifests):
        volumes = {volume["name"] for volume in pod["volumes"]}
        assert len(volumes) == len(pod["volumes"])
        mounted = set()
        for container in pod["containers"]:
            own = {port["name"] for port in container["ports"]}
            ports.setdefault(name, set()).update(own)
            probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "liveness", "readiness")]
            assert {probe["port"] for probe in probes} <= own
            mounted |= {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == volumes | claims[name]
    for service in of_kind(manifests, "Service"):
        assert {port["targetPort"] for port in service["spec"].get("ports", ())} <= ports[service["metadata"]["name"]]


def test_a_process_may_take_as_long_to_stop_as_its_setting_says(tmp_path: Path) -> None:
    found = written(tmp_path / "k", "--strimzi", "kafka", ASSAY_STREAM_STOP_LIMIT_S="120")
    assert all(pod["terminationGracePeriodSeconds"] > 120 for _, pod in pods(found))


def test_no_stage_gets_more_replicas_than_partitions(tmp_path: Path) -> None:
    few = {"ASSAY_STREAM_INPUT_PARTITIONS": "1", "ASSAY_STREAM_CALL_PARTITIONS": "3"}
    found = written(tmp_path / "k", "--strimzi", "kafka", "--keda", **few)
    most = {each["metadata"]["name"]: each["spec"]["maxReplicaCount"] for each in of_kind(found, "ScaledObject")}
    assert most == {"assay-registry": 1, "assay-join": 3, "assay-alerts": 1}
    fixed = written(tmp_path / "fixed", "--strimzi", "kafka", **few)
    replicas = {each["metadata"]["name"]: each["spec"]["replicas"] for each in of_kind(fixed, "Deployment")}
    assert replicas == {"assay-registry": 1, "assay-join": 2, "assay-alerts": 1}


def test_files_of_secrets_are_for_the_process_alone(manifests: list[Manifest]) -> None:
    """Kubernetes gives them to everybody by default, and the sealer refuses such a key (``seal_key_exposed``)."""
    modes = {
        volume["secret"]["secretName"]: volume["secret"].get("defaultMode")
        for _, pod in pods(manifests)
        for volume in pod["volumes"]
        if "secret" in volume and "cluster-ca-cert" not in volume["secret"]["secretName"]
    }
    assert "assay-seal-key" in modes
    assert set(modes.values()) == {0o440}


def test_a_process_has_the_name_of_its_kafka_user(manifests: list[Manifest]) -> None:
    """So that brokers which take the token of its account can know it by that."""
    users = {each["metadata"]["name"] for each in of_kind(manifests, "KafkaUser")}
    assert {pod["serviceAccountName"] for _, pod in pods(manifests)} == users


def test_pods_run_without_rights(manifests: list[Manifest]) -> None:
    for _, pod in pods(manifests):
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert container["image"] == IMAGE


def test_pods_get_no_variables_of_services(manifests: list[Manifest]) -> None:
    """A Service called assay-stream-x gives every pod ASSAY_STREAM_X_PORT, which is no setting."""
    assert [pod["enableServiceLinks"] for _, pod in pods(manifests)] == [False] * len(list(pods(manifests)))


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (["--strimzi", "kafka", "--process", "nothing"], "'nothing' is none of registry, "),
        (["--strimzi", "kafka", "--keda", "--authentication", "token"], "--keda needs --authentication scram or tls"),
        ([], "give --strimzi, or --ca-secret"),
        (["--ca-secret", "brokers"], "set ASSAY_STREAM_BOOTSTRAP_SERVERS"),
        (["--strimzi", "kafka", "--image", "registry.example/assay-stream@sha256:DIGEST"], "--image must be NAME"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, options: list[str], what: str) -> None:
    done = run_command_text(
        "deploy", "kubernetes", "--image", IMAGE, "--output", str(tmp_path / "k"), *options, stdin=b""
    )
    assert (done.returncode, what in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "k").exists()


def test_a_folder_that_holds_something_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("mine")
    done = run_command_text(
        *["deploy", "kubernetes", "--strimzi", "kafka", "--image", IMAGE, "--output", str(tmp_path)], stdin=b""
    )
    assert (done.returncode, "output_exists" in done.stderr) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]
    assert written(tmp_path, "--strimzi", "kafka", "--force")
