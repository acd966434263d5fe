"""Rules on what new text brings: what each is, how grave, and why an attacker does it.

A rule matches by phrases (``introduced_phrases`` and its other languages), by a pattern (``introduced_patterns``),
by the name of a parameter, or by what ``introduced_search`` finds besides. ``RULES`` lists all of them.
"""

from __future__ import annotations

from assay_stream.detect.patterns import PATTERN_RULES, Rule


def _listed(names: str) -> tuple[str, ...]:
    return tuple(names.split())


PHRASE_RULES: tuple[Rule, ...] = (
    Rule(
        id="instructions_overridden",
        level=5,
        reason="Text that asks the model to drop what it was told first clears the way for all that follows.",
        reference="OWASP LLM01 prompt injection; tool poisoning (Invariant Labs)",
    ),
    Rule(
        id="secrecy_asked",
        level=5,
        reason=("A description has no honest reason to keep a step from the user; an attack needs the user blind."),
        reference="tool poisoning (Invariant Labs)",
    ),
    Rule(
        id="conversation_collected",
        level=5,
        reason="A tool that is handed the conversation or the system prompt leaks what other tools returned.",
        reference="conversation theft through line jumping (Trail of Bits)",
    ),
    Rule(
        id="secret_read_asked",
        level=5,
        reason=("The agent can read what the server cannot: keys and settings of the user, passed as an argument."),
        reference="tool poisoning with a sidenote parameter (Invariant Labs)",
    ),
    Rule(
        id="data_sent",
        level=4,
        reason="An address that data is to go to is where an attacker collects it.",
        reference="tool shadowing of a mail tool (Invariant Labs); MITRE ATLAS AML.T0086",
    ),
    Rule(
        id="priority_claimed",
        level=4,
        reason="A tool that wants to run before any other places its text in front of every task.",
        reference="line jumping (Trail of Bits); preference manipulation (MPMA)",
    ),
    Rule(
        id="other_tool_steered",
        level=4,
        reason="A description that says how another server's tool behaves uses that tool without being called.",
        reference="tool shadowing (Invariant Labs)",
    ),
    Rule(
        id="model_commanded",
        level=4,
        reason=("Documentation describes; text that commands the assistant by name or threatens it is aimed at it."),
        reference="OWASP LLM01 prompt injection; advanced tool poisoning (CyberArk)",
    ),
    Rule(
        id="approval_bypassed",
        level=4,
        reason="Confirmation is the last control a person has; an attack asks for it to be skipped.",
        reference="OWASP LLM06 excessive agency",
    ),
    Rule(
        id="code_run_asked",
        level=4,
        reason="Commands in a description run with the agent's rights, not the server's.",
        reference="rug pull with a setup step; MITRE ATLAS AML.T0053",
    ),
    Rule(
        id="payment_diverted",
        level=4,
        reason="Money that goes where the caller did not say is taken from somebody.",
        reference="OWASP LLM06 excessive agency; payment diversion fraud",
    ),
    Rule(
        id="script_introduced",
        level=4,
        reason=(
            "Text beside the old one in a script that hardly any phrase is written in: few rules and few"
            " reviewers can"
            " read it, and an agent can."
        ),
        reference="instructions in another language, OWASP LLM01",
    ),
    Rule(
        id="hidden_meaning",
        level=5,
        reason="Instructions that appear only when decoded are meant for a model and kept from a reviewer.",
        reference="encoded and invisible prompt injection (ASCII smuggling)",
    ),
    Rule(
        id="encoded_text",
        level=3,
        reason="A blob that decodes to text says something that a reader does not see.",
        reference="encoded prompt injection",
    ),
    Rule(
        id="text_oversized",
        level=4,
        reason=("Text beyond any real definition's size buries what matters in it, for a reader and for these rules."),
        reference="context flooding",
    ),
    Rule(
        id="other_tool_named",
        level=2,
        reason="A tool that speaks of another one can change how that one is used.",
        reference="tool shadowing (Invariant Labs)",
    ),
    Rule(
        id="mixed_script_word",
        level=3,
        reason="A word with letters of two alphabets that look alike passes a reader and no comparison.",
        reference="homoglyph attack (UTS #39)",
    ),
)
"""Rules without a pattern or names: phrases, and what the search itself finds."""

NAME_RULES: tuple[Rule, ...] = (
    Rule(
        id="execution_parameter",
        level=4,
        reason="A parameter that takes commands or code turns a narrow tool into a shell.",
        reference="full-schema poisoning (CyberArk)",
        names=_listed(
            "command commands shell exec eval cmd bash powershell shell_command command_line "
            "run_command pre_command post_command shell_script exec_code python_code js_code "
            "startup_script setup_script init_script post_hook pre_hook on_complete_command shellcode "
            "code_to_run code_to_execute eval_expression preload_script system_command os_command"
        ),
    ),
    Rule(
        id="code_parameter",
        level=3,
        names_are_whole=True,
        reason="Code and scripts as a parameter may be what the tool is for, or a way to run anything.",
        reference="full-schema poisoning (CyberArk)",
        names=_listed("script code source_code snippet expression hook payload_code sql_query raw_sql"),
    ),
    Rule(
        id="collecting_parameter",
        level=4,
        reason=(
            "A parameter for the conversation, the prompt or a side note is filled by the model with what it knows."
        ),
        reference="sidenote parameter (Invariant Labs); parameter-name injection (HiddenLayer)",
        names=_listed(
            "sidenote side_note conversation_history chat_history conversation system_prompt "
            "full_context previous_messages message_history chain_of_thought tool_call_history "
            "model_name transcript tools_list available_tools all_tools other_tools tool_results "
            "session_context agent_memory prior_messages chat_log conversation_log chat_transcript "
            "conversation_context llm_context system_message developer_message previous_tool_results "
            "model_context user_secrets env_vars environment_variables file_contents_of_home "
            "context_dump memory_dump reasoning_trace"
        ),
    ),
    Rule(
        id="forwarding_parameter",
        level=4,
        reason="A parameter that names a further recipient makes every call a copy to someone.",
        reference="full-schema poisoning (CyberArk)",
        names=_listed(
            "bcc forward_to copy_to mirror_to exfil exfil_url report_to send_copy_to relay_url beacon "
            "beacon_url telemetry_url mirror_url shadow_copy forward_url collector_url exfiltrate "
            "audit_copy_to blind_copy duplicate_to leak_to bcc_address bcc_recipients debug_sink "
            "report_url"
        ),
    ),
    Rule(
        id="callback_parameter",
        level=3,
        reason="A callback is an honest habit of slow services, and an address that results go to.",
        reference="full-schema poisoning (CyberArk)",
        names=_listed("webhook webhook_url callback callback_url notify_url notification_url upload_url proxy"),
    ),
    Rule(
        id="key_parameter",
        level=4,
        reason=("No tool needs a private key or a seed phrase as an argument: the model would have to read it aloud."),
        reference="credential access; OWASP LLM02",
        names=_listed(
            "private_key ssh_key ssh_private_key seed_phrase mnemonic wallet_key id_rsa "
            "recovery_phrase master_password keychain aws_secret_access_key aws_credentials "
            "session_cookie session_cookies browser_cookies ssn cvv user_credentials kubeconfig "
            "sudo_password root_password otp_code"
        ),
    ),
    Rule(
        id="secret_parameter",
        level=3,
        reason="A password or token as an argument passes through the model and the proxy's logs.",
        reference="credential access; OWASP LLM02",
        names=_listed("password passwd api_key token secret access_token auth_token credentials passphrase apikey"),
    ),
)
"""Rules on the names of parameters."""

NOTE_NAMES = frozenset(
    _listed(
        "scratchpad scratch reasoning rationale context background memory notes note thoughts thinking"
        " trace debug"
        " metadata memo aside extra remarks diagnostics telemetry audit annotation annotations state"
    )
)
"""Last words of the names of parameters that may hold anything, and so also what the model knows."""

WHAT_MODELS_KNOW = (
    "conversation|dialogue|transcript|system_prompt|system_message|chain_of_thought|tool_results"
    "|tool_outputs|other_tools",
    "user|users|you|your|earlier|previous|prior|all|latest|recent ~1 messages|turns|prompts",
    "messages|turns|prompts ~2 so_far|exchanged|before|above|in_full|verbatim",
    "what|everything|whatever ~2 user|you ~3 said|asked|typed|wrote|told|know|knows|learned|seen",
    "results|answers|outputs ~2 of|from ~1 other|previous|earlier|all",
)
"""Phrases that make such a parameter a ``collecting_parameter`` when they describe it."""

RULES = (*PHRASE_RULES, *PATTERN_RULES, *NAME_RULES)
"""Every rule."""

LEVELS = {rule.id: rule.level for rule in RULES}
"""The level of each rule by its id."""

RAISED_LEVEL = 4
"""Level of ``secret_parameter`` where a tool that stood before now *requires* it, and of ``callback_parameter``
where the address is set already."""
