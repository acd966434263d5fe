"""Settings from the environment."""

from pathlib import Path

import pytest

from assay_stream.canonical.digest import redaction_with
from assay_stream.config import Settings, load_settings
from assay_stream.errors import ConfigurationError
from tests.support.errors import raises_code


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(f"ASSAY_STREAM_{name.upper()}", raising=False)


def test_the_defaults_are_those_of_one_local_broker() -> None:
    """Without any variable the settings are usable."""
    settings = load_settings()
    assert settings.bootstrap_servers == "127.0.0.1:9092"
    assert settings.security_protocol == "PLAINTEXT"
    assert settings.hold_limit_ms == 0
    assert settings.call_profile == "assay"


def test_the_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every field is ASSAY_STREAM_ and its name."""
    monkeypatch.setenv("ASSAY_STREAM_TOPIC_PREFIX", "prod.")
    monkeypatch.setenv("ASSAY_STREAM_BATCH_RECORDS_MAX", "7")
    settings = load_settings()
    assert (settings.topic_prefix, settings.batch_records_max) == ("prod.", 7)


def test_the_command_line_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    """An option given beats the variable; one not given leaves it alone."""
    monkeypatch.setenv("ASSAY_STREAM_WEB_PORT", "1")
    assert load_settings(web_port=2).web_port == 2
    assert load_settings(web_port=None).web_port == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("BOOTSTRAP_SERVERS", "localhost"),
        ("BOOTSTRAP_SERVERS", "http://localhost:9092"),
        ("BOOTSTRAP_SERVERS", "localhost:9092,other"),
        ("BOOTSTRAP_SERVERS", ""),
        ("BOOTSTRAP_SERVERS", ":9092"),
        ("BOOTSTRAP_SERVERS", "localhost:0"),
        ("BOOTSTRAP_SERVERS", "localhost:65536"),
        ("BOOTSTRAP_SERVERS", "localhost:\u00b2"),
        ("SPOOL", ""),
        ("STORE", ""),
        ("SASL_PASSWORD_FILE", ""),
        ("SECURITY_PROTOCOL", "TLS"),
        ("TOPIC_PREFIX", "with space"),
        ("TOPIC_PREFIX", "p" * 101),
        ("GROUP_PREFIX", "a/b"),
        ("REPLICATION_FACTOR", "0"),
        ("INPUT_PARTITIONS", "many"),
        ("CALL_PARTITIONS", "10001"),
        ("BATCH_RECORDS_MAX", "0"),
        ("HOLD_LIMIT_MS", "-1"),
        ("SESSION_TIMEOUT_MS", "999"),
        ("CONNECT_LIMIT_S", "0"),
        ("CALL_PROFILE", "strict"),
        ("WEB_PORT", "0"),
        ("WEB_PORT", "65536"),
        ("LOG_LEVEL", "LOUD"),
        ("LOG_FORMAT", "xml"),
        ("SASL_MECHANISM", "GSSAPI"),
        ("REDACTION_ENABLE", "path_absolute,novelty"),
        ("REDACTION_DISABLE", "novelty"),
        ("REDACTION_NAMES", "123"),
        ("WORK_UNITS_MAX", "0"),
        ("WORK_UNITS_MAX", "-1"),
        ("ALLOWANCE_UNITS_PER_S", "0"),
        ("ALLOWANCE_UNITS_PER_S", "-1"),
        ("ALLOWANCE_BURST_UNITS", "0"),
        ("ALLOWANCE_BURST_UNITS", "-1"),
    ],
)
def test_a_wrong_setting_is_named_as_the_operator_writes_it(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    """The error says which variable is wrong."""
    monkeypatch.setenv(f"ASSAY_STREAM_{name}", value)
    with raises_code("bad_setting", kind=ConfigurationError, match=f"ASSAY_STREAM_{name}: "):
        load_settings()


def test_a_secret_is_never_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the settings' text nor an error about them shows the password."""
    monkeypatch.setenv("ASSAY_STREAM_SASL_PASSWORD", "hunter2")
    assert "hunter2" not in repr(load_settings())
    monkeypatch.setenv("ASSAY_STREAM_WEB_PORT", "hunter2")
    with pytest.raises(ConfigurationError) as caught:
        load_settings()
    assert "hunter2" not in str(caught.value)


def test_variables_of_others_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable with the prefix that is no setting is ignored."""
    monkeypatch.setenv("ASSAY_STREAM_OBSERVER_ID", "me")
    assert load_settings()


def test_several_brokers_may_be_named() -> None:
    """A list of brokers, with spaces and IPv6 addresses, is taken."""
    text = "a:1, b:2,[::1]:9092"
    assert load_settings(bootstrap_servers=text).bootstrap_servers == text


def test_redaction_is_the_default_until_it_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without variables nothing differs; with them rules and names are as they say."""
    assert load_settings().redaction().is_default
    monkeypatch.setenv("ASSAY_STREAM_REDACTION_ENABLE", " path_absolute, env_var ,")
    monkeypatch.setenv("ASSAY_STREAM_REDACTION_DISABLE", "pii_phone")
    monkeypatch.setenv("ASSAY_STREAM_REDACTION_NAMES", "customer_id,note")
    wanted = redaction_with(enable=["path_absolute", "env_var"], disable=["pii_phone"], names=["customer_id", "note"])
    assert load_settings().redaction() == wanted


def test_an_unknown_redaction_rule_is_answered_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator sees which rules there are."""
    monkeypatch.setenv("ASSAY_STREAM_REDACTION_DISABLE", "pii_novelty")
    with pytest.raises(ConfigurationError, match="pii_email") as caught:
        load_settings()
    assert "pii_novelty" not in str(caught.value)


def test_a_redaction_rule_cannot_be_on_and_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A contradiction stops the process at start."""
    monkeypatch.setenv("ASSAY_STREAM_REDACTION_ENABLE", "env_var")
    monkeypatch.setenv("ASSAY_STREAM_REDACTION_DISABLE", "env_var")
    with pytest.raises(ConfigurationError, match="ASSAY_STREAM_REDACTION_DISABLE"):
        load_settings()


@pytest.mark.parametrize("name", ["SASL_PASSWORD", "SSL_KEYFILE_PASSWORD", "SEAL_KEY_PASSWORD"])
def test_a_secret_may_stand_in_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    """As a mounted secret does, with or without a line feed at its end; both ways at once are refused."""
    for text in ("hünter 2", "hünter 2\n", "hünter 2\r\n"):
        (tmp_path / "secret").write_bytes(text.encode())
        monkeypatch.setenv(f"ASSAY_STREAM_{name}_FILE", str(tmp_path / "secret"))
        found = getattr(load_settings(), name.lower())
        assert found.get_secret_value() == "hünter 2"
    monkeypatch.setenv(f"ASSAY_STREAM_{name}", "another")
    with pytest.raises(ConfigurationError, match=f"ASSAY_STREAM_{name}_FILE, not both"):
        load_settings()


@pytest.mark.parametrize("raw", [None, b"", b"\n", b"two\nlines", b"\xff", b"x" * 70_000])
def test_a_file_that_holds_no_secret_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, raw: bytes | None
) -> None:
    """The variable and the path stand in the error, what the file holds does not."""
    path = tmp_path / "secret"
    if raw is not None:
        path.write_bytes(raw)
    monkeypatch.setenv("ASSAY_STREAM_SASL_PASSWORD_FILE", str(path))
    with raises_code("bad_secret_file", kind=ConfigurationError, match="ASSAY_STREAM_SASL_PASSWORD_FILE") as caught:
        load_settings()
    assert str(path) in str(caught.value)
    assert "lines" not in str(caught.value)


def test_budgets_reach_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_STREAM_WORK_UNITS_MAX", "7")
    limits = load_settings().limits()
    assert (limits.work_units_max, limits.allowance_units_per_s) == (7, 1_000_000)
