"""From a posted form to decisions that Kafka has acknowledged."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from aiohttp import web

from assay_stream.console.deciding import ACTIONS, Action
from assay_stream.console.forms import CSRF_FIELD, Decision, Fields, Form, read_fields
from assay_stream.console.reader import StoreReader
from assay_stream.console.sessions import Operator
from assay_stream.errors import InputError
from assay_stream.limits.console import ConsoleLimits

Publish = Callable[[Sequence[Decision], str], Awaitable[None]]
"""Publishes decisions of an author, and returns once Kafka has acknowledged all of them.

Raises:
    InputError: where a decision is wrong; none is published then.
    OperatingError: where not all are known to have been recorded.
"""

_FORM = "application/x-www-form-urlencoded"
_T = TypeVar("_T")


class Posting:
    """Carry out posted forms.

    Args:
        clock: current time, microseconds since the epoch.
        actions: by path.
    """

    def __init__(
        self,
        reader: StoreReader,
        publish: Publish,
        *,
        clock: Callable[[], int],
        actions: Mapping[str, Action] = ACTIONS,
    ) -> None:
        self._reader = reader
        self._publish = publish
        self._clock = clock
        self.actions = actions

    async def decide(self, action: Action, fields: Fields, operator: Operator) -> str:
        """Run an action on a form, publish its decisions, and return the address of the next page.

        Runs to completion even if the browser disconnects.

        Raises:
            AssayStreamError: what the action raises, or the store, or as ``Publish``.
        """
        given = {name: values for name, values in fields.items() if name != CSRF_FIELD}
        form = Form(fields=given, operator=operator, now_us=self._clock())
        return await to_its_end(self._decide(action, form))

    async def _decide(self, action: Action, form: Form) -> str:
        decided = await self._reader.ask(lambda store: action(store, form))
        await self._publish(decided.decisions, form.operator.name)
        return decided.address


async def posted_fields(request: web.Request, limits: ConsoleLimits) -> Fields:
    """Read the fields of a posted form.

    Raises:
        InputError: ``bad_form``.
    """
    if request.content_type != _FORM or "Content-Encoding" in request.headers:
        raise InputError("bad_form", f"a form is posted as {_FORM}, without an encoding")
    body = b""
    try:
        async with asyncio.timeout(limits.form_limit_s):
            while len(body) <= limits.form_bytes_max and (more := await request.content.readany()):
                body += more
    except TimeoutError:
        raise InputError(
            "bad_form", f"the form did not arrive within {limits.form_limit_s:g} s: send it again"
        ) from None
    return read_fields(body, limits)


async def to_its_end(work: Awaitable[_T]) -> _T:
    """Await work that is not cancelled with the caller."""
    task = asyncio.ensure_future(work)
    # What fails after its browser has gone is nobody's to see, and not an error of the loop.
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return await asyncio.shield(task)
