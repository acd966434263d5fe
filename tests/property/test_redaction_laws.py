"""Laws of redaction, over arbitrary values and over texts made to confuse it."""

import json
import string
from typing import Any

from hypothesis import given, strategies as st

from assay_stream.canonical.digest import KEY_NAME, RULES, SENSITIVE_NAMES, Redaction, redact, redacted_digest

# Pieces of every rule, so that matches begin, end and touch each other in every way.
FRAGMENTS = [
    "password", "passwd", "pwd", "token", "secret", "credential", "bearer ", "authorization", "cookie", "api_key",
    "--", "-", "=", ":", ": ", "=>", '"', "'", '\\"', "\\", " ", "\n", ",", ";", "&", "[", "]", "(", ")",
    "://", "/", "u", ":p@", "@", "x.com", ".", "a@b.co", "+", "+31 6 12345678", "(415) 555-2671", "415-555-2671",
    "AKIAIOSFODNN7EXAMPLE", "ghp_" + "a" * 36, "xoxb-1234567890", "xapp-1234567890", "AIza" + "b" * 35,
    "sk-" + "c" * 20, "sk_live_0123456789", "eyJhbGciOiJI.eyJzdWI.sig", "eyJ",
    "glpat-" + "d" * 20, "npm_" + "e" * 36, "hf_" + "f" * 34, "SG." + "g" * 22 + "." + "h" * 43, "SG.", "npm_",
    "AGE-SECRET-KEY-1" + "J" * 58, "dop_v1_" + "a" * 64, "pypi-AgE" + "k" * 60, "$HOME", "%PATH%", "/etc/x",
    "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "-----BEGIN ", "abc", "7", "é", "\ud800",
    "[REDACTED:", "secret:secret_aws]", KEY_NAME, *(rule.replacement() for rule in RULES),
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=12).map("".join) | st.text(max_size=40)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda children: st.lists(children, max_size=4) | st.dictionaries(TEXTS, children, max_size=4),
    max_leaves=12,
)

WORD = string.ascii_letters + string.digits
SECRETS = st.one_of(
    st.text(WORD, min_size=36, max_size=36).map("ghp_{}".format),
    st.text(string.ascii_uppercase + string.digits, min_size=16, max_size=16).map("AKIA{}".format),
    st.text(WORD + "-_", min_size=35, max_size=35).map("AIza{}".format),
    st.text(WORD, min_size=20, max_size=60).map("sk-{}".format),
    st.text(WORD, min_size=12, max_size=40).map("xoxb-{}".format),
    st.text(WORD, min_size=12, max_size=40).map("xapp-{}".format),
    st.text(WORD + "-_", min_size=20, max_size=20).map("glpat-{}".format),
    st.text(WORD, min_size=36, max_size=36).map("npm_{}".format),
    st.text(WORD, min_size=30, max_size=40).map("hf_{}".format),
    st.text("0123456789abcdef", min_size=64, max_size=64).map("dop_v1_{}".format),
    st.text("QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L", min_size=58, max_size=58).map("AGE-SECRET-KEY-1{}".format),
    st.text(WORD + "+/=\n", min_size=64, max_size=200).map(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----".format
    ),
)
NAMED = st.sampled_from(
    ["password={}", "PASSWD: {}", '"pwd": "{}"', "--password {}", "client_secret={}", "Authorization: Bearer {}",
     "token: {}", "db://user:{}@host/x", "Cookie: id={}", "api_key={}", "aws_secret_access_key={}"]
)  # fmt: skip


REDACTIONS = st.builds(
    Redaction,
    rules=st.frozensets(st.sampled_from([rule.id for rule in RULES])),
    names=st.frozensets(st.sampled_from(["id", "customer", "note"])),
)


@given(VALUES, REDACTIONS)
def test_redaction_is_idempotent_under_every_configuration(value: Any, redaction: Redaction) -> None:
    once = redact(value, redaction)
    assert repr(redact(once, redaction)) == repr(once)


@given(VALUES)
def test_redaction_keeps_the_shape(value: Any) -> None:
    def check(before: Any, after: Any) -> None:
        if after == KEY_NAME:
            return
        assert type(before) is type(after)
        if isinstance(before, dict):
            assert list(before) == list(after)
            for name in before:
                check(before[name], after[name])
        elif isinstance(before, list):
            assert len(before) == len(after)
            for left, right in zip(before, after, strict=True):
                check(left, right)
        elif not isinstance(before, str):
            assert repr(before) == repr(after)

    check(value, redact(value))


@given(SECRETS, st.sampled_from(["", " ", "key ", "x=", "(", "see: ", '"', "\n"]), TEXTS)
def test_a_planted_secret_never_survives(secret: str, before: str, after: str) -> None:
    rest = after if not after[:1].isalnum() else f" {after}"
    planted = {"args": [{"text": f"{before}{secret}{rest}"}]}
    assert (
        secret.removeprefix("-----BEGIN PRIVATE KEY-----")
        not in json.loads(json.dumps(redact(planted)))["args"][0]["text"]
    )


@given(st.text(WORD, min_size=12, max_size=30), NAMED, st.sampled_from(["", " ", "so ", "x_", "(", '{"a": 1, ']))
def test_a_named_secret_never_survives(secret: str, form: str, before: str) -> None:
    assert secret not in json.dumps(redact([before + form.format(secret)]))


@given(SECRETS | st.text(WORD, min_size=8), st.sampled_from(SENSITIVE_NAMES), st.sampled_from(["", "my", "x-", "A_"]))
def test_a_secret_under_a_sensitive_name_never_survives(secret: str, name: str, before: str) -> None:
    planted = {"args": {before + name.upper(): [{"deep": [secret]}]}}
    assert redact(planted) == {"args": {before + name.upper(): KEY_NAME}}


@given(st.text(WORD, min_size=8), st.text(WORD, min_size=8))
def test_the_digest_does_not_depend_on_a_secret(left: str, right: str) -> None:
    assert redacted_digest({"a": f"password={left}"}) == redacted_digest({"a": f"password={right}"})
