"""What must stand in a text before the pattern of a rule can match it, looked for in one pass over all texts.

1. ``NEEDLES`` lists for each pattern that is searched in visible text some literal texts, in lowercase. One of
   them stands in every match. One automaton finds them all at once.
2. ``gated`` tells for a handful of patterns which texts they can concern, one pass each over all texts together.

Both leave out only what cannot match: the pattern itself decides.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Final

from ahocorasick_rs import AhoCorasick

from assay_stream.work import Work

_SEPARATOR = "\x00"
# Letters that a case-insensitive pattern takes for another one, though its lowercase is not that one.
_OTHER_CASES = dict(zip("İıᲀᲁᲂᲃᲄᲅᲆᲇᲈ", "iiвдосттъѣꙋ", strict=True))
_OTHER_CASE = re.compile(f"[{''.join(_OTHER_CASES)}]")
_UNITS_PER_HIT = 3
_CHARS_PER_UNIT = 5


def _listed(needles: str) -> tuple[str, ...]:
    return tuple(needles.split())


_MARKUP_WORDS = (
    "important system instruction hidden secret critical admin assistant override priority mandatory sys"
    " policy_update developer internal urgent wichtig importantissimo belangrijk anweisung instrucciones sistema"
    " système важно система инструкция 重要 系统 指令 システム 중요 시스템 مهم महत्वपूर्ण inst <|"
)
_KEY_STORES = (
    ".ssh id_rsa id_ed25519 id_ecdsa id_dsa /etc/passwd /etc/shadow /etc/sudoers .aws .git-credentials .netrc"
    " .npmrc .pypirc .docker .gnupg .pgpass .cursor claude_desktop_config .config /environ wallet.dat keychain-db"
    " authorized_keys _history ntds.dit .kube library/keychains .password-store .mozilla logins.json key3.db"
    " key4.db cookies.sqlite google-chrome .vault-token .azure .cargo .gem .ethereum .electrum .bitcoin .codex"
    " .claude.json .rclone.conf .s3cfg .boto"
)
_DROP_HOSTS = (
    "webhook.site requestbin pipedream.net ngrok burpcollaborator oastify interact.sh oast. pastebin.com"
    " transfer.sh /api/webhooks api.telegram.org/bot bit.ly/ tinyurl.com t.me/ .onion requestcatcher beeceptor"
    " trycloudflare.com serveo.net localtunnel is.gd/ rentry.co hookbin pastes.io 0x0.st file.io/ xn-- ://"
)
_COMMANDS = (
    *("printenv", "`env`", "`set`", "`history`", "export -p", "declare -p", "compgen -v", "get-childitem env:"),
    *("gci env:", "dir env:", "ls env:", "security find-", "security dump-", "gh auth ", "cmdkey /list"),
    *("gcloud auth ", "az account ", "aws configure ", "aws sts ", "aws ecr ", "op read", "op item ", "--raw"),
    *("kubectl get secret", "--export-secret", "git credential ", "vault kv ", "vault print ", "vault read"),
    *("pass show", "ssh-add -l", "doppler secrets", "heroku config", "heroku auth:", "npm config ", "npm token "),
    *("mimikatz", "secretsdump", "reg query hk", "reg save hk", "secret-tool ", "docker inspect", "history |"),
    *("pbpaste", "xclip -o", "get-clipboard"),
)
NEEDLES: Final[Mapping[str, tuple[str, ...]]] = {
    "shell_command": (
        *("curl", "wget", "iwr", "/dev/tcp/", "nc -", "rm -rf", "chmod", "powershell", "$(", "base64", "cat "),
    ),
    "pseudo_markup": (*_listed(_MARKUP_WORDS), "{{", "# new", "#new"),
    "role_heading": _listed("system assistant developer human"),
    "comment_with_text": _listed("<!-- [//] style="),
    "link_trick": _listed("]( script: data:text @ ={ =< =[ =$"),
    "drop_site_named": _listed(_DROP_HOSTS),
    "key_store_named": (*_listed(_KEY_STORES), "login data", "user data"),
    "secret_file_named": _listed(
        ".env .ssh .aws mcp_config mcp.json mcp-config .cursor credentials.json secrets.y web.config account.json"
        " terraform.tfstate 169.254.169.254 hosts.yml"
    ),
    "secret_variable_named": _listed("secret_access_key openai_ anthropic_ github_ aws_ stripe_"),
    "secret_command_named": _COMMANDS,
    "data_in_host_name": _listed(">. }. ]."),
    "url_introduced": ("://",),
    "address_introduced": ("@",),
}
"""Rule to what stands in each of its matches, in lowercase and with each ``i`` under a dot."""


class Needles:
    """Every needle of a table, found in one pass.

    Args:
        needles: rule to its needles.
    """

    def __init__(self, needles: Mapping[str, tuple[str, ...]]) -> None:
        rules: dict[str, list[str]] = {}
        for rule, listed in needles.items():
            for needle in listed:
                rules.setdefault(needle, []).append(rule)
        self._rules = list(rules.values())
        self._automaton = AhoCorasick(list(rules))

    def rules_of(self, lowered: Sequence[str], work: Work) -> dict[int, set[str]]:
        """Return the rules of which a needle stands in a text, by the place of the text.

        Args:
            lowered: texts as ``lowered`` gives them.
            work: the budget.

        Raises:
            WorkExhaustedError: where the budget does not suffice.
        """
        joined, starts = _joined(lowered)
        work.spend(len(joined) // _CHARS_PER_UNIT)
        hits = self._automaton.find_matches_as_indexes(joined, overlapping=True)
        work.spend(_UNITS_PER_HIT * len(hits))
        found: dict[int, set[str]] = {}
        for needle, start, _ in hits:
            found.setdefault(bisect_right(starts, start) - 1, set()).update(self._rules[needle])
        return found


def lowered(seen: str) -> str:
    """Return a visible text as a case-insensitive pattern compares it with lowercase ASCII letters.

    Args:
        seen: a visible text.
    """
    if seen.isascii():
        return seen.lower()
    return _OTHER_CASE.sub(lambda char: _OTHER_CASES[char[0]], seen).lower()


def gated(gate: re.Pattern[str], texts: Sequence[str], work: Work) -> set[int]:
    """Return the places of the texts in which a pattern matches.

    Args:
        gate: a pattern that does not match U+0000.
        texts: any texts.
        work: the budget.

    Raises:
        WorkExhaustedError: where the budget does not suffice.
    """
    joined, starts = _joined(texts)
    work.spend(len(joined) // _CHARS_PER_UNIT)
    found = set()
    match = gate.search(joined)
    while match is not None:
        place = bisect_right(starts, match.start()) - 1
        found.add(place)
        if place + 1 == len(starts):
            break
        match = gate.search(joined, starts[place + 1])
    return found


def _joined(texts: Sequence[str]) -> tuple[str, list[int]]:
    starts = list(accumulate((len(text) + 1 for text in texts[:-1]), initial=0))
    return _SEPARATOR.join(texts), starts
