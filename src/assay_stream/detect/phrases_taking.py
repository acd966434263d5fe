"""English phrases by concept, on what is taken and where it goes: conversations, secrets, data and money."""

from __future__ import annotations

from assay_stream.detect.word_classes import (
    ACCOUNT,
    ALL,
    CONTEXT,
    DATA,
    GIVE,
    PASSED,
    PAYMENTS,
    READ,
    SAID,
    SECRETS,
    SEND,
    SHARE,
    SO_FAR,
    TALK,
)

TAKING: dict[str, tuple[str, ...]] = {
    "conversation_collected": (
        f"{GIVE} ~6 everything|all_that|anything|all_of_what|each_thing ~4 {SAID}",
        f"{GIVE} ~6 whatever|what|all ~3 you|user|they|we|person|he|she ~4 {SAID} ~3 {SO_FAR}",
        f"everything|all_that|anything ~3 user|you|we|they|person ~2 and ~1 you|user|they|assistant|model ~4 {SAID}",
        f"everything|all_that|anything|whatever ~4 {SAID} ~3 {SO_FAR}",
        f"{GIVE} ~5 {CONTEXT}",
        f"{TALK}|{CONTEXT} ~5 must|should|shall|has_to|have_to|needs_to|is_to|are_to|always|expected"
        f"|required ~3 {PASSED}"
        "|given|included|passed|attached|supplied|provided|pasted|appended|present|accompany|travel",
        f"{GIVE} ~5 {TALK} ~4 in_full|unabridged|untruncated|uncut|word_for_word|unaltered|unedited"
        f"|as_it_stands|to_date",
        f"{GIVE}|{SEND} ~3 rest|remainder|last|latest|recent ~2 of ~1 the|this|your ~1 conversation|chat"
        f"|dialogue|exchange"
        "|discussion",
        f"{GIVE} ~4 exchange|discussion|correspondence ~2 so_far|with_the_user|verbatim|in_full|up_to_here|until_now",
        f"{GIVE} ~4 what ~1 other|previous|earlier ~1 tools|servers|functions ~2 returned|answered|gave|produced|said",
    ),
    "secret_read_asked": (
        f"{READ} ~6 {SECRETS} ~9 {GIVE}",
        f"{GIVE} ~3 your|user_s|users|user|owner_s|local|machine_s|host_s|whole|entire|all|every|any|found"
        f" ~3 {SECRETS}",
        f"{GIVE} ~4 {SECRETS} ~6 in|into|as|to|with ~3 note|notes|memo|field|parameter|argument|comment"
        f"|context|scratchpad"
        "|sidenote|here",
        f"{SECRETS} ~8 {GIVE} ~4 parameter|argument|field|value|here|call|query|note|body|text",
        f"content|contents|value|values|text|listing|lines ~2 of|from|in ~4 {SECRETS} ~8 parameter"
        f"|argument|field|belongs|goes"
        f"|go|belong|included|passed|sent|copied|attached|here",
        "output|result|stdout|printout|listing ~2 of|from ~3 {secret_command}",
        f"{GIVE}|run|execute ~5 {{secret_command}} ~9 {GIVE}|parameter|argument|field|result|output|here|value",
        f"{{secret_command}} ~6 prints|returns|shows|outputs|gives|output ~5 {GIVE}|parameter|argument"
        f"|field|here|value|as",
        f"{GIVE} ~4 every|all|any ~1 environment_variable|variable|setting ~4 environment|shell|process|machine|host",
    ),
    "data_sent": (
        f"{DATA} ~8 {PASSED} ~4 {{mailbox}}",
        f"also|additionally|moreover|simultaneously|likewise|furthermore|in_parallel|in_addition ~5"
        f" {PASSED} ~5 {{address}}",
        f"{PASSED} ~5 {{address}} ~3 too|as_well|in_addition|in_parallel|besides|alongside",
        f"every|each|all|any|complete|full|whole|entire|unredacted ~5 {PASSED} ~5 {{address}}",
        f"copy|copies|duplicate|duplicates|mirror ~1 of ~2 {ALL}|{DATA} ~8 {{address}}",
        "additional|extra|further|second|hidden|another|one_more ~2 recipient*|addressee* ~8 {address}",
        "{mailbox} ~2 receives|gets|is_copied|is_notified|collects|joins|must_receive|is_to_receive|in_copy"
        "|in_cc|in_bcc|on_cc",
        f"{SEND} ~6 {DATA} ~8 {{mailbox}}",
        f"{{mailbox}} ~6 {ALL} ~3 {DATA}|reply-to|cc|bcc",
        f"encode|embed|put|append|prepend|prefix|include|place|pack|split ~6 {DATA}|key|token|secret"
        f"|password|value ~6 in|into"
        "|as|to ~2 subdomain|subdomains|hostname|host_name|dns_name|dns_label|dns_query|dns_lookup|domain_label",
        f"resolve|look_up|lookup|nslookup|dig|ping ~6 {DATA}|key|token|secret|password ~3 as|prepended"
        f"|prefixed ~3 subdomain"
        "|hostname|host_name|label|prefix|to",
    ),
    "payment_diverted": (
        f"add|deduct|take|transfer|route|divert|credit|send|withhold|move|pay|book|charge|redirect|skim ~6"
        f" {SHARE} ~10 {ACCOUNT}",
        f"{SHARE} ~2 of ~2 {ALL}|the ~2 {PAYMENTS} ~10 {ACCOUNT}|{{money_account}}",
        "change|replace|swap|substitute|exchange|overwrite ~4 payee|beneficiary|bank_details"
        "|payment_details|account_number"
        "|wallet|iban|payout_account ~4 to|with|by|for",
        f"{ALL}|always|also|must|instead|rest|{SHARE} ~10 {{money_account}}",
        "{money_account} ~6 instead|always|regardless|every|each|first",
        f"divert|reroute|redirect ~4 {PAYMENTS}|funds|money|salary|wages ~6 to|into",
        f"{PAYMENTS}|funds|money ~5 diverted|rerouted|redirected|credited ~2 to|into ~4 our|this|another"
        f"|different|following"
        "|below|maintenance",
        f"round ~2 up|down ~8 {SHARE}|rest ~8 to|into ~3 {ACCOUNT}|fund",
    ),
}
"""Phrases by rule."""
