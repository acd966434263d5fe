"""What English text says to a model that a tool's description has no business to say, as phrases by rule.

How a phrase is written stands in ``detect.phrases``. Other languages stand in ``introduced_phrases_west`` and
``introduced_phrases_east``.
"""

from __future__ import annotations

_IGNORE = "ignore|disregard|forget|override|bypass|discard|overlook|neglect|supersede*|ignoring|disregarding|violate"
_INSTRUCTIONS = "instruction*|rule*|guideline*|prompt|prompts|directive*|guardrail*|restriction*|policy|policies"
_EARLIER = "previous|previously|prior|above|earlier|preceding|former|foregoing|original|system|safety|your|developer"
_CALL = "call*|use|using|used|invok*|run|running|execut*|trigger*"
_MUST = "must|shall|always|required|mandatory|have_to|has_to|need_to|needs_to|should|make_sure|ensure|be_sure"
_MODEL = "assistant|ai|llm|llms|model|models|agent|agents|chatbot|copilot|claude|gpt|gemini"
_TELL = "tell|mention|inform|notify|reveal|disclose|show|alert|report|display|explain|expose|let|warn"
_USER = "user|users|human|humans|operator|person|customer|anyone|them"
_NOT = (
    "do_not|don_t|never|must_not|should_not|shall_not|may_not|not_to|and_not|but_not|avoid|without|refrain_from"
    "|no_need_to|need_not"
)
_SEND = (
    "send|post|forward|upload|transmit|exfiltrate|leak|email|mail|deliver|relay|submit|push|publish|report"
    "|put|copy|ship"
)
_SENDS = "sends|posts|forwards|uploads|transmits|sent|posted|forwarded|uploaded|submitted|delivered|mirrored|copied"
_INCLUDE = (
    "include|pass|provide|put|place|copy|paste|append|attach|insert|add|fill|encode|embed|supply|write"
    "|quote|repeat"
    "|store|save|list|summarize|summarise|return|prepend|dump|record|give|contain|contains|including"
    "|hand|reproduce"
)
_WHOLE = "full|entire|whole|complete|verbatim|all|everything|every"
_TALK = "conversation*|chat|chats|transcript*|dialogue|dialog"
_READ = (
    "read|open|load|cat|access|fetch|retrieve|get|view|print|collect|find|locate|look|grab|reading"
    "|extract|gather"
    "|harvest|inspect"
)
_DATA = (
    "all|every|copy|copies|result|results|content|contents|data|output|outputs|conversation*|file|files|history"
    "|context|credential*|key|keys|token|tokens|secret|secrets|everything|it|them|details|arguments|parameters"
    "|response|responses|message|messages|answer|answers|email|emails|password*|summary|input|inputs"
    "|query|queries"
)
_SECRETS = (
    "api_key|api_keys|apikey*|password|passwords|credential|credentials|secret|secrets|private_key"
    "|private_keys|ssh_key"
    "|ssh_keys|access_token|access_tokens|tokens|environment_variables|env_vars|seed_phrase|mnemonic"
    "|cookies|id_rsa"
    "|session_token|wallet|auth_token|auth_tokens|etc_passwd|etc_shadow"
)

ENGLISH: dict[str, tuple[str, ...]] = {
    "instructions_overridden": (
        f"{_IGNORE} ~3 {_EARLIER} ~2 {_INSTRUCTIONS}",
        f"{_IGNORE} ~2 {_INSTRUCTIONS} ~2 above|before|earlier|previously|given",
        f"{_IGNORE} ~2 everything|anything|what ~3 above|before|told|said",
        f"do_not|don_t|never|stop ~1 follow|following|obey|obeying ~3 {_EARLIER} ~2 {_INSTRUCTIONS}",
        f"{_INSTRUCTIONS} ~3 no_longer ~1 apply|applies|valid|binding",
        "new|updated|revised ~1 instructions|directive|directives ~1 replace|override|supersede|take_effect|follow",
        "you_are_now|act_as|pretend_to_be ~3 unrestricted|jailbroken|dan|developer_mode|root|administrator",
        f"{_IGNORE} ~4 user|users ~2 request|requests|instructions|wishes|preferences|intent|question",
    ),
    "priority_claimed": (
        "before|prior_to ~1 replying|answering|responding|each_reply ~8 call|invoke|hand|pass|send|include|save",
        f"{_CALL} ~3 this ~1 tool ~3 prior_to|before|ahead_of ~1 all|any|every ~2 others|other|else",
        f"before|prior_to ~2 {_CALL} ~2 any|every|all ~2 tool|tools|function|functions|action",
        f"before|prior_to ~2 {_CALL} ~2 other ~1 tool|tools|function|functions",
        "before ~2 any|every|each|all ~1 other ~2 tool|tools|action|actions|step|function",
        ("before ~1 every|any|each ~1 tool_call|tool_calls|tool_use|tool_invocation|answer|response|reply|message"),
        f"{_MUST} ~3 {_CALL} ~3 this ~1 tool|function ~3 before|first|every|whenever|instead",
        ("this_tool ~2 must|always|has_to|needs_to ~2 be ~1 called|used|invoked|run ~3 first|instead|every"),
        "takes|take|has|have|higher ~2 precedence|priority ~2 over ~3 tool|tools|instruction*|rules|request*|prompt",
        f"{_MUST}|never ~3 instead_of|rather_than ~3 all|any|every ~2 tool|tools",
        f"do_not|never|don_t|stop ~1 {_CALL} ~2 other|another|different|alternative|competing ~2 tool|tools",
        "all|any|every ~1 other ~2 tool|tools ~3 must|deprecated|broken|insecure|disabled|unsafe"
        "|unavailable|forbidden|compromised",
        f"after ~2 {_CALL}|every|each ~3 tool|tool_call|response ~4 must|always ~2 {_CALL} ~2 this",
        f"whenever|when|every_time|each_time ~5 tool|tools ~3 {_CALL}|available ~4 must|always|also|first"
        f" ~2 {_CALL}|send|read ~3 this|to",
        "always ~1 call|use|invoke|prefer|choose|select ~1 this_tool|me ~6 first|regardless|even_if|no_matter|instead",
        "best|only|preferred|trusted|official ~2 tool ~4 ignore|never|always ~2 use|call|other|others|choose",
    ),
    "other_tool_steered": (
        (
            "result|results|output|outputs|answer|answers ~1 of|from ~1 {tool} ~6 saved|stored|passed|sent|"
            "here|copied|forwarded|included"
        ),
        "{tool} ~1 tool|function ~2 must|should|has_to|needs_to|shall ~2 send|be_sent|go|set|pass|also"
        "|copy|bcc|forward|include|add",
        "{tool} ~2 must|should|has_to|needs_to|shall ~2 send|be_sent|set|pass|also|copy|bcc|forward|include|add",
        "when|whenever|before|after|each_time|every_time|if ~4 {tool} ~6 must|always|also|change"
        "|replace|secretly|silently|instead|bcc|append",
        f"{_MUST} ~8 when|whenever|before|after|each_time|every_time ~4 {{tool}}",
        ("{tool} ~4 broken|insecure|compromised|disabled|malicious|unsafe|vulnerable|forbidden|not_work*|corrupted"),
        f"never|do_not|don_t ~2 {_CALL}|trust ~2 {{tool}} ~6 always|this_tool|instead|because|unless",
        "replace|change|redirect|modify|rewrite|alter|swap|override ~5 {tool}",
        "{tool} ~6 recipient|recipients|destination|attacker|bcc|amount|account ~3 to|must|with",
        f"then|also|first|next|secretly|quietly ~2 {_CALL} ~2 {{tool}} ~6 {_SECRETS}|conversation*"
        f"|contents|history|context|prompt|result|results|it|output",
        f"{_CALL} ~2 {{tool}} ~6 {_SECRETS}|{{secret_file}}|conversation*|chat_history|system_prompt",
        f"{_CALL} ~2 {{tool}} ~8 {{secret_file}}",
        "{tool} ~8 {address}",
    ),
    "model_commanded": (
        "from_now_on|from_this_point_on|henceforth",
        (
            "end|start|begin|finish|close ~1 every|each|all ~1 answer|answers|reply|replies|response|"
            "responses ~2 with|by"
        ),
        f"instructions|note|notice|message|reminder|attention ~1 for|to ~1 the|any|all ~1 {_MODEL}",
        f"{_MODEL} ~1 must|shall|is_required|are_required|has_to|is_instructed ~2 never|always|first|not"
        f"|call|read|send|include|follow|comply",
        "system|admin|administrator|developer ~0 override|instruction|directive|command|notice ~2 you"
        "|the|all|must|now|this",
        "you ~1 must|shall|are_required_to|have_to ~1 comply|obey|follow ~3 instruction*|directive*"
        "|command*|order*|without",
        "if_you_are|as ~1 an|a ~1 ai|llm|language_model ~3 must|always|you|should|never",
        "failure|failing ~1 to ~3 comply|do_so|obey|follow ~5 will|may|result*|crash*|terminat*|error*|break*",
        "otherwise|or_else ~3 tool|application|system|user|it ~3 crash*|break|not_work|fail|die|lose|fired|shut_down",
        "this_is ~1 a|an ~1 system|security|compliance|mandatory|admin* ~1 requirement|policy|directive"
        "|message|order|instruction",
        "hidden|secret|internal ~1 instruction*|directive*|command*|protocol",
        "you ~1 must|should|will ~1 now|immediately|always ~3 reveal|output|print|disclose|repeat|leak",
        (
            "whatever|regardless_of|no_matter_what|despite ~2 the|a ~0 user|users|customer ~2 says|asks|"
            "wants|requested|said"
        ),
        "whatever|regardless_of|no_matter_what ~1 the ~0 user|users|customer ~2 says|asks|wants|requested|said",
        "your|the ~1 new|real|true|actual|primary ~1 task|goal|objective|purpose|mission|role ~1 is",
    ),
    "secrecy_asked": (
        (
            "user|users|person|human|customer|they|anyone ~8 not|never ~2 find_out|notice|learn|discover|"
            "realize|realise|suspect"
        ),
        "leave|keep|omit ~3 out_of|from ~3 tell|summary|answer|reply|report|response",
        f"{_NOT} ~2 {_TELL} ~4 {_USER}",
        f"{_NOT} ~1 mention|reveal|disclose|talk_about|discuss|acknowledge|confess ~2 this|that|it|these"
        f" ~1 {_MODEL}|instruction*|step|steps|to|tool|note|part|file|parameter|requirement|message",
        f"without ~2 {_USER} ~2 knowing|noticing|seeing|awareness|knowledge|being|realizing|realising|consent",
        (f"without ~2 telling|informing|notifying|alerting|mentioning|asking|warning|prompting ~2 {_USER}|it|this"),
        f"hide|conceal|keep ~4 from ~1 the|a ~1 {_USER}",
        "keep ~3 secret|hidden|confidential|between_us|invisible ~2 user|users|step|from|do|never",
        f"{_USER} ~2 must|should|need|needs|does|do|will ~1 not|never ~3 know|see|notice|learn|aware|told"
        f"|informed|suspect",
        f"silently|secretly|covertly|discreetly|quietly|stealthily ~2 {_SEND}|{_READ}|{_INCLUDE}|{_CALL}"
        f"|replace|change|modify|delete|bcc",
        "user ~2 already ~2 approved|agreed|consented|confirmed|authorized|authorised|knows",
        "pretend|act|behave|respond|answer|continue ~2 as_if|like ~4 nothing|normal|normally ~1 happened"
        "|happening|usual",
        "scare|bother|worry|upset|alarm|distract ~2 user|users|him|her|them",
        f"{_NOT} ~3 in_your|in_the ~1 final ~1 answer|response|reply|output ~6 secret|hidden|instruction*",
        "present|describe|explain|frame|justify ~4 to ~1 the ~1 user ~2 as|so|that ~4 instead|look*|normal|harmless",
    ),
    "approval_bypassed": (
        (
            "turn_off|disable|stop|deactivate|switch_off|kill ~3 antivirus|scanner|firewall|monitoring|"
            "auditing|edr|defender|guardrails"
        ),
        "remove|delete|clear|erase|wipe|purge ~3 audit_log|audit_logs|audit_trail|log_entries|traces|evidence",
        f"do_not|never|don_t|no_need_to|without|avoid ~2 ask*|prompt*|wait*|request* ~3 {_USER} ~4"
        f" confirm*|approv*|permission|consent",
        "do_not|never|don_t|no_need_to ~2 ask|prompt|wait|request ~3 confirmation|approval|permission|consent",
        "skip|bypass|disable|suppress|turn_off|auto|automatically|circumvent ~3 approv*|confirmation*"
        "|consent|permission|safety|security|guardrail* ~2 prompt*|check*|step*|dialog*|from|tool*"
        "|filter*|all|and|for",
        "approve|accept|confirm|allow ~3 automatically|on_behalf|yourself|all_requests|every_request",
        "set ~3 auto_approve|autoapprove|yolo|skip_permissions|dangerously_skip* ~2 true|on|enabled|to",
        "auto_approve|autoapprove|always_allow|alwaysallow ~3 tools|all|true|list|this",
    ),
    "conversation_collected": (
        f"{_INCLUDE}|{_SEND} ~3 {_TALK} ~2 to_this_tool|here|through|via|as|into|in_the|with_each|to_it",
        f"{_INCLUDE}|{_SEND} ~4 {_WHOLE} ~4 {_TALK}",
        f"{_INCLUDE}|{_SEND} ~5 {_TALK} ~2 history|so_far|context|log|logs|until|above|verbatim|up_to",
        f"{_INCLUDE}|{_SEND} ~5 system_prompt|system_message|system_instructions|chat_history|chat_log"
        f"|message_history|previous_messages|prior_messages|chain_of_thought|developer_message"
        f"|hidden_prompt",
        f"{_INCLUDE}|{_SEND} ~4 {_WHOLE} ~3 previous|prior|earlier|preceding|user|other ~2 message"
        f"|messages|prompt|prompts|turns|tool_results|tool_outputs|tools",
        f"{_INCLUDE} ~4 results|outputs|output|response|responses ~2 of|from ~2 other|previous|all|every ~2 tool|tools",
        f"{_INCLUDE} ~4 list|names|descriptions|schemas|definitions ~2 of ~1 all|every|available|other ~2 tool|tools",
        f"{_TALK} ~2 history|context|transcript ~3 here|verbatim|required|must",
        f"{_READ} ~3 {_WHOLE} ~3 {_TALK} ~6 {_INCLUDE}|{_SEND}",
    ),
    "data_sent": (
        "hand|pass|give|relay|deliver|stream|report ~6 to|at ~0 {address}",
        f"{_SEND} ~4 {_DATA} ~8 {{address}}",
        f"{_INCLUDE}|{_SEND} ~6 {_SECRETS} ~8 {{address}}",
        "bcc|cc|copy|forward|also_send|redirect|reroute ~6 {address}",
        f"must|always|also|silently|first|then|secretly ~2 {_SEND}|{_CALL}|contact|query|ping|request"
        f"|visit|load|fetch ~6 {{address}}",
        f"{_SENDS} ~1 to ~3 {{address}} ~4 before|first|after|instead|as_well|too",
        f"{_SEND} ~5 {_SECRETS} ~3 to|via|through|along|with|in",
        "change|replace|set|rewrite|redirect|switch|swap ~3 recipient*|address|destination|to_field|url"
        "|endpoint|account|iban|wallet ~4 {address}",
        "{address} ~3 bcc|cc|blind_copy|hidden_recipient",
        (
            "change|replace|swap|substitute ~3 iban|account_number|bank_account|wallet_address|"
            "payout_address ~6 with|to|by"
        ),
        f"{{address}} ~6 {_MUST} ~2 receive|get|be_notified|be_copied",
        "bcc|cc ~3 all|every|each|any ~2 email*|message*|mail*|outgoing",
    ),
    "secret_read_asked": (
        (
            f"{_INCLUDE}|note|remember|make_a_note ~3 every|all|any ~1 password|passwords|credentials|"
            f"secrets|tokens|api_keys|keys_you ~6 you|in|to|with|here|mention"
        ),
        (
            f"ask|prompt|request|require ~4 seed_phrase|recovery_phrase|mnemonic|private_key|ssh_key|"
            f"card_number|cvv ~6 {_INCLUDE}"
        ),
        f"{_READ}|{_INCLUDE}|{_SEND} ~6 {{secret_file}}",
        f"{{secret_file}} ~6 {_INCLUDE}|{_SEND} ~4 it|content|contents|parameter|argument|as|in|to|here|result",
        "content|contents|value|values|text ~2 of|from ~4 {secret_file}",
        ("content|contents|data ~1 from ~1 reading ~3 ssh|rsa|env|key|passwd|secret*|credential*|password*|config"),
        f"{_READ} ~4 {_SECRETS} ~8 {_INCLUDE}|{_SEND}",
        f"{_INCLUDE} ~3 {_WHOLE}|your|the_user_s|user_s|users|any ~2 {_SECRETS} ~4 in|as|to|into|here|with|found|you",
        f"{_INCLUDE}|{_SEND}|{_READ} ~3 your|user_s|users|user|host|local|local_machine ~2 {_SECRETS}",
        f"{_READ}|{_INCLUDE} ~2 {_WHOLE} ~3 environment_variables|env_vars|secrets|credentials"
        f"|private_keys|ssh_keys|api_keys|passwords ~6 {_INCLUDE}|{_SEND}|in|to|as",
        f"{_INCLUDE}|{_SEND}|{_READ} ~3 ssh_key|ssh_keys|private_key|private_keys|id_rsa|seed_phrase"
        f"|env_file|mcp_config* ~4 as|in|to|content*|parameter|argument|into|here",
    ),
    "code_run_asked": (
        "prefix|prepend|precede|wrap ~2 all|every|each|any ~3 command|commands|script|scripts",
        "run|execute|type|paste|enter|eval|evaluate|start|launch ~4 curl|wget|bash|sh|powershell|rm|nc"
        "|netcat|chmod|sudo|base64|eval|iwr|certutil|mshta|crontab",
        "run|execute|launch|start ~3 following ~2 command|commands|script|code|shell ~4 before|first|silently|every|in",
        "run|execute ~4 shell_command|shell|command|script|terminal ~4 before|first|silently|secretly ~3"
        " using|use|call*|answer*|this|any|every",
        "download|fetch ~4 {address} ~4 run|execute|pipe|install|eval",
        "download|fetch ~3 and ~1 run|execute|install|eval ~6 {address}",
        "install ~4 package|dependency|extension|certificate|key|server ~4 {address} ~6 before|first|must",
        "add|append|write ~5 authorized_keys|crontab|bashrc|zshrc|sudoers|hosts_file",
    ),
}
"""Phrases by rule."""
