"""Rules that are patterns, and what they are made of.

Patterns keep three habits, so that they are linear: a run is possessive or bounded, what must follow a run does
not share its characters, and a pattern starts with something rare.

Levels are OCSF severity ids: 1 informational, 2 low, 3 medium, 4 high, 5 critical. A rule raises to its level;
none lowers anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from assay_stream.detect.places import (
    DROP_HOST,
    EMAIL,
    KEY_STORE,
    KEY_VARIABLE,
    REVEALING_COMMAND,
    SETTINGS_FILE,
    URL,
)


class Over(Enum):
    """What a rule's pattern is searched in."""

    RAW = "raw"
    """The text exactly as it stands."""
    SEEN = "seen"
    """The text as its reader sees it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule.

    Args:
        id: stable name.
        level: OCSF severity id that it raises to, 1 to 5.
        reason: why an attacker does it.
        reference: public name of the attack or the work that describes it.
        regex: the pattern, empty where the rule matches otherwise.
        over: what the pattern is searched in.
        hints: texts in lowercase, one of which stands in every match; they spare most texts the search.
        names: parameter names, in lowercase words joined by ``_``, each also as the end of a longer name.
        names_are_whole: whether they are not.
    """

    id: str
    level: int
    reason: str
    reference: str
    regex: str = ""
    over: Over = Over.SEEN
    hints: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    names_are_whole: bool = False


_TAGS = (
    "important|system|instructions?|hidden|secret|critical|admin|assistant|user_instructions"
    "|system_prompt|override"
    "|priority|mandatory|sys|policy_update|developer|internal|urgent|wichtig|importante|importantissimo"
    "|belangrijk"
    "|anweisung(?:en)?|instrucciones|sistema|syst(?:e|è)me|важно|система|инструкция|重要|系统|指令|システム|"
    "중요|시스템"
    "|مهم|महत्वपूर्ण"
)
PATTERN_RULES: tuple[Rule, ...] = (
    Rule(
        id="shell_command",
        level=4,
        reason="A download piped into a shell, or a reverse shell, is an attack wherever it is written.",
        reference="MITRE ATT&CK T1059",
        regex=(
            r"\b(?:curl|wget|iwr)\b[^|\n]{1,200}\|\s{0,4}(?:sudo )?(?:ba|z|da)?sh\b|/dev/tcp/|\bnc"
            r" (?:-\w{1,4} ){1,3}"
            r"|\brm -rf [~/$]|\bchmod (?:-R )?0?[67][67]{2}\b"
            r"|\bpowershell(?:\.exe)? -(?:e|enc|w|c|nop)\w{0,16}\b|\bcurl\b[^\n]{0,80}"
            r" (?:-d|-F|--data\S{0,12}|-T|--upload-file) ?@?"
            r"|\$\((?:cat|curl|wget|whoami|env|printenv)\b|;\s{0,3}(?:cat|curl|wget) |\bbase64 (?:-d"
            r"|--decode)\b[^\n]{0,40}\|"
        ),
        hints=("chmod", "curl", "wget", "iwr", "/dev/tcp", "nc -", "rm -rf", "powershell", "$(", ";", "base64"),
    ),
    Rule(
        id="pseudo_markup",
        level=4,
        reason="Tags and chat templates make text look as if it came from the system and not from a tool.",
        reference="tool poisoning with an IMPORTANT tag (Invariant Labs); special-token injection",
        regex=(
            rf"<\s{{0,4}}/?\s{{0,4}}(?:{_TAGS})(?:\s[^<>]{{0,60}})?/?>|(?-i:\[\s?/?\s?(?:INST|SYSTEM|ADMIN"
            rf"|DEVELOPER|SYS)(?:[ _][A-Z]{{1,15}}){{0,2}}\s?\])"
            r"|<\|[a-z_]{2,24}\|>|<<\s?/?SYS\s?>>|\{\{\s?#?(?:system|assistant)\b[^{}\n]{0,20}\}\}"
            r"|\[/?(?:system|assistant)\]\s?[:(]"
            r"|^\s{0,8}#{1,6} ?(?:system|developer|assistant|new)\s(?:prompt|message|instructions?"
            r"|override|note)\b"
        ),
        hints=("<", "[", "{{", "#"),
    ),
    Rule(
        id="role_heading",
        level=3,
        reason="A line that begins with a role reads like a turn of the conversation.",
        reference="chat-markup injection",
        regex=(
            r"^[ \t]{0,8}(?:#{1,6} ?)?(?:system|assistant|developer|human)(?: (?:prompt|message|note"
            r"|override))?[ \t]{0,2}[::] ?\S"
        ),
        hints=(":", ":", "!"),
    ),
    Rule(
        id="invisible_message",
        level=5,
        reason="Tag characters, variation selectors and long runs of zero-width characters carry text unseen.",
        reference="ASCII smuggling; Unicode tags (Embrace The Red)",
        regex=(
            "[\U000e0020-\U000e007f]{3}[\U000e0020-\U000e007f]*+|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3}"
            "[\ufe00-\ufe0f\U000e0100-\U000e01ef]*+"
            "|[\u200b-\u200d\u2060-\u2064\ufeff]{4}[\u200b-\u200d\u2060-\u2064\ufeff]*+"
        ),
        over=Over.RAW,
    ),
    Rule(
        id="bidirectional_control",
        level=4,
        reason="Directional overrides make text read otherwise than it stands.",
        reference="Trojan Source (CVE-2021-42574)",
        regex="[\u202a-\u202e\u2066-\u2069]",
        over=Over.RAW,
    ),
    Rule(
        id="hidden_character",
        level=4,
        reason=("An invisible character inside a word breaks filters and comparisons and changes nothing for a model."),
        reference="zero-width obfuscation",
        regex=(
            r"(?<=[A-Za-z])[\u200b\u200c\u200d\u2060-\u2064\ufeff\u00ad\u034f\u180e](?=[A-Za-z])"
            r"(?=[\s\S]{0,400}[A-Za-z][\u200b\u200c\u200d\u2060-\u2064\ufeff\u00ad\u034f\u180e][A-Za-z])"
            r"|[\u3164\uffa0\u115f\u1160\u2800]{2}|[\U000e0000-\U000e007f]{2}"
        ),
        over=Over.RAW,
    ),
    Rule(
        id="stray_hidden_character",
        level=2,
        reason=("A single invisible character is mostly an editor's, and still changes a digest and a comparison."),
        reference="zero-width obfuscation",
        regex="[\u200b\u2060-\u2064\ufeff\u00ad\u180e]",
        over=Over.RAW,
    ),
    Rule(
        id="terminal_escape",
        level=4,
        reason="Terminal control sequences hide text from a person who reviews it in a console.",
        reference="ANSI terminal codes in tool descriptions (Trail of Bits)",
        regex="\x1b|\x9b[0-9;]{0,16}[A-Za-z]|[\x00-\x07\x08\x0e-\x1a\x1c-\x1f]",
        over=Over.RAW,
    ),
    Rule(
        id="text_out_of_view",
        level=4,
        reason="A long run of white space pushes what follows out of the window in which a tool is approved.",
        reference="tool description hidden behind white space (Invariant Labs)",
        regex=(
            r"(?<![ \t\u00a0\u2000-\u200a\u3000])[ \t\u00a0\u2000-\u200a\u3000]{80}["
            r" \t\u00a0\u2000-\u200a\u3000]*+\S|(?<![\r\n])(?:\r?\n[ \t]{0,40}){12}"
        ),
        over=Over.RAW,
    ),
    Rule(
        id="comment_with_text",
        level=4,
        reason="A comment is left out where Markdown is shown, and read by the model.",
        reference="hidden instructions in HTML comments",
        regex=(
            r"<!--(?=[^>]{12})(?:\W{0,8}\w{1,40}){4}|^\[//\]: ?# ?[(\"'][^\n]{20}"
            r"|style=[\"'][^\"'<>]{0,60}(?:display: ?none|font-size: ?0|opacity: ?0|color: ?(?:#fff|white))"
        ),
        hints=("<!--", "[//]", "style="),
    ),
    Rule(
        id="link_trick",
        level=4,
        reason="An image that loads, or a link that shows another host than it leads to, carries data out.",
        reference="Markdown image exfiltration (Embrace The Red)",
        regex=(
            r"!\[[^\]\n]{0,100}\]\(https?://[^\s)]{1,200}[?=/](?:\{|%7B|\$|<|\[)|(?:javascript|vbscript):["
            r"^\s]{1,10}|data:text/html"
            r"|\[(?:https?://)?(?P<shown>[a-z0-9-]{1,63}(?:\.[a-z0-9-]{1,63}){1,4})/?\]\(https?://(?!(?:ww"
            r"w\.)?(?P=shown))[^\s)]{3}"
            r"|https?://[^\s/?#@]{1,80}@[^\s/]{1,80}"
            r"|https?://[^\s{}<>]{1,200}[?&]\w{1,30}=(?:\{|<|\[|\$\{?)[a-zA-Z_ ]{0,40}(?:data|secret|key|t"
            r"oken|content|context|conversation|history|prompt|result|env)"
        ),
        hints=("](", "script:", "data:text", "://"),
    ),
    Rule(
        id="drop_site_named",
        level=4,
        reason=("Request bins, tunnels, shorteners, bots and bare public addresses receive data and leave no owner."),
        reference="MITRE ATT&CK T1567 exfiltration over web service",
        regex=(
            rf"{DROP_HOST}|://(?!(?:10|127|0|192\.168|169\.254|172\.(?:1[6-9]|2\d"
            rf"|3[01]))\.)\d{{1,3}}(?:\.\d{{1,3}}){{3}}\b"
        ),
    ),
    Rule(
        id="key_store_named",
        level=4,
        reason="Where a user's keys lie is of use to no tool but one that reads them.",
        reference="credential access; MITRE ATLAS AML.T0055",
        regex=KEY_STORE,
    ),
    Rule(
        id="secret_file_named",
        level=3,
        reason="Settings that often hold secrets have no place in most tools' words.",
        reference="credential access; MITRE ATLAS AML.T0055",
        regex=SETTINGS_FILE,
    ),
    Rule(
        id="secret_variable_named",
        level=2,
        reason="Documentation names the variable that holds a server's key; so does text that asks for its value.",
        reference="credential access; MITRE ATLAS AML.T0055",
        regex=KEY_VARIABLE,
    ),
    Rule(
        id="secret_command_named",
        level=3,
        reason="A command that prints tokens or the environment belongs on a screen, not in a tool's words.",
        reference="credential access; MITRE ATT&CK T1552",
        regex=REVEALING_COMMAND,
    ),
    Rule(
        id="data_in_host_name",
        level=4,
        reason="Looking up a host whose name holds data carries the data to whoever answers for that name.",
        reference="DNS exfiltration; MITRE ATT&CK T1048",
        regex=(
            r"[<{\[]\$?[\w ]{0,30}(?:query|data|secret|key|token|content|context|prompt|result|password"
            r"|text|message"
            r"|answer|env|history|chunk|payload|encoded|base32|base64|hex)[\w ]{0,20}[>}\]]"
            r"\.(?:[a-z0-9-]{1,63}\.){1,5}[a-z]{2,24}\b"
        ),
        hints=(">.", "}.", "]."),
    ),
    Rule(
        id="url_introduced",
        level=3,
        reason="A new address is where data may go or further instructions may come from.",
        reference="MITRE ATLAS AML.T0051.001 indirect prompt injection",
        regex=URL,
        hints=("://",),
    ),
    Rule(
        id="address_introduced",
        level=3,
        reason="A new mail address is where data may go.",
        reference="tool shadowing of a mail tool (Invariant Labs)",
        regex=EMAIL,
        hints=("@",),
    ),
)
"""Every rule that is a pattern."""
