"""Settings, from the environment: every field is ``ASSAY_STREAM_<NAME>``, and the text below it is in the docs too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from assay_stream import __version__
from assay_stream.alerts.rules import AlertRules, Pacing, severity_under
from assay_stream.canonical.digest import DigestKey, Redaction, redaction_with
from assay_stream.drift.severity import PROFILES
from assay_stream.errors import ConfigurationError
from assay_stream.files.local import secret_of_file
from assay_stream.limits import DEFAULT_LIMITS, Limits
from assay_stream.model.evidence import Producer
from assay_stream.model.observation import CallProfile
from assay_stream.text.urls import encrypted

_SECRETS = (
    *("ssl_keyfile_password", "sasl_password", "sasl_client_secret", "seal_key_password", "auth_context_key"),
    "digest_key",
)
"""Settings that can be read from a file instead: ``<name>_file``."""

_TOPIC_PREFIX = r"^[a-zA-Z0-9._-]{0,100}$"


def _brokers(value: str) -> str:
    for broker in value.split(","):
        host, _, port = broker.strip().rpartition(":")
        if not host or "/" in host or not port.isdecimal() or not 0 < int(port) <= 65_535:
            raise ValueError("must be host:port, comma separated")
    return value


def _named(value: object) -> object:
    if value == "":
        # It would be the current folder, and scripts write it for "none".
        raise ValueError("is empty: unset it, or name a path")
    return value


_Place = Annotated[Path, BeforeValidator(_named)]


class Settings(BaseSettings):
    """All settings; the defaults suit a single local broker."""

    model_config = SettingsConfigDict(env_prefix="ASSAY_STREAM_", extra="ignore", frozen=True)

    bootstrap_servers: Annotated[str, AfterValidator(_brokers)] = "127.0.0.1:9092"
    """Kafka brokers: host:port, comma-separated."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """Security protocol for broker connections."""
    ssl_cafile: _Place | None = None
    """CA certificates used to verify the brokers."""
    ssl_certfile: _Place | None = None
    """Client certificate, if the brokers require one."""
    ssl_keyfile: _Place | None = None
    """Private key of the client certificate."""
    ssl_keyfile_password: SecretStr | None = None
    """Password of the client key, if it has one; never logged."""
    ssl_keyfile_password_file: _Place | None = None
    """File to read the client key password from."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "AWS_MSK_IAM"] = "SCRAM-SHA-512"
    """SASL mechanism, with SASL_* protocols."""
    sasl_username: str | None = None
    """SASL user name, with SASL_* protocols."""
    sasl_password: SecretStr | None = None
    """SASL password, with SASL_* protocols; never logged."""
    sasl_password_file: _Place | None = None
    """File to read the SASL password from."""
    sasl_token_file: _Place | None = None
    """With OAUTHBEARER: file that holds the token, read again for each connection."""
    sasl_token_endpoint: Annotated[str, AfterValidator(encrypted)] | None = None
    """With OAUTHBEARER: token endpoint of the OAuth 2.0 server that issues tokens to this client."""
    sasl_token_cafile: _Place | None = None
    """CA certificates used to verify the token endpoint."""
    sasl_token_scope: str = ""
    """Scope to ask the token endpoint for."""
    sasl_client_id: str | None = None
    """Client id at the token endpoint."""
    sasl_client_secret: SecretStr | None = None
    """Client secret at the token endpoint; never logged."""
    sasl_client_secret_file: _Place | None = None
    """File to read the client secret from, again for each token."""
    sasl_aws_region: str | None = None
    """With AWS_MSK_IAM: region of the Amazon MSK cluster."""

    topic_prefix: Annotated[str, Field(pattern=_TOPIC_PREFIX)] = ""
    """Prefix for every topic name, to run several deployments on one cluster."""
    group_prefix: Annotated[str, Field(pattern=_TOPIC_PREFIX)] = "assay-stream"
    """Prefix for consumer groups and transactional ids: one value per deployment."""
    group_instance_id: Annotated[str, Field(pattern=_TOPIC_PREFIX)] = ""
    """Name that identifies this worker across restarts, unique in the deployment. A worker that returns within the
    session timeout gets its partitions back, and the others notice nothing."""
    replication_factor: Annotated[int, Field(ge=1, le=32)] = 1
    """Replication factor for `topics apply`; use 3 in production."""
    input_partitions: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Partitions of the snapshot, control, binding and finding topics, for `topics apply`."""
    call_partitions: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Partitions of the call and evidence topics, for `topics apply`: a multiple of the above."""

    call_spread: Annotated[int, Field(ge=1, le=1_000)] = 1
    """Over how many partitions `tap`, `ingest` and `publish` spread the calls of one server, among those that belong to
    it: at most call partitions / input partitions."""

    batch_records_max: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """Maximum records per poll. Matters only under load: a poll returns whatever is available."""
    poll_timeout_ms: Annotated[int, Field(ge=1, le=60_000)] = 100
    """How long a poll waits for records, milliseconds."""
    hold_limit_ms: Annotated[int, Field(ge=0)] = 0
    """How long a call may wait for the registry before it is written as definition_unavailable, milliseconds. 0 waits
    forever (back-pressure)."""
    call_profile: CallProfile = "assay"
    """Profile that every call must satisfy, whichever profile it names: `assay` or `handshake`."""
    transaction_timeout_ms: Annotated[int, Field(ge=1_000, le=900_000)] = 60_000
    """How long a worker may stay silent before the broker aborts its transaction, milliseconds."""
    session_timeout_ms: Annotated[int, Field(ge=1_000, le=300_000)] = 10_000
    """How long a worker may stay silent before its partitions are reassigned, milliseconds."""
    connect_limit_s: Annotated[int, Field(ge=1, le=86_400)] = 60
    """How long processes try to reach the brokers at startup before their health pages report that they are waiting,
    seconds."""
    command_connect_limit_s: Annotated[int, Field(ge=1, le=86_400)] = 10
    """How long every other command tries to reach the brokers, seconds."""

    severity_profile: Literal["soc", "mcptrust", "mcptrust-code", "assay-p60", "strict"] = "soc"
    """Severity profile for alerts."""
    alert_update_s: Annotated[int, Field(ge=1, le=7 * 86_400)] = 3_600
    """Minimum interval between updates of an alert when only its count has changed, seconds."""
    alert_settle_s: Annotated[int, Field(ge=0, le=7 * 86_400)] = 600
    """How long an alert must go unobserved before it is closed, seconds."""
    alert_repeat_s: Annotated[int, Field(ge=60, le=365 * 86_400)] = 86_400
    """Interval at which an alert that stays open is written again, seconds."""
    alert_forget_days: Annotated[int, Field(ge=30, le=3_650)] = 400
    """How long an alert that is over is remembered, days of event time since its last record or finding. What is found
    again later is a new alert with the same uid."""
    alert_tick_s: Annotated[int, Field(ge=0, le=3_600)] = 10
    """How often to check whether an alert is due, seconds. 0 disables the check: time then advances only with findings,
    which is what you want while loading old records."""
    batch_ms_max: Annotated[int, Field(ge=1, le=60_000)] = 250
    """Maximum time per batch, milliseconds. A longer batch commits what is done; the rest waits for the partition's
    next turn."""
    record_limit_s: Annotated[int, Field(ge=1, le=86_400)] = 60
    """Maximum processing time of one record before the worker stops with record_stuck, seconds."""
    record_attempts_max: Annotated[int, Field(ge=1, le=100)] = 2
    """How often a record that crashes its worker is retried on its own before it is set aside."""
    work_units_max: Annotated[int, Field(ge=1, le=1_000_000_000)] = DEFAULT_LIMITS.work_units_max
    """Work budget per record beyond decoding and fingerprints, in units of work (about ten million per second). A
    replay must use the same value as the workers did."""
    allowance_units_per_s: Annotated[int, Field(ge=1, le=1_000_000_000)] = DEFAULT_LIMITS.allowance_units_per_s
    """Work budget for the lists of one server, in units of work per second of log time. A replay must use the same
    value as the workers did."""
    allowance_burst_units: Annotated[int, Field(ge=1, le=10_000_000_000)] = DEFAULT_LIMITS.allowance_burst_units
    """How much unused budget a server can accumulate, in units of work. A replay must use the same value as the workers
    did."""
    stop_limit_s: Annotated[int, Field(ge=1, le=3_600)] = 30
    """How long a graceful shutdown may take before the process exits anyway, seconds. No data is lost."""

    stall_limit_s: Annotated[int, Field(ge=1, le=86_400)] = 300
    """How long a stage may make no progress before /healthz reports it as hanging, seconds."""

    seal_key_password: SecretStr | None = None
    """Password of the private key that `seal` signs with, if it has one; never logged."""
    seal_key_password_file: _Place | None = None
    """File to read the sealing key password from."""

    auth_context_key: SecretStr | None = None
    """Key of the hashes by which `tap --listen` names authorisation contexts; never logged. Give every tap the same
    one; without it a tap makes up its own at every start."""
    auth_context_key_file: _Place | None = None
    """File to read that key from."""

    digest_key: SecretStr | None = None
    """Key of the digests of arguments and results that `tap`, `extmcp`, `ingest` and `publish` publish, 64 hexadecimal
    digits; never logged. Without it these are plain SHA-256."""
    digest_key_file: _Place | None = None
    """File to read that key from."""

    spool: _Place | None = None
    """Folder in which `tap` and `list-watch` keep observations on disk while the brokers are away. Without it they are
    kept in memory only. Each process takes a subfolder of its own."""
    spool_mib_max: Annotated[int, Field(ge=1, le=1_048_576)] = 256
    """What each process may keep there, mebibytes. What goes beyond is dropped and counted."""

    store: _Place | None = None
    """Folder of the store that `store run` fills, and that commands and the console read."""
    store_days: Annotated[int, Field(ge=1, le=36_500)] = 90
    """How long the store keeps evidence, days of event time. Older evidence stays in its topic."""
    store_mib_max: Annotated[int, Field(ge=16, le=16_777_216)] = 8_192
    """What the store may take on disk, mebibytes. Beyond that it drops evidence of large servers."""

    redaction_enable: str = ""
    """Redaction rules to enable for arguments and results that are hashed here, comma-separated."""
    redaction_disable: str = ""
    """Redaction rules to disable, comma-separated."""
    redaction_names: str = ""
    """Additional key names whose whole value is redacted, comma-separated; only letters are compared."""

    web_host: str = "127.0.0.1"
    """Address that serves /healthz, /readyz and /metrics."""
    web_port: Annotated[int, Field(ge=1, le=65_535)] = 6_066
    """Port of that address."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Log level of assay-stream's own loggers."""
    log_format: Literal["json", "console"] = "json"
    """Format of log lines."""
    git_commit: str = "unknown"
    """Commit this build was made from, recorded in the evidence envelope."""

    @field_validator("redaction_enable", "redaction_disable", "redaction_names")
    @classmethod
    def _is_a_redaction(cls, value: str, info: ValidationInfo) -> str:
        given = {"redaction_enable": info.data.get("redaction_enable", "")} | {str(info.field_name): value}
        try:
            _redaction_of(**given)
        except ConfigurationError as error:
            raise ValueError(error.message) from None
        return value

    def producer(self) -> Producer:
        """Return what evidence names as its producer: this version, and the commit it was built from."""
        return Producer(version=__version__, git=self.git_commit)

    def alert_rules(self) -> AlertRules:
        severity = severity_under(PROFILES[self.severity_profile])
        return AlertRules(version=__version__, severity=severity, pacing=self.pacing())

    def pacing(self) -> Pacing:
        return Pacing(
            update_interval_us=self.alert_update_s * 1_000_000,
            settle_us=self.alert_settle_s * 1_000_000,
            repeat_interval_us=self.alert_repeat_s * 1_000_000,
            forget_us=self.alert_forget_days * 86_400 * 1_000_000,
        )

    def limits(self) -> Limits:
        return replace(
            DEFAULT_LIMITS,
            work_units_max=self.work_units_max,
            allowance_units_per_s=self.allowance_units_per_s,
            allowance_burst_units=self.allowance_burst_units,
        )

    def redaction(self) -> Redaction:
        return _redaction_of(self.redaction_enable, self.redaction_disable, self.redaction_names)

    def keyed_by(self) -> DigestKey | None:
        """Return the key of the digests of arguments and results, ``None`` for plain ones."""
        key = self.digest_key
        return None if key is None else DigestKey(key.get_secret_value(), self.redaction())


def _redaction_of(redaction_enable: str = "", redaction_disable: str = "", redaction_names: str = "") -> Redaction:
    return redaction_with(
        enable=_listed(redaction_enable), disable=_listed(redaction_disable), names=_listed(redaction_names)
    )


def _listed(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def load_settings(**overrides: object) -> Settings:
    """Read the settings from the environment.

    Raises:
        ConfigurationError: names the first invalid variable and how to fix it.
    """
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        settings = Settings(**given)  # type: ignore[arg-type]
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = "ASSAY_STREAM_" + "_".join(str(part) for part in first["loc"]).upper()
        raise ConfigurationError("bad_setting", f"{name}: {first['msg'].removeprefix('Value error, ')}") from None
    return settings.model_copy(update=_secrets_of_files(settings))


def command_settings(**overrides: object) -> Settings:
    """Read the settings of an interactive command, which gives up sooner when no broker answers.

    Raises:
        ConfigurationError: as ``load_settings``.
    """
    settings = load_settings(**overrides)
    return settings.model_copy(update={"connect_limit_s": settings.command_connect_limit_s})


def _secrets_of_files(settings: Settings) -> dict[str, SecretStr]:
    found = {}
    for name in _SECRETS:
        path: Path | None = getattr(settings, f"{name}_file")
        if path is None:
            continue
        variable = f"ASSAY_STREAM_{name.upper()}"
        if getattr(settings, name) is not None:
            raise ConfigurationError("bad_setting", f"give {variable} or {variable}_FILE, not both")
        found[name] = SecretStr(secret_of_file(path, variable=f"{variable}_FILE"))
    return found
