"""Redaction: what is replaced, by what, and what is left alone."""

import re

import pytest

from assay_stream.canonical.digest import (
    DEFAULT_REDACTION,
    ISSUED,
    KEY_NAME,
    RULES,
    SENSITIVE_NAMES,
    Redaction,
    jcs_digest,
    redact,
    redaction_with,
)
from assay_stream.errors import ConfigurationError
from tests.support.counting import passes
from tests.support.errors import raises_code
from tests.support.vectors import vectors

# One text per form that a rule knows; the form is published by whoever issues the secret.
SAMPLES = {
    "pem": ("-----BEGIN RSA PRIVATE KEY-----\nMIIE+/=\n-----END RSA PRIVATE KEY-----", "secret_private_key"),
    "pem_encrypted": (
        "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,00\n\nMIIE\n-----END RSA PRIVATE KEY-----",
        "secret_private_key",
    ),
    "pem_cut_off": ("-----BEGIN PRIVATE KEY-----\nMIIE", "secret_private_key"),
    "openpgp": ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQ\n-----END PGP PRIVATE KEY BLOCK-----", "secret_private_key"),
    "github_classic": ("ghp_" + "a1" * 18, "secret_github_pat"),
    "github_fine": ("github_pat_" + "A1" * 11 + "_" + "b2" * 29, "secret_github_pat"),
    "slack_app": ("xapp-1-A0000000000-1-abcdef", "secret_slack_app_token"),
    "slack_bot": ("xoxb-1234567890-abcdef", "secret_slack_token"),
    "google": ("AIza" + "Ab-_0" * 7, "secret_google_api_key"),
    "aws_key_id": ("AKIAIOSFODNN7EXAMPLE", "secret_aws"),
    "aws_assigned": ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPx", "secret_aws"),
    "openai": ("sk-proj-" + "a1B2" * 6, "secret_api_key"),
    "stripe": ("sk_live_" + "a1" * 12, "secret_api_key"),
    "api_key_assigned": ("API-Key: abc123", "secret_api_key"),
    "password_assigned": ("password=hunter2", "secret_password"),
    "password_quoted": ('passwd: "two words"', "secret_password"),
    "password_escaped_quote": (r'pwd="one\"two"', "secret_password"),
    "password_argument": ("password hunter2", None),
    "token_assigned": ("access_token=abc", "secret_token"),
    "bearer": ("Bearer mF_9.B5f-4.1JqM1234", "secret_token"),
    "basic": ("Authorization: Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==", "secret_token"),
    "cookie": ("Set-Cookie: SID=31d4d96e; Path=/", "secret_token"),
    "slack_refresh": ("xoxe-1-" + "aB3" * 12, "secret_slack_token"),
    "slack_rotated": ("xoxe.xoxp-1-" + "aB3" * 12, "secret_slack_token"),
    "gitlab_personal": ("glpat-" + "aB3_-" * 4, "secret_token"),
    "gitlab_routable": ("glpat-" + "aB3_-" * 5 + ".01.0z1a2b3c4", "secret_token"),
    "gitlab_deploy": ("gldt-" + "aB3_-" * 4, "secret_token"),
    "gitlab_runner": ("glrt-" + "aB3_-" * 4, "secret_token"),
    "npm": ("npm_" + "aB3" * 12, "secret_token"),
    "hugging_face": ("hf_" + "aB" * 17, "secret_token"),
    "sendgrid": ("SG." + "aB" * 11 + "." + "c-_" * 14 + "d", "secret_token"),
    "age": ("AGE-SECRET-KEY-1" + "QZ" * 29, "secret_token"),
    "age_lowercase": ("age-secret-key-1" + "qz" * 29, "secret_token"),
    "digitalocean": ("dop_v1_" + "0a" * 32, "secret_token"),
    "digitalocean_refresh": ("dor_v1_" + "0a" * 32, "secret_token"),
    "pypi": ("pypi-AgEIcHlwaS5vcmc" + "aB3_-" * 20, "secret_token"),
    "jwt": ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dBjftJeZ4CVP", "secret_token"),
    "email": ("jane.doe+x@example.co.uk", "pii_email"),
    "phone_e164": ("+31 6 1234 5678", "pii_phone"),
    "phone_american": ("(415) 555-2671", "pii_phone"),
}

LEFT_ALONE = [
    "",
    "/home/jane/notes.txt",
    "$HOME and ${HOME}",
    "2026-03-01T10:00:00+02:00",
    "550e8400-e29b-41d4-a716-446655440000",
    "https://example.com:8080/a?b=c",
    "git@ host",
    "max_tokens: 4096",
    "a task-force-of-many-long-words-together",
    "1234567890123",
    "sha256:" + "0" * 64,
    "glpat-short",
    "npm_config_registry",
    "hf_hub_download",
    "SG.1 and SG.2",
    "age1" + "q" * 58,
    "api_v1_" + "0a" * 32,
    "pypi-simple-index",
    "notnpm_" + "aB3" * 12,
]


class TestTexts:
    @pytest.mark.parametrize("name", [name for name, (_, rule) in SAMPLES.items() if rule])
    def test_a_secret_is_replaced(self, name: str) -> None:
        text, rule_id = SAMPLES[name]
        category = "pii" if str(rule_id).startswith("pii") else "secret"
        redacted = redact(text)
        assert f"[REDACTED:{category}:{rule_id}]" in redacted
        assert redacted.replace(f"[REDACTED:{category}:{rule_id}]", "") in {"", "access_", "aws_secret_", "Set-"}

    @pytest.mark.parametrize("text", [*LEFT_ALONE, SAMPLES["password_argument"][0]])
    def test_other_text_is_left_alone(self, text: str) -> None:
        assert redact(text) == text

    def test_several_secrets(self) -> None:
        assert (
            redact("AKIAIOSFODNN7EXAMPLE for a@example.com")
            == "[REDACTED:secret:secret_aws] for [REDACTED:pii:pii_email]"
        )

    def test_command_line(self) -> None:
        assert redact("run --db-password hunter2 -v") == "run --db-[REDACTED:secret:secret_password] -v"

    def test_json_inside_text(self) -> None:
        assert (
            redact('{"user": "jane", "password": "hun\\"ter2", "path": "/a"}')
            == '{"user": "jane", "[REDACTED:secret:secret_password], "path": "/a"}'
        )

    def test_a_forged_replacement_hides_nothing(self) -> None:
        """A secret dressed up as a replacement of an unknown rule is replaced like any other."""
        assert redact("password=[REDACTED:secret:hunter]") == "[REDACTED:secret:secret_password]"


class TestKeyNames:
    @pytest.mark.parametrize("name", SENSITIVE_NAMES)
    def test_whole_names_and_endings(self, name: str) -> None:
        value = {name: {"deep": ["x"]}, f"db_{name.upper()}": 1, f"my{name.title()}": "x"}
        assert redact(value) == dict.fromkeys(value, KEY_NAME)

    @pytest.mark.parametrize("name", ["API-Key", "api_key", "apiKey", "API KEY", "private.key", "x-Access_Key"])
    def test_case_and_separators(self, name: str) -> None:
        assert redact({name: "x"}) == {name: KEY_NAME}

    @pytest.mark.parametrize("name", ["max_tokens", "token_count", "path", "key", "passenger", "cookie_policy", ""])
    def test_other_names(self, name: str) -> None:
        assert redact({name: "x"}) == {name: "x"}


class TestValues:
    @pytest.mark.parametrize(
        "unit",
        ["a", "-", "1", "-----BEGIN ", "-----BEGIN PRIVATE KEY", "a://b:", "://", "a@", "@a.", "eyJ", "eyJ-a.",
         "password", 'pwd:"', "token\\", "bearer  ", "+1 ", "(", "[REDACTED:", "-token ", "sk-",
         "glpat-", "glpat-a", "npm_", "hf_", "SG.", "SG.a.", "AGE-SECRET-KEY-1", "dop_v1_",
         "pypi-AgE"],
    )  # fmt: skip
    def test_hostile_text_is_linear(self, unit: str) -> None:
        """Text made to send a search back and forth costs 6 to 110 passes over it, whatever its length."""
        for chars in (20_000, 80_000):
            text = (unit * (chars // len(unit) + 1))[:chars] + " @"
            assert passes(redact, text) < 300


class TestConfiguration:
    def test_the_default_is_the_default_however_it_is_asked_for(self) -> None:
        same = redaction_with(enable=["pii_email"], disable=["env_var"], names=["Pass-Word"])
        assert same == DEFAULT_REDACTION == redaction_with() == Redaction()
        assert same.is_default
        assert same.id == DEFAULT_REDACTION.id

    def test_a_rule_can_be_turned_on(self) -> None:
        chosen = redaction_with(enable=["path_absolute"])
        assert redact({"p": "/home/jane"}) == {"p": "/home/jane"}
        assert redact({"p": "/home/jane"}, chosen) == {"p": "[REDACTED:pii:path_absolute]"}

    @pytest.mark.parametrize("name", ["customer_id", "CustomerID", "customer id", "x-customer-id"])
    def test_a_key_name_can_be_added(self, name: str) -> None:
        chosen = redaction_with(names=["Customer-ID"])
        assert redact({name: ["x"], "other": "x"}, chosen) == {name: KEY_NAME, "other": "x"}
        assert redact({name: ["x"]}) == {name: ["x"]}

    def test_configurations_do_not_mix(self) -> None:
        off, on = redaction_with(disable=["secret_token"]), redaction_with(enable=["env_var"])
        text = "token=abc $HOME"
        for _ in range(2):
            assert redact(text, off) == text
            assert redact(text, on) == "[REDACTED:secret:secret_token] [REDACTED:secret:env_var]"
            assert redact(text) == "[REDACTED:secret:secret_token] $HOME"

    def test_the_id_is_the_digest_of_what_is_configured(self) -> None:
        chosen = redaction_with(enable=["env_var"], disable=["pii_phone"], names=["b", "a", "B-"])
        rules = sorted(({rule.id for rule in RULES if rule.enabled} | {"env_var"}) - {"pii_phone"})
        configuration = {"schema": "assay-stream.redaction.v1", "rules": rules, "names": ["a", "b"]}
        assert chosen.id == str(jcs_digest(configuration)) != DEFAULT_REDACTION.id
        assert not chosen.is_default

    def test_everything_may_be_turned_off_but_key_names(self) -> None:
        chosen = redaction_with(disable=[rule.id for rule in RULES])
        assert redact({"a": "password=x", "password": "x"}, chosen) == {"a": "password=x", "password": KEY_NAME}

    @pytest.mark.parametrize(
        "wrong",
        [
            {"enable": ["secret_hunter2"]},
            {"disable": ["secret_hunter2"]},
            {"enable": [""]},
            {"enable": ["env_var"], "disable": ["env_var"]},
            {"names": [""]},
            {"names": ["123"]},
            {"names": ["\u5bc6\u7801"]},
            {"names": ["hunter2" * 10]},
        ],
    )
    def test_what_cannot_be_meant_is_refused(self, wrong: dict[str, list[str]]) -> None:
        with raises_code("bad_redaction", kind=ConfigurationError) as caught:
            redaction_with(**wrong)
        assert "hunter2" not in str(caught.value)

    def test_an_unknown_rule_is_answered_with_the_known_ones(self) -> None:
        with pytest.raises(ConfigurationError) as caught:
            redaction_with(enable=["x"])
        assert all(rule.id in caught.value.message for rule in RULES)


PUBLISHED = vectors("handshake_tool_call")["redaction"]


def test_ids_are_the_published_ones() -> None:
    assert sorted(rule.id for rule in RULES) == sorted(PUBLISHED["pattern_ids"])


def test_replacement_has_the_published_form() -> None:
    for rule in RULES:
        wanted = PUBLISHED["replacement"].replace("<category>", rule.category).replace("<pattern id>", rule.id)
        assert rule.replacement() == wanted


def test_what_would_blur_evidence_is_off() -> None:
    """Paths and variables are known, and left."""
    assert {rule.id for rule in RULES if not rule.enabled} == {"path_absolute", "env_var"}


def test_sensitive_names_are_as_they_are_compared() -> None:
    assert all(re.fullmatch("[a-z]+", name) for name in SENSITIVE_NAMES)


def test_hints_are_lowercase() -> None:
    for hints in [rule.hints for rule in RULES] + [issuer.hints for issuer in ISSUED]:
        assert all(hint == hint.lower() for hint in hints)


def test_every_rule_says_why() -> None:
    assert all(rule.reason for rule in RULES)
    assert all(issuer.reason for issuer in ISSUED)
