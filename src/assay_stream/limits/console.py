"""Bounds of the console."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleLimits:
    """Bounds of ``console``."""

    filler_pause_first_s: float = 1.0
    """Before filling the store is tried again after a failure; each further failure in a row doubles it."""

    filler_pause_max_s: float = 60.0
    """The longest such pause; after a run that was longer, pauses start over."""

    threads: int = 4
    """Questions that the store is asked at once. Each has a connection of its own and its pages in memory."""

    questions_max: int = 32
    """Questions asked or waiting; further pages get 503. At the time limit of each, the last waits half a minute."""

    operator_questions_max: int = 8
    """Those of one person who is signed in: a browser asks six at once."""

    question_limit_s: float = 4.0
    """How long SQLite may work for one page: forty times what a search takes in a store of a million calls."""

    steps_between_looks: int = 10_000
    """Steps of SQLite's machine between two looks at the clock: about a millisecond."""

    rows: int = 50
    """Rows of a page: two or three screens."""

    few_rows: int = 10
    """Rows of a table that is not what its page is about; a link leads to all of them."""

    trace_rows: int = 200
    """Calls of one trace that are shown."""

    streams_max: int = 32
    """Pages that are kept up to date at once, each with a connection; further ones are not."""

    operator_streams_max: int = 8
    """Those of one person who is signed in; a browser keeps six."""

    store_fresh_s: float = 30.0
    """How old the answer of the brokers may be by which the store is up to date."""

    look_every_s: float = 1.0
    """Between two looks whether the store has changed, one for all pages."""

    beat_every_s: float = 15.0
    """Between two signs of life on a connection: proxies close one that is silent for a minute."""

    form_bytes_max: int = 256 * 1024
    """What a form may post: a decision on every row of a page, with long names."""

    form_fields_max: int = 1_000
    """Fields of a form: a few for each row of a page."""

    subjects_max: int = 50
    """Alerts or tools that one form decides on: what a person can look through, and an address can hold."""

    review_definition_bytes_max: int = 64 * 1_024
    """The longest definition whose changes stand in the queue: some thirty times an ordinary one. Comparing two takes a
    tenth of a second; longer ones stand on the page of their alert."""

    form_limit_s: float = 10.0
    """How long a browser may take to send a form."""

    sessions_max: int = 1_000
    """Sessions that are kept, a few hundred bytes each."""

    operator_sessions_max: int = 10
    """Sessions of one operator: nobody can end those of others by signing in again and again."""

    session_idle_s: int = 3_600
    """After how long without a page a session is over."""

    session_s: int = 12 * 3_600
    """After how long a session is over however much it was used: a long shift."""

    sign_in_window_s: int = 900
    """For how long failed attempts to sign in are counted."""

    user_attempts_max: int = 10
    """Of one name in that time, from one address or one browser that has signed it in before."""

    source_attempts_max: int = 50
    """From one address in that time: an office of people behind one who mistype."""

    strangers_attempts_max: int = 100
    """Of one name in that time, from all browsers that have not signed it in before: many addresses guess together."""

    device_s: int = 90 * 24 * 3_600
    """How long a browser keeps what shows that it has signed somebody in before."""

    password_chars_min: int = 12
    """Of a new password: it is all there is between the network and the right to decide."""

    password_chars_max: int = 1_024
    """Longer ones are refused unhashed."""

    hashing_threads: int = 2
    """Passwords checked at once, each with 64 MiB."""

    hashing_max: int = 16
    """Passwords checked or waiting; further attempts get 503. The last waits for half a second."""

    hashing_kib_passes_max: int = 16 * 1024 * 1024
    """The costliest hash that is checked, KiB of memory times passes: some ten seconds."""

    provider_limit_s: float = 10.0
    """How long the provider of identities may take for one answer."""

    provider_bytes_max: int = 256 * 1024
    """What it may answer; its keys have a few kilobytes."""

    provider_keep_s: int = 3_600
    """After how long its addresses and keys are read again."""

    provider_pause_s: int = 5
    """After how long one that failed is asked again."""

    provider_again_s: int = 30
    """Between two looks for a key that is not known: nobody can make the console flood it."""

    pending_s: int = 600
    """How long somebody may be with the provider."""

    clock_skew_s: int = 60
    """What its clock and ours may differ."""

    identity_chars_max: int = 200
    """Characters of a name that a proxy or provider gives; authors of decisions have few more."""

    decisions_waiting_max: int = 16
    """Forms whose decisions are being published, or wait for their turn; further ones get 503."""

    decision_limit_s: float = 15.0
    """How long Kafka may take to acknowledge the decisions of a form while somebody looks at a blank page."""


CONSOLE_LIMITS = ConsoleLimits()
