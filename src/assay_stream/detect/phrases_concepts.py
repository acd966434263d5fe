"""English phrases by concept, on who is to be obeyed and who is not to know: any words, active or passive.

``introduced_phrases`` holds what attacks were seen to say. Here stand the ideas behind it (an order is void, this
goes first, nobody is to know, nobody is asked), so that other words for the same idea are found as well. What is
taken and where it goes stands in ``introduced_phrases_taking``.
"""

from __future__ import annotations

from assay_stream.detect.word_classes import (
    ALL,
    CALL,
    CONSENT,
    EARLIER,
    GIVE,
    NEEDED,
    ORDERS,
    PASSED,
    READ,
    SEND,
    SET_ASIDE,
    STEALTHY,
    TOLD,
    TOOLS,
    USER,
    VOID,
)

CONCEPTS: dict[str, tuple[str, ...]] = {
    "instructions_overridden": (
        f"{EARLIER} ~3 {ORDERS} ~5 {VOID}",
        f"{ORDERS} ~3 received|given|issued|stated|set ~3 before|earlier|previously|elsewhere|above ~5 {VOID}",
        f"treat|consider|regard|deem|count|view ~4 {ORDERS} ~4 {VOID}|optional|advisory|irrelevant|suggestions",
        f"{SET_ASIDE} ~4 {EARLIER} ~2 {ORDERS}|rules|policy|policies",
        f"{SET_ASIDE}|ignore|forget|disregard ~4 you ~3 told|instructed|taught|directed|trained",
        "text|description|note|message|paragraph|this ~2 replaces|overrides|supersedes|outranks|cancels"
        "|trumps ~4"
        f" {EARLIER} ~2 {ORDERS}",
        f"what|whatever|anything|everything|all ~2 you ~3 told|instructed ~3 earlier|before|previously"
        f"|so_far ~6 {VOID}",
        f"you|assistant|agent|model ~2 exempt|released|freed|excused|not_bound|no_longer_bound|unbound ~2"
        f" from|by ~4"
        f" {ORDERS}|rules|policy|policies|restriction*",
        f"{ORDERS}|rules|policies ~2 do|does|did|will ~1 not|never ~1 apply|bind|count|hold ~2 to|for|here"
        f"|you|while|any",
        f"{ORDERS}|rules|policies ~5 no_longer ~2 bind|binds|apply|applies|count|counts|hold|matter"
        f"|concern ~2 you|here|while"
        "|to|for",
    ),
    "priority_claimed": (
        "start|begin|open|kick_off ~4 with|by ~2 me|this_tool|this_one|this_function ~3 before|always|ahead"
        "|first|every|each",
        "begin|start|open ~2 every|each|any ~1 session|conversation|turn|chat|reply|answer ~3 by|with ~2"
        " run|running|call|calling"
        "|invoking|this_tool|using",
        "nothing_else|none_of_the_others|no_one_else ~4 succeed|succeeds|work|works|function|functions"
        "|respond|responds|run|runs"
        "|load|loads|available|happens|happen ~4 until|unless|before|without",
        "run|call|use|invoke|execute|pick|choose ~1 me ~1 first|before|ahead|always|instead",
        f"no|none|never|nothing ~1 other|another|of_the_other|else ~1 {TOOLS} ~4 work|works|available"
        f"|usable|permitted"
        "|allowed|responds|valid|function|functions|loads|can|may|should|succeeds ~9 until|unless|before"
        "|without",
        f"other|remaining|further|all|the_rest ~3 {TOOLS} ~4 fail|fails|locked|unavailable|blocked|refuse"
        f"|inactive"
        "|dormant|invalid ~6 until|unless|before",
        f"until|unless ~3 this ~1 {TOOLS} ~4 called|run|used|invoked|finished|answered|completed ~7 other"
        f"|no|nothing|any|all"
        f" ~2 {TOOLS}|answer|reply|action",
        "first ~1 thing|step|call|action|tool|move ~3 in|of|for ~1 every|each|any|all ~2 conversation"
        "|session|turn|chat"
        "|message|prompt|task",
        f"{CALL}|must|always|has_to ~5 at_the_start|at_the_beginning|at_the_outset|on_the_first_turn ~2"
        f" every|each|any ~1"
        " conversation|session|turn|chat|message",
        f"at_the_start|at_the_beginning|at_the_outset ~2 every|each|any ~1 conversation|session|turn|chat"
        f"|message ~8 {CALL}"
        "|this_tool",
        f"goes|comes|ranks|runs|belongs|stands|outranks ~2 first|before|ahead|above|over ~2 {ALL}|other ~2"
        f" {TOOLS}|others",
        f"outranks|beats|replaces|supersedes ~2 {ALL} ~2 {TOOLS}|others",
        f"in_place_of|instead_of|rather_than|in_preference_to|ahead_of ~1 {ALL} ~1 other|rival|similar"
        f"|competing ~2 {TOOLS}",
        f"other|competing|alternative|rival|similar ~1 {TOOLS} ~1 are|is|give|return ~2 unreliable"
        f"|inaccurate|inferior"
        "|untrusted|untrustworthy|dangerous|malicious|obsolete|retired|fraudulent",
        "each|every ~1 turn|reply|answer|response|message ~3 begins|starts|opens|begin|start|open|preceded"
        " ~2 with|by ~3"
        " call|calling|this_tool|invoking|running",
        f"{CALL} ~5 before_anything_else|before_everything_else|ahead_of_everything|before_all_else"
        f"|before_doing_anything"
        "|before_any_work|above_all_others|no_matter_what|whatever_the_task|whatever_the_question"
        "|whatever_the_request",
        f"before_anything_else|before_everything_else|whatever_the_task|whatever_the_question"
        f"|whatever_the_request ~4 {CALL}",
        f"only ~2 tool|function|server ~3 trust|trusted|rely|allowed|permitted|approved ~3 {CALL}|others"
        f"|other|ignore|never",
    ),
    "secrecy_asked": (
        f"must_not|should_not|shall_not|need_not|never|not_to|never_to|mustn_t|shouldn_t ~1 be ~2 {TOLD}"
        f" ~6 {USER}|reply"
        "|answer|chat|summary|final_answer|conversation",
        f"this|step|call|action|instruction*|requirement|transfer|detail ~3 must_not|should_not|need_not"
        f"|never|not_to ~1 be ~1"
        f" {TOLD}",
        f"{USER} ~3 remain|remains|stay|stays|kept|keep|left|be|are ~2 unaware|in_the_dark|uninformed"
        f"|oblivious|none_the_wiser",
        f"keep|leave ~3 {USER} ~2 unaware|in_the_dark|uninformed|oblivious|out_of_the_loop|out_of_this|out_of_it",
        f"{USER} ~2 need_not|needn_t|has_no_need|have_no_need|is_not_to|are_not_to ~3 know|hear|see|aware"
        f"|told|informed"
        "|bothered|notified",
        f"no_need|not_necessary|no_reason|unnecessary|pointless ~3 tell|telling|inform|informing|mention"
        f"|mentioning|notify|alert"
        f"|bother|trouble|involve|say|explain ~5 {USER}|this|it",
        "stays|stay|remain|remains|keep|kept|just|strictly ~4 between_us|between_ourselves|among_us"
        "|between_you_and"
        "|off_the_record|under_wraps|hush_hush",
        "leave|make|give|include|contain|contains|with ~2 no_mention|no_trace|no_reference|no_hint|no_word"
        "|no_sign ~2 of|to"
        "|about ~4 this|these|that|step|call|instruction*|tool|reply|answer|final_answer|summary",
        f"keep|kept|stay|stays|leave|left ~4 out_of_sight|out_of_the_reply|out_of_the_answer"
        f"|out_of_the_summary|out_of_view"
        f"|out_of_the_transcript|hidden_from|away_from|concealed ~5 {USER}|reply|answer|summary|this|it",
        f"{STEALTHY} ~3 {PASSED}|{SEND}|{READ}|{GIVE}",
        f"{SEND}|{PASSED} ~7 {STEALTHY}|without_a_word|without_comment|without_remark|without_mention|on_the_quiet",
        f"behind ~3 {USER}|users|user_s|their ~1 back|backs",
        f"{USER} ~2 never|not ~3 find_out|learn_of|hear_about|hear_of|become_aware|get_wind",
        "omit|exclude|suppress|strip|drop|scrub|remove ~4 this|step|call|it|these|mention|instruction* ~3"
        " from ~3 reply|answer"
        "|summary|response|chat|transcript|explanation|what_you",
    ),
    "approval_bypassed": (
        f"{CONSENT} ~3 not|never|no_longer|neither|isn_t|aren_t ~3 {NEEDED}",
        f"no ~2 {CONSENT} ~3 {NEEDED}",
        f"{CONSENT}|permission ~3 presumed|assumed|implied|given_in_advance|granted_in_advance"
        f"|already_given|waived|implicit"
        "|already_granted|on_file|unnecessary|superfluous|redundant|pointless|taken_for_granted|as_given",
        f"assume|presume|take_for_granted|take_as_given|treat_silence_as ~4 {CONSENT}|permission|agreement"
        f"|agrees|consents"
        "|approves",
        f"proceed|continue|carry_on|act|move_on|press_on|go_on ~5 without ~4 {CONSENT}|permission|asking"
        f"|confirming|prompting"
        "|pausing|checking|consulting",
        f"do_not|don_t|never|no_need_to|needn_t ~2 pause|stop|hesitate|wait|hold|check|seek|look|consult"
        f"|obtain ~5 {CONSENT}"
        "|confirm|permission|approve|ok",
        f"{USER} ~3 need_not|needn_t|should_not|must_not|is_not_to|are_not_to|never ~2 be ~1 asked"
        f"|prompted|consulted|queried",
        "answer|reply|click|select|press|choose|say ~2 yes|accept|allow|approve ~5 prompt*|dialog*"
        "|confirmation*|behalf"
        "|automatically|any_question|every_question|whenever",
        f"waive|waives|forgo|dispense_with|do_without|do_away_with ~3 {CONSENT}|permission|human_review|review_step",
    ),
    "other_tool_steered": (
        f"once|after|when|whenever|as_soon_as|each_time|every_time ~3 {{tool}} ~3 returns|finishes"
        f"|completes|is_called|runs"
        f"|succeeds|is_used|was_used|answers ~6 {GIVE}|{SEND}|{CALL}|add|change|replace",
        "argument|arguments|parameter|parameters|body|recipient|recipients|subject ~2 of|for|in ~2"
        " {tool} ~4 must|should"
        "|always|also|is_to|are_to|has_to|have_to",
        f"{ALL}|any ~3 {{tool}} ~4 must|should|has_to|have_to|is_to|are_to|shall ~4 {PASSED}|include"
        f"|carry|contain|go|pass",
    ),
    "model_commanded": (
        "non_compliance|noncompliance|refusal|refusing|disobedience ~6 will|result*|lead*|cause*|breaks|terminates",
        "assistant|ai|model|llm|agent ~3 reading|processing|parsing|sees|reads|encounters ~3 this|these ~8"
        " must|shall|should|has_to"
        "|is_to|obey|comply|follow",
        "your ~2 duty|obligation|overriding_task|overriding_goal|top_priority|sole_task ~2 is|now",
        "you ~1 are|have_been ~1 hereby|now ~2 authorized|authorised|instructed|ordered|required|directed"
        "|obliged|reassigned",
        "obey|heed ~3 this|these|following|below|every ~3 instruction*|directive*|order|orders|command*"
        "|line|lines|text",
    ),
    "code_run_asked": (
        "open|start|use|launch ~3 terminal|shell|command_line|console|powershell ~8 type|enter|paste|run"
        "|execute ~5 following|this"
        "|curl|wget|bash|sh|python|line",
        "by_running|by_executing|by_launching|by_pasting|by_typing ~5 curl|wget|bash|sh|powershell|iwr|eval"
        "|base64|nc|osascript"
        "|certutil|mshta",
        "script|binary|executable|package|installer|payload|command ~4 {address} ~6 executed|run|installed"
        "|launched|evaluated|piped",
        "run|execute|launch|install|eval|evaluate ~3 script|binary|executable|package|installer|payload"
        "|code ~4 {address}",
    ),
}
"""Phrases by rule."""
