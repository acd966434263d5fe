"""Who uses the console."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """Somebody who signed in.

    Args:
        name: with how it is known, such as ``oidc:alice@example.com``: the author of what they decide.
        may_decide: whether they may do more than look.
    """

    name: str
    may_decide: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What pages know of a session.

    Args:
        csrf_token: what each form of the session holds, in its field ``csrf``.
        can_sign_out: whether that is done here, and not at a proxy.
    """

    operator: Operator
    csrf_token: str
    can_sign_out: bool = True
