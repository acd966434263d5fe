"""What receivers over HTTP share: posts, bounded in time and in what is read of an answer, and messages for people.

1. Certificates are always checked.
2. Of a service, only an answer about the alert itself is a refusal for good. A token, channel, index, workflow or
   address that is not good says nothing about the alert: it waits until that is mended.
3. 429 and 5xx wait, at least as long as ``Retry-After`` says.

A message says on one line what changed and why it matters. Names and reasons come from servers, and no service may
interpret them as markup, a mention or a link: invisible characters are escaped (``visible``), ``://`` and ``www.`` are
broken up, and each service gets its text in a form that it does not interpret.
"""

import re
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, ClassVar

import aiohttp
from yarl import URL

from assay_stream import __version__
from assay_stream.alerts.formats import AlertView
from assay_stream.alerts.story import REASONS, claim_of
from assay_stream.detect import LEVELS
from assay_stream.forward.receivers import DELIVERED, AttemptResult, DeliveryOutcome, Entry, Setting, waiting
from assay_stream.model.alert import Activity, AlertStatus
from assay_stream.model.kinds import Kind
from assay_stream.observe.http.upstreams import open_session, read_body
from assay_stream.text.escaping import visible

_ANSWER_BYTES_MAX = 65_536
RETRY_AFTER_MAX_MS = 3_600_000
"""A receiver cannot make us wait longer than this between two attempts."""
_TIMEOUT, _TOO_MANY = 408, 429
_ABOUT_THE_ALERT = frozenset({400, 413, 422})


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """What came back: the status, 0 without an answer, what it alone says about the alert, and the first bytes."""

    result: AttemptResult
    status: int = 0
    body: bytes = b""


class Poster:
    """Posts over connections that it keeps; one exchange may take ``timeout_s``."""

    def __init__(self, *, headers: dict[str, str], timeout_s: float, tls: ssl.SSLContext | bool) -> None:
        self._headers = {"User-Agent": f"assay-stream/{__version__}", "Accept-Encoding": "identity"} | headers
        self._is_authorized = any(name.lower() == "authorization" for name in headers)
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, content: bytes, headers: dict[str, str] | None = None) -> HttpAnswer:
        """Post, and return what came back; failures outside this process are answers too."""
        try:
            return await self._exchange(url, content, headers)
        except TimeoutError:
            return HttpAnswer(result=waiting("timeout"))
        except (aiohttp.ClientError, OSError, ValueError) as error:
            # A name that no encoding of host names takes is a ValueError.
            return HttpAnswer(result=waiting(type(error).__name__))

    async def _exchange(self, url: str, content: bytes, headers: dict[str, str] | None) -> HttpAnswer:
        if self._session is None:  # it needs a running loop
            self._session = open_session(self._tls, self._timeout, headers=self._headers)
        address = URL(url, encoded=url.isascii())  # one that is signed must arrive as it was given
        if self._is_authorized:  # aiohttp sends a header or a user in the address, and raises where there are both
            address = address.with_user(None)
        async with self._session.post(address, data=content, headers=headers, allow_redirects=False) as response:
            result = http_answer(response.status, retry_after=response.headers.get("retry-after"), now_s=time.time())
            # A short answer is read to its end, so that the connection can be used again.
            body = await read_body(response, _ANSWER_BYTES_MAX)
            return HttpAnswer(result=result, status=response.status, body=body[:_ANSWER_BYTES_MAX])

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


class HttpReceiver:
    """Base of receivers that post alerts."""

    is_for_people: ClassVar[bool] = False
    _poster: Poster

    async def close(self) -> None:
        await self._poster.close()


class MessageService(HttpReceiver, ABC):
    """Base of those that post each alert to one address. It may be a secret: the entry's name stands for it."""

    settings: ClassVar[Mapping[str, Setting]] = {
        "url_file": Setting("file that holds the address of the webhook, which is a secret", is_required=True)
    }
    is_for_people: ClassVar[bool] = True

    def __init__(self, entry: Entry, url: str | None = None) -> None:
        self.name = entry.label
        self._url = entry.safe_url(entry.secret("url_file") if url is None else url)
        self._poster = Poster(headers={"Content-Type": "application/json"}, **entry.connection())

    @abstractmethod
    def write(self, alert: dict[str, Any]) -> str: ...

    @staticmethod
    def judge(answer: HttpAnswer) -> AttemptResult:
        return by_status(answer)

    async def send(self, view: AlertView, body: str) -> AttemptResult:
        return self.judge(await self._poster.post(self._url, body.encode("utf-8")))


def by_status(answer: HttpAnswer) -> AttemptResult:
    """Judge an answer of a service by its status: what is not about the alert is waited for."""
    if answer.result.outcome is DeliveryOutcome.REFUSED and answer.status not in _ABOUT_THE_ALERT:
        return waiting(answer.result.code)
    return answer.result


def http_answer(status: int, *, retry_after: str | None, now_s: float) -> AttemptResult:
    """Return what an HTTP status says about the alert (RFC 9110, 15).

    A client error other than 408 and 429 is a refusal for good; redirects are not followed, and wait for
    somebody to fix the address.
    """
    if 200 <= status < 300:
        return DELIVERED
    code = f"http_{status}"
    if 400 <= status < 500 and status not in (_TIMEOUT, _TOO_MANY):
        return AttemptResult(outcome=DeliveryOutcome.REFUSED, code=code)
    return waiting(code, retry_after_ms(retry_after, now_s=now_s))


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


_FACT_UNITS_MAX = 400
"""A fact, so that a long name leaves room for the uid and the other facts. Units of UTF-16, as in all limits of
messages: never fewer than characters, and three bytes of UTF-8 at most."""

_SAID: dict[int, str] = {Activity.CREATE: "New", Activity.UPDATE: "Updated", Activity.CLOSE: "Closed"}
OVER = (AlertStatus.SUPPRESSED, AlertStatus.RESOLVED)
_ACTIVE = re.compile(r"(?i)(?<=:)(?=//)|(?<=\bwww)(?=\.)|(?<=\{)(?=\{)")
"""Where a space disarms an address, or a function in the text of a card (``{{DATE(...)}}``)."""

FACTS = {
    "Server": "mcp_server_id",
    "Tool": "mcp_tool_name",
    "Indicators": "mcp_indicators",
    "Changes": "mcp_change_codes",
    "ATLAS": "mcp_attacks",
}


def one_line(view: AlertView, units_max: int) -> str:
    """Return what happened, to what, and why it matters, on one line; excess text ends in an ellipsis."""
    told = _SAID.get(view.activity_id, view.activity)
    state = view.status if view.status_id in OVER else told
    found = [(rule, int(LEVELS.get(rule, 0))) for rule in view.fact("mcp_indicators").split(",") if rule]
    found.sort(key=lambda each: -each[1])
    what, why = view.message, view.explanation
    if found and view.kind not in (Kind.SERVER_CHANGED, Kind.ALERTS_FOLDED):
        subject = [view.server_id, view.tool_name or view.fact("mcp_item_name")]
        what = f"{view.title}: {'/'.join(filter(None, subject))}: {claim_of(found)}"
        why = REASONS.get(found[0][0], why)
    return _cut(_inert(f"[{view.severity}] {state}: {what}. {why}".rstrip()), units_max)


def one_of_each(view: AlertView) -> str:
    """Return the facts most useful for triage, and the uid, on one line."""
    facts = [f"{name}: {fact_of(view, fact)}" for name, fact in FACTS.items() if view.fact(fact)]
    return " · ".join([*facts, f"uid: {view.uid}"])


def fact_of(view: AlertView, name: str) -> str:
    return _cut(_inert(view.fact(name)), _FACT_UNITS_MAX)


def _cut(text: str, units_max: int) -> str:
    raw = text.encode("utf-16-le")
    # Half a character at the cut is left out.
    return text if len(raw) <= 2 * units_max else raw[: 2 * (units_max - 1)].decode("utf-16-le", "ignore") + "…"


def _inert(text: str) -> str:
    return _ACTIVE.sub(" ", visible(text))
