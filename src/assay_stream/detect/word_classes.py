"""Classes of English words that may stand for one another in a phrase of ``introduced_phrases_concepts``."""

from __future__ import annotations

EARLIER = "earlier|previous|prior|preceding|former|foregoing|original|initial|past|above|system|developer|operator_s"
ORDERS = (
    "instruction*|directive*|direction|directions|guidance|guideline*|briefing|orders|commandments|system_prompt"
    "|constraint*|safeguard*|guardrail*"
)
VOID = (
    "void|null|moot|obsolete|superseded|cancelled|canceled|revoked|suspended|lifted|withdrawn|overruled|annulled"
    "|nullified|rescinded|inapplicable|voided|overridden|outranked|dead|without_effect|of_no_effect|not_binding"
    "|not_apply|no_longer_count|no_longer_bind|no_longer_in_force|no_longer_in_effect|no_longer_relevant"
)
SET_ASIDE = (
    "set_aside|put_aside|abandon|dismiss|pay_no_attention|pay_no_heed|give_no_weight|stop_following"
    "|cease_following"
    "|depart_from|deviate_from|unlearn|throw_away|throw_out|drop|let_go_of|do_not_honor|do_not_honour"
)
USER = "user|users|human|humans|person|people|customer|operator|owner|anyone|anybody|nobody|them"
CALL = "call|use|invoke|run|execute|consult|query|start_with|begin_with|launch|trigger"
TOOLS = "tool|tools|function|functions|one|ones|server|servers|tool_call|tool_calls"
ALL = "every|each|any|all"
TOLD = (
    "mentioned|shown|told|revealed|disclosed|reported|displayed|surfaced|communicated|announced|explained"
    "|discussed"
    "|acknowledged|brought_up|talked_about|described|made_visible|exposed|noted|divulged"
)
STEALTHY = (
    "silently|secretly|covertly|discreetly|stealthily|invisibly|surreptitiously|inconspicuously|unobtrusively"
    "|noiselessly|imperceptibly"
)
PASSED = (
    "sent|forwarded|delivered|copied|mirrored|relayed|transmitted|posted|uploaded|submitted|shared|emailed"
    "|mailed"
    "|pushed|streamed|duplicated|dispatched|conveyed|channelled|channeled|replicated|shipped|disclosed|routed"
    "|reported|logged|synced|backed_up|archived|redirected|piped|handed"
)
SEND = (
    "send|forward|deliver|copy|mirror|relay|transmit|post|upload|submit|share|email|mail|push|stream|duplicate"
    "|dispatch|convey|channel|replicate|ship|disclose|route|report|sync|redirect|pipe"
)
GIVE = (
    "include|pass|provide|put|place|copy|paste|append|attach|insert|fill|embed|supply|write|quote|hand"
    "|prepend|dump"
    "|reproduce|transcribe|recount|recite|relay|forward|send|upload|submit|share|carry|bring|capture|mirror|log"
    "|record|return|echo|note_down|write_down|let|spell_out|recap|repeat|encode|deposit|store|save"
)
CONSENT = "confirmation|confirmations|approval|approvals|consent|sign_off|go_ahead|assent"
NEEDED = "required|needed|necessary|wanted|sought|requested|desired|expected|called_for|asked_for|solicited|awaited"
SAID = "said|typed|wrote|written|asked|told|discussed|shared|entered|exchanged|uttered|talked|spoken"
SO_FAR = (
    "so_far|until_now|till_now|up_to_now|up_to_here|today|earlier|to_date|in_this_session|in_this_chat|word_for_word"
)
TALK = (
    "conversation|chat|chats|dialogue|dialog|transcript|discussion|whole_session|entire_session|whole_thread"
    "|entire_thread|chat_log|chat_history|message_history|system_prompt|system_message|hidden_prompt"
)
CONTEXT = (
    "context_window|conversation_context|full_context|your_whole_context|your_entire_context|your_instructions"
    "|your_system|your_prompt|initial_prompt|instructions_you_were|instructions_you_have|preceding_turns"
    "|previous_turns|earlier_turns|prior_turns|all_turns|working_memory|session_transcript|message_log"
    "|session_history|dialogue_history|conversation_log"
)
SECRETS = (
    "ssh_folder|ssh_directory|ssh_dir|ssh_key|ssh_keys|key_folder|keys_folder|aws_folder|aws_credentials"
    "|keychain"
    "|keychains|keyring|password_store|password_manager|password_vault|browser_profile|browser_profiles"
    "|browser_cookies|cookie_jar|cookie_store|saved_logins|saved_passwords|kubeconfig|kube_config|wallet_file"
    "|wallet_files|wallet_seed|wallet_keys|recovery_words|recovery_phrase|seed_words|seed_phrase|signing_key"
    "|signing_keys|deploy_key|deploy_keys|access_keys|bearer_token|session_cookie|session_cookies|auth_cookie"
    "|refresh_token|pem_file|pem_files|gpg_key|gpg_keys|shell_history|bash_history|terminal_history|env_file"
    "|dotenv|environment_dump|process_environment|environment_variables|private_key|private_keys|id_rsa"
    "|login_cookies|stored_passwords|cloud_credentials|login_credentials"
)
READ = (
    "read|open|load|cat|access|fetch|retrieve|get|print|collect|find|locate|look_in|look_into|look_at|grab"
    "|extract"
    "|gather|inspect|list|scan|go_through|search|check|dump|take|peek|obtain|acquire|pull|unlock|export"
    "|copy|capture|recover"
)
DATA = (
    "result|results|output|outputs|content|contents|response|responses|answer|answers|query|queries|argument"
    "|arguments|parameters|input|inputs|prompt|prompts|message|messages|draft|drafts|reply|replies|request"
    "|requests|copy|copies|email|emails|document|documents|call|calls|text|data|everything|file|files"
)
SHARE = "percent|percentage|share|fraction|cut|commission|portion|cents|surcharge|remainder|difference|rounding"
PAYMENTS = "payment*|transfer*|amount*|invoice*|transaction*|refund*|payout*|order|orders|purchase*|sum|donation*"
ACCOUNT = "account|iban|wallet|beneficiary|payee|bank_details|payment_details"
