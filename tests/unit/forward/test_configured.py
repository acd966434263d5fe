"""A file of receivers: what it may say, who gets what, and where its secrets stay."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assay_stream.alerts.formats import view_of
from assay_stream.errors import AssayStreamError, ConfigurationError
from assay_stream.forward.posting import MessageService
from assay_stream.forward.receivers import Entry, Subscription, read_receivers
from assay_stream.model.kinds import Kind
from assay_stream.plugins import RECEIVERS, Receiver
from tests.support.alerts import alert_of
from tests.support.errors import raises_code
from tests.support.toml import toml_of

SAMPLE = Path(__file__).resolve().parents[3] / "deploy" / "forward" / "receivers.toml"
SECRET = "hidden-5"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(f"https://hooks.example.com/{SECRET}\n")
    return str(path)


def read(*entries: dict[str, Any]) -> list[Subscription]:
    return read_receivers(toml_of({"receivers": entries}).encode(), "r.toml", group_prefix="p")


def slack(secret: str, **fields: Any) -> dict[str, Any]:
    return {"name": "soc", "type": "slack", "url_file": secret} | fields


def test_the_sample_names_every_kind_of_receiver(tmp_path: Path) -> None:
    """``deploy/forward/receivers.toml`` is what the docs show; each has a group of its own."""
    (tmp_path / "url").write_text("https://hooks.example.com/x")
    text = SAMPLE.read_text()
    for name in ("hec-token", "slack-url", "teams-url", "pagerduty-key", "hook-hmac"):
        text = text.replace(f"/run/secrets/{name}", str(tmp_path / "url"))
    made = read_receivers(text.encode(), "r.toml", group_prefix="p")
    groups = [f"p-forward-{name}" for name in ("splunk", "soc-channel", "platform-team", "on-call", "siem", "archive")]
    assert [each.group for each in made] == groups
    kinds = {entry["type"] for entry in tomllib.loads(text)["receivers"]}
    assert kinds == {"splunk_hec", "slack", "teams", "pagerduty", "syslog", "webhook"}


def test_severity_kinds_and_servers_decide_who_gets_an_alert(secret: str) -> None:
    (one,) = read(slack(secret, min_severity="high", kinds=["tool_changed", "pin_mismatch"], servers=["prod-*", "x"]))
    wanted = [
        one.wants(view_of(alert_of(**fields)))
        for fields in (
            {"server_id": "prod-1"},
            {"server_id": "x"},
            {"server_id": "dev-1"},
            {"server_id": "prod-1", "kind": Kind.TOOL_REMOVED},
            {"server_id": "prod-1", "kind": Kind.TOOL_SHADOWED},
            {"server_id": "prod-1", "kind": Kind.PIN_MISMATCH},
        )
    ]
    assert wanted == [True, True, False, False, False, True]


def test_a_kind_that_joined_an_alert_counts(secret: str) -> None:
    """A change that breaks a pin is one alert of both kinds, the change first."""
    (one,) = read(slack(secret, kinds=["pin_mismatch"]))
    alert = alert_of(kind=Kind.TOOL_CHANGED)
    assert not one.wants(view_of(alert))
    alert["finding_info"]["types"].append("pin_mismatch")
    assert one.wants(view_of(alert))


def test_many_alerts_hide_none_that_is_asked_for(secret: str) -> None:
    """What is folded may be of any kind; severity and server are still asked for."""
    (one,) = read(slack(secret, kinds=["tool_changed"], servers=["prod-*"]))
    assert one.wants(view_of(alert_of(kind=Kind.ALERTS_FOLDED, server_id="prod-1")))
    assert one.wants(view_of(alert_of(kind=Kind.SERVER_CHANGED, server_id="prod-1", release="a" * 64)))
    assert not one.wants(view_of(alert_of(kind=Kind.ALERTS_FOLDED, server_id="dev-1")))


def test_a_receiver_without_filters_gets_everything(secret: str) -> None:
    (one,) = read(slack(secret))
    assert all(one.wants(view_of(alert_of(kind=kind))) for kind in Kind)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"type": "pager"}, "type"),
        ({"name": "SOC"}, "name"),
        ({"kinds": ["later"]}, "kinds"),
        ({"kinds": []}, "kinds"),
        ({"servers": "prod"}, "servers"),
        ({"servers": ["[x"]}, "pattern"),
        ({"min_severity": "most"}, "min_severity"),
        ({"timeout_s": 0}, "timeout_s must be seconds, 0.1 to 300"),
        ({"timeout_s": 301}, "timeout_s must be seconds"),
        ({"timeout_s": "100"}, "timeout_s must be seconds"),
        ({"timeout_s": [5]}, "timeout_s must be seconds"),
        ({"ca_file": "x\0y"}, "ca_file must be one text"),
        ({"url": "https://x.example/hidden-5"}, "slack has no field 'url'; it takes"),
        ({"url_file": ["x"]}, "url_file"),
        ({"url_file": "x\0y"}, "url_file must be one text"),
        ({"start": "yesterday"}, "start"),
    ],
)
def test_a_bad_entry_is_named_and_not_quoted(secret: str, changes: dict[str, Any], named: str) -> None:
    """With its number and what it must be."""
    with raises_code("bad_receivers", kind=ConfigurationError) as caught:
        read(slack(secret, name="first"), slack(secret, **changes))
    assert "entry 2" in caught.value.message
    assert named in caught.value.message
    assert SECRET not in caught.value.message


@pytest.mark.parametrize(
    "entry",
    [
        {"name": "s", "type": "syslog", "to": "host"},
        {"name": "w", "type": "webhook", "url": "ftp://x"},
        {"name": "w", "type": "webhook", "url": "https://x", "format": "pdf"},
        {"name": "w", "type": "webhook", "url": "https://x", "header": "X"},
        {"name": "w", "type": "webhook"},
        {"name": "w", "type": "webhook", "url": "https://x/a b"},
        {"name": "w", "type": "webhook", "url": "https://x/\n"},
        {"name": "w", "type": "webhook", "url": "https://x/\xe9"},
    ],
)
def test_a_target_that_cannot_be_is_named(entry: dict[str, Any]) -> None:
    with raises_code("bad_receivers", kind=ConfigurationError, match="entry 1"):
        read(entry)


def test_people_are_told_from_now_on_and_stores_get_everything(secret: str) -> None:
    """Unless the file says otherwise: a new channel is not flooded with a year of alerts."""
    syslog = {"name": "s", "type": "syslog", "to": "h:514"}
    started = [read(slack(secret)), read(slack(secret, start="oldest")), read(syslog), read(syslog | {"start": "now"})]
    assert [one.from_now for (one,) in started] == [True, False, False, True]


@pytest.mark.parametrize(("given", "timeout_s"), [(30, 30.0), (0.5, 0.5), (300, 300.0)])
def test_a_receiver_can_be_given_time(secret: str, given: object, timeout_s: float) -> None:
    (one,) = read(slack(secret, timeout_s=given))
    assert isinstance(one.receiver, MessageService)
    assert one.receiver._poster._timeout.total == timeout_s


def test_two_receivers_cannot_share_a_position(secret: str) -> None:
    with pytest.raises(ConfigurationError, match="same name"):
        read(slack(secret), slack(secret))


@pytest.mark.parametrize("name", ["webhook", "syslog"])
def test_a_name_is_not_that_of_the_command_line_s_receiver(secret: str, name: str) -> None:
    """``--to`` has that group: beside such a process, each of the two would get part of the alerts."""
    with pytest.raises(ConfigurationError, match="share"):
        read(slack(secret, name=name))


@pytest.mark.parametrize(
    "raw", [b"", b"receivers = []", b"- x", b"receivers = [1]", b"\xff", b"other = []", b"receivers: []"]
)
def test_a_file_that_is_none_is_refused(raw: bytes) -> None:
    with pytest.raises(ConfigurationError, match=r"r\.toml"):
        read_receivers(raw, "r.toml", group_prefix="p")


def make_receiver(fields: dict[str, Any], place: str) -> Receiver:
    return RECEIVERS.load(fields["type"])(Entry(fields, place))


def refusal(**entry: Any) -> AssayStreamError:
    with raises_code("bad_receivers", kind=ConfigurationError) as caught:
        make_receiver({"name": "soc", **entry}, "r.toml, entry 1")
    return caught.value


@pytest.mark.parametrize("rest", ["/services/collector", "/services/collector/event", "/?index=x", "#x"])
def test_a_collectors_address_is_its_base(secret: str, rest: str) -> None:
    """What Splunk's own examples show would be asked for twice, and alerts would wait for ever."""
    url = f"https://splunk.example.com:8088{rest}"
    assert "base address" in str(refusal(type="splunk_hec", url=url, token_file=secret))


@pytest.mark.parametrize("kind", ["slack", "teams", "webhook"])
@pytest.mark.parametrize(
    "url",
    ["http://hooks.example.com/hidden-5", "file:///etc/passwd", "https://", "https://h/ x", "https://a..hidden-5/"],
)
def test_a_secret_goes_over_https_only(tmp_path: Path, kind: str, url: str) -> None:
    """http is for this machine; nothing else is an address."""
    path = tmp_path / "url"
    path.write_text(url)
    assert "hidden" not in refusal(type=kind, url_file=str(path)).message


@pytest.mark.parametrize("kind", ["slack", "teams"])
def test_a_service_has_no_user_in_its_address(tmp_path: Path, kind: str) -> None:
    """Only a webhook of one's own may ask for one."""
    path = tmp_path / "url"
    path.write_text("https://u:hidden-5@h/")
    assert "hidden" not in refusal(type=kind, url_file=str(path)).message


def test_no_name_of_a_receiver_holds_its_secret(secret: str) -> None:
    """Names stand in logs and dead letters; the routing key is in what is sent, and nowhere else."""
    entries = (
        {"type": "slack", "url_file": secret},
        {"type": "pagerduty", "routing_key_file": secret},
        {"type": "webhook", "url_file": secret},
    )
    made = [make_receiver({"name": "soc", **entry}, "r.toml") for entry in entries]
    assert all(SECRET not in receiver.name for receiver in made)
    assert SECRET in json.loads(made[1].write(alert_of()))["routing_key"]
    assert SECRET not in made[0].write(alert_of()) + made[2].write(alert_of())
