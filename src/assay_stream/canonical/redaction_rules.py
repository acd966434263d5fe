"""What redaction looks for: patterns of secrets in texts, and the names of keys whose value is one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One pattern of what is not to be hashed.

    Args:
        id: stable name, part of the replacement.
        category: ``secret`` or ``pii``.
        hints: lowercase texts, one of which stands in every match; they spare most texts the search.
        regex: what to replace. See ``RULES`` for what keeps the search linear and repeatable.
        costly: whether the search tries this rule at nearly every character, and is made without it where no
            hint of it stands.
    """

    id: str
    category: str
    hints: tuple[str, ...]
    regex: str
    reason: str
    costly: bool = False
    enabled: bool = True

    def replacement(self) -> str:
        return f"[REDACTED:{self.category}:{self.id}]"


# A word's edge, and the rest of a word: a token that stops in the middle of one was not understood.
_EDGE = r"(?<![A-Za-z0-9_-])"
_REST = r"[A-Za-z0-9_-]*+"
# What is assigned to a name: up to the closing quote, else up to white space or a separator.
_VALUE = r"""(?:\\{0,3}"(?:[^"\\\r\n]|\\[^\r\n])++"?|\\{0,3}'(?:[^'\\\r\n]|\\[^\r\n])++'?|[^\s"',;&]++)"""
_ASSIGNED = rf"""\\{{0,3}}["']?\s*+(?::=|=>|[:=])\s*+{_VALUE}"""
_PASSWORD = r"(?i:password|passwd|passphrase|pwd)"  # noqa: S105 -- a pattern, no password
_TOKEN = r"(?i:token|secret|credentials?)"  # noqa: S105 -- a pattern, no token


@dataclass(frozen=True, slots=True, kw_only=True)
class Issuer:
    """Tokens that can be told by the prefix their issuer documents. They count as ``secret_token``.

    Args:
        name: who issues them.
        hints: as of ``Rule``.
        regex: the prefix, and as many characters as every such token has.
    """

    name: str
    hints: tuple[str, ...]
    regex: str
    reason: str


ISSUED: tuple[Issuer, ...] = (
    Issuer(
        name="GitLab",
        hints=("glpat-", "gldt-", "glrt-"),
        regex=rf"gl(?:pat|dt|rt)-[A-Za-z0-9_-]{{20}}{_REST}(?:\.[0-9a-z]{{2}}\.[0-9a-z]{{9}})?",
        reason="GitLab documents the prefixes of its personal, deploy and runner tokens; some go on after dots",
    ),
    Issuer(
        name="npm",
        hints=("npm_",),
        regex=r"npm_[A-Za-z0-9]{36}",
        reason="npm announced the prefix and a checksum for its access tokens in 2021",
    ),
    Issuer(
        name="Hugging Face",
        hints=("hf_",),
        regex=r"hf_[A-Za-z0-9]{30}",
        reason="Hugging Face documents hf_ for user access tokens; 34 characters follow today",
    ),
    Issuer(
        name="SendGrid",
        hints=("sg.",),
        regex=r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
        reason="SendGrid documents its API keys as SG., an id of 22 and a secret of 43 characters",
    ),
    Issuer(
        name="age",
        hints=(),  # "secret" stands in every one
        regex=r"(?i:AGE-SECRET-KEY-1)[A-Za-z0-9]{58}",
        reason="the age format: an X25519 identity is Bech32 with this prefix, all upper or all lower case",
    ),
    Issuer(
        name="DigitalOcean",
        hints=("_v1_",),
        regex=r"do[oprt]_v1_[0-9a-f]{64}",
        reason="DigitalOcean documents the prefixes of its personal, OAuth and refresh tokens",
    ),
    Issuer(
        name="PyPI",
        hints=("pypi-ag",),
        regex=r"pypi-AgE[A-Za-z0-9_-]{50}",
        reason="PyPI documents the prefix; a macaroon in Base64 follows, whose first bytes are always the same",
    ),
)
_ISSUED = "|".join(issuer.regex for issuer in ISSUED)

# Three habits keep these linear in the text: a run is either possessive or bounded, a run that must be followed
# by something starts only at an edge or has a bound, and no two neighbouring runs share characters. Three make
# redaction repeatable: no rule asks what follows its match, none starts with white space or a quote, and one whose
# match may end in a word takes the whole word, so that no edge appears where a replacement now stands.
RULES: tuple[Rule, ...] = (
    Rule(
        id="secret_private_key",
        category="secret",
        hints=("private key",),
        regex=(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----END ))*+"
            rf"(?:-----END [A-Z0-9 ]{{0,60}}-----)?{_REST}"
        ),
        reason="PEM (RFC 7468) and OpenPGP armour; a key that was cut off is still a key",
    ),
    Rule(
        id="secret_db_url",
        category="secret",
        hints=("://",),
        regex=r"""://[^\s/?#@:"'\[]{0,256}:(?:[^\s/?#"'\[]|\[(?!REDACTED:)){1,512}@""",
        reason="user and password in a URL (RFC 3986 section 3.2.1), as databases and proxies take them",
    ),
    Rule(
        id="secret_github_pat",
        category="secret",
        hints=("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_"),
        regex=rf"(?:gh[pousr]_[A-Za-z0-9]{{36}}|github_pat_[A-Za-z0-9_]{{22}}){_REST}",
        reason="the prefixes GitHub documents for its tokens",
    ),
    Rule(
        id="secret_slack_app_token",
        category="secret",
        hints=("xapp-",),
        regex=rf"xapp-[A-Za-z0-9-]{{10}}{_REST}",
        reason="the prefix Slack documents for app-level tokens",
    ),
    Rule(
        id="secret_slack_token",
        category="secret",
        hints=("xox",),
        regex=rf"xox[abeoprs](?:\.xox[a-z])?-[A-Za-z0-9-]{{10}}{_REST}",
        reason="the prefixes Slack documents for bot, user and other tokens",
    ),
    Rule(
        id="secret_google_api_key",
        category="secret",
        hints=("aiza",),
        regex=rf"AIza[A-Za-z0-9_-]{{35}}{_REST}",
        reason="the form of Google API keys: AIza and 35 characters",
    ),
    Rule(
        id="secret_aws",
        category="secret",
        hints=("akia", "asia", "access_key", "accesskey", "access-key"),
        regex=rf"(?:(?:AKIA|ASIA)[A-Z0-9]{{16}}{_REST}|(?i:access[_-]?key(?:[_-]?id)?){_ASSIGNED})",
        reason="the prefixes AWS documents for access key ids, and what is assigned to a key's name",
    ),
    Rule(
        id="secret_api_key",
        category="secret",
        costly=True,
        hints=("sk-", "sk_", "rk_", "pk_", "api_key", "apikey", "api-key", "private_key", "privatekey"),
        regex=(
            rf"(?:{_EDGE}sk-[A-Za-z0-9_-]{{20}}{_REST}|{_EDGE}[srp]k_(?:live|test)_[A-Za-z0-9]{{10}}{_REST}"
            rf"|(?i:api[_-]?key|private[_-]?key){_ASSIGNED})"
        ),
        reason="the sk- and sk_live_ forms of model and payment providers, and what is assigned to a key's name",
    ),
    Rule(
        id="secret_password",
        category="secret",
        costly=True,
        hints=("password", "passwd", "passphrase", "pwd"),
        regex=rf"(?:{_PASSWORD}{_ASSIGNED}|(?<=-){_PASSWORD}\s++{_VALUE})",
        reason="what is assigned to a password's name, in settings, JSON inside text and command lines",
    ),
    Rule(
        id="secret_token",
        category="secret",
        costly=True,
        hints=(
            *("token", "secret", "credential", "bearer", "authorization", "cookie", "eyj"),
            *(hint for issuer in ISSUED for hint in issuer.hints),
        ),
        regex=(
            rf"(?:{_EDGE}eyJ[A-Za-z0-9_-]{{10,}}+\.[A-Za-z0-9_-]{{4,}}+(?:\.[A-Za-z0-9_-]++){{0,3}}"
            r"|(?i:authorization|cookie)\\{0,3}[\"']?\s*+[:=]\s*+\\{0,3}[\"']?[^\r\n\"']++"
            rf"|(?i:bearer)\s++[A-Za-z0-9._~+/=-]{{16}}[A-Za-z0-9._~+/=-]*+"
            rf"|{_TOKEN}{_ASSIGNED}|(?<=-){_TOKEN}\s++{_VALUE}|{_EDGE}(?:{_ISSUED}){_REST})"
        ),
        reason="JWT (RFC 7519), bearer tokens (RFC 6750), HTTP credentials and cookies, what is assigned to "
        "a token's name, and the prefixes that issuers document for their tokens",
    ),
    Rule(
        id="pii_email",
        category="pii",
        costly=True,
        hints=("@",),
        regex=rf"[A-Za-z0-9._%+-]{{1,64}}+@(?:[A-Za-z0-9-]{{1,63}}\.){{1,10}}[A-Za-z]{{2}}{_REST}",
        reason="mail addresses as they are written in practice (RFC 5321 bounds the local part to 64)",
    ),
    Rule(
        id="pii_phone",
        category="pii",
        costly=True,
        hints=("+", "(", "-"),
        regex=(
            rf"(?:\+[1-9](?:[ ().-]{{0,2}}[0-9]){{6,14}}|\([2-9][0-9]{{2}}\) ?[0-9]{{3}}[ .-][0-9]{{4}}"
            rf"|{_EDGE}[2-9][0-9]{{2}}-[0-9]{{3}}-[0-9]{{4}}){_REST}"
        ),
        reason="E.164 numbers with their plus sign, and the North American forms; bare digits are mostly ids",
    ),
    # Off: which file was read, and which variable, is what an auditor asks of a call. Without them two calls on
    # different files would have one digest, and the evidence would say less than the call.
    Rule(
        id="path_absolute",
        category="pii",
        hints=("/", "\\"),
        regex=r"""(?:(?<![^\s"'=(])/[^\s"':;,/]++(?:/[^\s"':;,/]++)*+|(?i:[a-z]):\\[^\s"':;,]++)""",
        reason="a path can name a person's home; it is also what the call was about",
        enabled=False,
    ),
    Rule(
        id="env_var",
        category="secret",
        hints=("$", "%"),
        regex=rf"(?:\$\{{[A-Za-z_][A-Za-z0-9_]{{0,100}}\}}|\$[A-Za-z_]{_REST}|%[A-Za-z_][A-Za-z0-9_]{{0,100}}%)",
        reason="a variable can name a secret; the name alone gives nothing away",
        enabled=False,
    ),
)

SENSITIVE_NAMES = (
    "password",
    "passwords",
    "passwd",
    "passphrase",
    "pwd",
    "secret",
    "secrets",
    "token",
    "apikey",
    "apikeys",
    "authorization",
    "cookie",
    "cookies",
    "privatekey",
    "accesskey",
    "secretkey",
    "signingkey",
    "encryptionkey",
    "credential",
    "credentials",
)
"""Key names whose value is replaced whole: as the whole name or its end, case and separators aside."""
