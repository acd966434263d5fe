"""What happens after an attempt to deliver an alert: the rules, and the schedule of retries.

1. Taken: the alert is done.
2. Refused for good: the alert goes to the dead letters, and is done.
3. Anything else is the receiver's problem, not the alert's: the alert waits for as long as it takes. The n-th
   wait in a row is ``first_ms * 2**(n-1)``, ``longest_ms`` at most, and never shorter than the receiver asked for.

No clock and no jitter: the same outcomes give the same schedule.
"""

import hashlib
import hmac
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum

from assay_stream.errors import AssayStreamError
from assay_stream.model.record import Output, Record, Role, rejected

RETRY_AFTER_MAX_MS = 3_600_000
"""A receiver cannot make us wait longer than this between two attempts."""

_TIMEOUT, _TOO_MANY = 408, 429
_PASSING = frozenset({_TIMEOUT, _TOO_MANY})
_EXPONENT_MAX = 32


class DeliveryOutcome(StrEnum):
    """What one attempt came to."""

    DELIVERED = "delivered"
    UNAVAILABLE = "unavailable"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The result of one attempt.

    Args:
        retry_after_ms: how long the receiver asks to wait, milliseconds.
    """

    outcome: DeliveryOutcome
    code: str = ""
    retry_after_ms: int = 0


DELIVERED = AttemptResult(outcome=DeliveryOutcome.DELIVERED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """How long to wait between attempts.

    Args:
        longest_ms: the longest wait that we choose ourselves.
    """

    first_ms: int = 500
    longest_ms: int = 30_000

    def wait_ms(self, failures: int, *, retry_after_ms: int = 0) -> int:
        """Return how long to wait after some failures in a row."""
        own = min(self.longest_ms, self.first_ms << min(failures - 1, _EXPONENT_MAX))
        return max(own, min(retry_after_ms, RETRY_AFTER_MAX_MS))


def http_answer(status: int, *, retry_after: str | None, now_s: float) -> AttemptResult:
    """Return what an HTTP status says about the alert (RFC 9110, 15).

    A client error other than 408 and 429 is a refusal for good; redirects are not followed, and wait for
    somebody to fix the address.
    """
    if 200 <= status < 300:
        return DELIVERED
    code = f"http_{status}"
    if 400 <= status < 500 and status not in _PASSING:
        return AttemptResult(outcome=DeliveryOutcome.REFUSED, code=code)
    wait_ms = retry_after_ms(retry_after, now_s=now_s)
    return AttemptResult(outcome=DeliveryOutcome.UNAVAILABLE, code=code, retry_after_ms=wait_ms)


def retry_after_ms(text: str | None, *, now_s: float) -> int:
    """Return the wait that a ``Retry-After`` header asks for: seconds or a date (RFC 9110, 10.2.3); else 0."""
    if text is None:
        return 0
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:12]) * 1_000, RETRY_AFTER_MAX_MS)
    try:
        moment = parsedate_to_datetime(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.fromtimestamp(now_s, UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return 0
    return min(max(int(seconds * 1_000), 0), RETRY_AFTER_MAX_MS)


def signature(secret: bytes, *, key: str, body: bytes) -> str:
    """Return the signature of a delivery: HMAC-SHA256 (RFC 2104) over idempotency key, a dot and the body."""
    return "sha256=" + hmac.new(secret, key.encode() + b"." + body, hashlib.sha256).hexdigest()


def dead_letter(record: Record, error: AssayStreamError) -> Output:
    """Return the dead letter of an alert: its bytes, key and headers, and why it was refused."""
    return rejected(record, error)._replace(role=Role.DEAD_LETTERS, label=f"dead:{error.code}")
