"""Receivers as entries of a file describe them: what is an address, and where secrets stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay_stream.errors import ConfigurationError
from assay_stream.forward.configured import PLUGINS
from assay_stream.forward.receivers import Entry, Receiver, Writer
from tests.support.alerts import alert_of

SECRET = "hidden-5"


@pytest.fixture
def secret(tmp_path: Path) -> str:
    """A file with an address that holds a secret."""
    path = tmp_path / "secret"
    path.write_text(f"https://hooks.example.com/{SECRET}\n")
    return str(path)


def make_receiver(fields: dict[str, Any], place: str) -> tuple[Receiver, Writer]:
    """The receiver of an entry whose fields were checked."""
    return PLUGINS[fields["type"]].make(Entry(fields, place))


def refusal(**entry: Any) -> ConfigurationError:
    """Why an entry is refused."""
    with pytest.raises(ConfigurationError) as caught:
        make_receiver({"name": "soc", **entry}, "r.toml, entry 1")
    assert caught.value.code == "bad_receivers"
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
    assert all(SECRET not in receiver.name for receiver, _ in made)
    assert SECRET in json.loads(made[1][1](alert_of()))["routing_key"]
    assert SECRET not in made[0][1](alert_of()) + made[2][1](alert_of())
