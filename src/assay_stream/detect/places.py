"""Where secrets lie and where data goes: files, commands, addresses and hosts."""

from __future__ import annotations

import re

KEY_STORE = (
    r"\.ssh\b(?![/\\](?:config|known_hosts))|\bid_(?:rsa|ed25519|ecdsa|dsa)\b|/etc/(?:passwd|shadow|sudoers)\b"
    r"|\.aws\b[/\\](?!config)|\.git-credentials|\.netrc\b|\.npmrc\b|\.pypirc\b|\.docker[/\\]config|"
    r"\.gnupg\b|\.pgpass\b"
    r"|\.cursor[/\\]mcp|claude_desktop_config|\.config[/\\](?:gh|gcloud)|/proc/(?:self|\d{1,7})/environ"
    r"|\bwallet\.dat\b|\bLogin Data\b|\bkeychain-db\b|\bauthorized_keys\b|\.(?:bash|zsh)_history\b|\bNTDS\.dit\b"
    r"|(?<=[/\\])\.kube[/\\]config|\bLibrary/Keychains\b|\.password-store\b|\.mozilla[/\\]firefox"
    r"|\blogins\.json\b"
    r"|\bkey[34]\.db\b|\bcookies\.sqlite\b|\bgoogle-chrome[/\\]|\bUser Data[/\\]|\.vault-token\b|\.azure[/\\]"
    r"|\.cargo[/\\]credentials|\.gem[/\\]credentials|\.ethereum\b|\.electrum\b|\.config[/\\]solana|\.bitcoin\b"
    r"|\.codex[/\\]auth|\.claude\.json\b|\.rclone\.conf\b|\.s3cfg\b|\.boto\b"
)
"""Pattern of files and folders that hold keys."""
SETTINGS_FILE = (
    r"(?<![\w.])\.env(?:\.(?:local|production|prod))?(?!\.?\w)|\.ssh[/\\]config|\.aws[/\\]config"
    r"|\bmcp(?:_config|\.json|-config)|\.cursor[/\\](?!mcp)|\bcredentials\.json\b|\bsecrets\.ya?ml\b|"
    r"\bweb\.config\b"
    r"|\bservice[-_]account\.json\b|\bterraform\.tfstate\b|\b169\.254\.169\.254\b|\bhosts\.yml\b"
)
"""Pattern of settings that often hold secrets."""
KEY_VARIABLE = (
    r"\b(?:AWS_)?SECRET_ACCESS_KEY\b|\b(?:OPENAI|ANTHROPIC|GITHUB|AWS"
    r"|STRIPE)_[A-Z_]{0,30}(?:KEY|TOKEN)\b"
)
"""Pattern of environment variables that hold keys."""
REVEALING_COMMAND = (
    r"\bprintenv\b|`(?:env|set|history)`|\b(?:export|declare) -p\b|\bcompgen -v\b|\bGet-ChildItem Env:"
    r"|\b(?:gci|dir|ls) env:"
    r"|\bsecurity (?:find-(?:generic|internet)-password|dump-keychain)\b|\bgh auth (?:token|status -t)\b"
    r"|\bcmdkey /list\b"
    r"|\bgcloud auth (?:application-default )?print-(?:access|identity)-token\b|\baz account get-access-token\b"
    r"|\baws (?:configure (?:export-credentials|get)|sts get-session-token|ecr get-login-password)\b|\bop"
    r" (?:read|item get)\b"
    r"|\bkubectl (?:config view [^\n]{0,30}--raw|get secrets?)\b|\bgpg [^\n]{0,30}--export-secret|\bgit"
    r" credential fill\b"
    r"|\bvault (?:kv get|print token|read)\b|\bpass show\b|\bssh-add -L\b|\bdoppler secrets\b|\bheroku"
    r" (?:config|auth:token)\b"
    r"|\bnpm (?:config get|token list)\b|\bmimikatz\b|\bsecretsdump\b|\breg (?:query|save) HK|\bsecret-tool"
    r" (?:lookup|search)\b"
    r"|\bdocker inspect\b|\bhistory \| ?(?:tail|grep|head)|\bpbpaste\b|\bxclip -o\b|\bGet-Clipboard\b"
)
"""Pattern of commands that print secrets."""
MONEY_ACCOUNT = (
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){3,7}(?: ?[A-Z0-9]{1,3})?\b|\b0x[0-9a-fA-F]{40}\b"
    r"|\b(?:bc1|[13])[a-km-zA-HJ-NP-Z1-9]{25,59}\b"
)
"""Pattern of an IBAN or of a wallet's address."""
URL = r"\b(?:https?|hxxps?|ftp|wss?)://[^\s<>\"'`)\]}|\\]{1,400}+"
"""Pattern of a URL."""
IP_ADDRESS = (
    r"(?<![\d.])(?!(?:10|127|0|255|192\.168|169\.254|192\.0\.2|198\.51\.100|"
    r"203\.0\.113)\.)(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"
)
"""Pattern of an IPv4 address that is neither private nor kept for documentation (RFC 5737)."""
EMAIL = r"(?<![\w.+-])[\w.+-]{1,64}+@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}\b"
"""Pattern of a mail address."""
DROP_HOST = (
    r"webhook\.site|requestbin|pipedream\.net|ngrok|burpcollaborator|oastify|interact\.sh|\boast\."
    r"|pastebin\.com|transfer\.sh"
    r"|discord(?:app)?\.com/api/webhooks|api\.telegram\.org/bot|bit\.ly/|tinyurl\.com|\bt\.me/|\.onion\b"
    r"|requestcatcher"
    r"|beeceptor|trycloudflare\.com|serveo\.net|localtunnel|\bis\.gd/|rentry\.co|hookbin|pastes\.io"
    r"|0x0\.st|file\.io/|xn--"
)
"""Pattern of hosts that receive data and leave no owner."""
SECRET_FILE = f"{KEY_STORE}|{SETTINGS_FILE}|{KEY_VARIABLE}"
"""Pattern of what holds secrets by its name."""
ADDRESS = f"{URL}|{EMAIL}|{IP_ADDRESS}"
"""Pattern of where data can go."""

HARMLESS_HOSTS = (
    *("localhost", "127.0.0.1", "0.0.0.0", "::1", "host.docker.internal", "example.com", "example.org"),  # noqa: S104
    *("example.net", "json-schema.org", "www.w3.org", "schema.org", "modelcontextprotocol.io"),
    *("tools.ietf.org", "datatracker.ietf.org", "www.rfc-editor.org", "en.wikipedia.org"),
)
"""Hosts that documentation names as examples (RFC 2606) or as vocabulary: they receive nothing."""

_DOCUMENTATION_HOSTS_LISTED = """
    docs.python.org developer.mozilla.org docs.rs commonmark.org spec.commonmark.org semver.org yaml.org
    toml.io graphql.org kubernetes.io docs.docker.com www.postgresql.org sqlite.org www.sqlite.org nodejs.org
    docs.npmjs.com docs.github.com docs.gitlab.com docs.aws.amazon.com learn.microsoft.com cloud.google.com
    developers.google.com developers.notion.com api.slack.com docs.slack.dev platform.openai.com
    docs.anthropic.com docs.stripe.com developer.atlassian.com redis.io www.mongodb.com prometheus.io
    grafana.com opentelemetry.io git-scm.com unicode.org www.unicode.org www.iso.org owasp.org cwe.mitre.org
    attack.mitre.org nvd.nist.gov wikipedia.org en.wiktionary.org
    www.openapis.org swagger.io peps.python.org
"""
DOCUMENTATION_HOSTS = frozenset(_DOCUMENTATION_HOSTS_LISTED.split())
"""Hosts on which their owners alone publish, and which documentation points at."""
_SHARED_SUFFIXES_LISTED = """
    github.io gitlab.io herokuapp.com vercel.app netlify.app pages.dev workers.dev web.app firebaseapp.com
    azurewebsites.net amazonaws.com cloudfront.net blogspot.com readthedocs.io onrender.com fly.dev glitch.me
    surge.sh repl.co replit.app ngrok.io appspot.com windows.net sharepoint.com myshopify.com wordpress.com
"""
_SHARED_SUFFIXES = frozenset(_SHARED_SUFFIXES_LISTED.split())
"""Domains below which anyone can have a host."""
_SECOND_LEVEL = frozenset(["co", "com", "org", "net", "gov", "edu", "ac", "or", "ne", "go", "gob"])
_SHARED_HOSTS = frozenset(
    ["github.com", "gitlab.com", "bitbucket.org", "google.com", "dropbox.com", "notion.so", "medium.com"]
)
_RESERVED = (".example", ".test", ".localhost", ".invalid", ".example.com")
_HOST = re.compile(r"://(?:[^/\s@]{0,80}@)?(\[[0-9a-fA-F:]{2,40}\]|[^/\s:?#]{1,255})")


def host_of(address: str) -> str:
    """Return the host of a URL or mail address, in lowercase; the text itself where there is none.

    Args:
        address: what ``URL`` or ``EMAIL`` matched.
    """
    found = _HOST.search(address)
    return (found[1] if found else address.rpartition("@")[2]).lower().rstrip(".")


def is_harmless(host: str) -> bool:
    """Return whether a host is an example or vocabulary.

    Args:
        host: as ``host_of`` gives it.
    """
    return host in HARMLESS_HOSTS or host.endswith(_RESERVED)


def owner_of(host: str) -> str | None:
    """Return the registered domain of a host, ``None`` where anyone can publish or have a host under it.

    Args:
        host: as ``host_of`` gives it.
    """
    labels = host.split(".")
    if len(labels) < 2 or labels[-1].isdigit() or not all(labels):
        return None
    kept = 3 if labels[-2] in _SECOND_LEVEL and len(labels[-1]) == 2 and len(labels) > 2 else 2
    domain = ".".join(labels[-kept:])
    return None if domain in _SHARED_SUFFIXES or domain in _SHARED_HOSTS else domain
