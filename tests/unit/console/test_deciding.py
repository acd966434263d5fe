"""What forms of the console decide, and the pages that lead to it."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from assay_stream.console.authentication import Authenticator
from assay_stream.console.deciding import Subject, subject_of_alert
from assay_stream.console.rendering import url
from assay_stream.console.sessions import Sessions
from assay_stream.limits import CONSOLE_LIMITS
from assay_stream.model.control import ALERT_TYPE, PIN_REJECT_TYPE, PIN_SET_TYPE
from assay_stream.model.record import Role
from assay_stream.readmodel import schema
from assay_stream.readmodel.queries import Store
from assay_stream.readmodel.rows import AlertFilter
from tests.support.console import ALICE, VICTOR, a_console, a_store, of_page, records_of, signed_in, text_of
from tests.support.events import an_event, snapshot_data
from tests.support.readmodel import NOW_US
from tests.unit.console.test_posting import Published

pytestmark = pytest.mark.filterwarnings("ignore::aiohttp.web_exceptions.NotAppKeyWarning")

REASON = {"reason": "its vendor announced it"}


class Desk:
    def __init__(self, client: Any, token: str, published: Published) -> None:
        self.client, self.token, self.published = client, token, published

    async def page(self, address: str, status: int = 200) -> str:
        async with self.client.get(address) as answer:
            text: str = await answer.text()
            assert answer.status == status, text_of(text)
            return text

    async def decide(self, fields: Any, status: int = 303) -> str:
        """Post a form; return the next address, or the text of the page that says why not."""
        pairs = [*(fields.items() if isinstance(fields, dict) else fields), ("csrf", self.token)]
        headers = of_page(self.client)
        async with self.client.post("/decide", data=pairs, headers=headers, allow_redirects=False) as answer:
            text = text_of(await answer.text())
            assert answer.status == status, text
            return str(answer.headers.get("Location", text))

    @property
    def recorded(self) -> list[tuple[str, dict[str, Any]]]:
        return [(kind, dict(data)) for decisions, _ in self.published.got for kind, data in decisions]


@asynccontextmanager
async def a_desk(folder: Path, operator: Any = ALICE) -> AsyncIterator[Desk]:
    door, published = Authenticator(Sessions(lambda: NOW_US)), Published()
    async with a_console(folder, authenticator=door, publish=published) as client:
        yield Desk(client, signed_in(client, door, operator), published)


def subjects(folder: Path) -> list[Subject]:
    with closing(Store(schema.reading(folder))) as store:
        rows = store.alerts(AlertFilter(state=None)).rows
        return [subject_of_alert(row, store.alert(row.uid).records[-1]) for row in rows]


def about_definition(folder: Path) -> list[Subject]:
    return [each for each in subjects(folder) if each.full_digest]


def printed(folder: Path, subject: Subject, scheme: str = "assay.p60") -> str:
    with closing(Store(schema.reading(folder))) as store:
        return store.printed(subject.server_id, subject.full_digest)[scheme]


async def test_approving_and_rejecting_record_the_pin_that_the_commands_would(fleet: Path) -> None:
    """Under the default scheme, since the tool is not pinned yet; for the tool and the definition of the alert."""
    subject = next(
        each for each in about_definition(fleet) if (each.server_id, each.tool_name) != ("server-0", "tool_1")
    )
    for act, kind in (("approve", PIN_SET_TYPE), ("reject", PIN_REJECT_TYPE)):
        async with a_desk(fleet) as desk:
            address = await desk.decide({"act": act, "subject": subject.as_text(), **REASON})
            data = {"server_id": subject.server_id, "tool_name": subject.tool_name, "scheme": "assay.p60"}
            assert desk.recorded == [(kind, data | {"value": printed(fleet, subject), **REASON})]
            assert desk.published.got[0][1] == ALICE.name
            shown = text_of(await desk.page(address))
            assert f"Recorded: {act}" in shown
            assert "has not read it yet" in shown


async def test_a_pinned_tool_is_approved_under_its_schemes(fleet: Path) -> None:
    """Under the one that it is pinned under, so that no pin is left to differ."""
    store = Store(schema.reading(fleet))
    full = store.versions("server-0", "tool_1").rows[0].full_digest
    store.close()
    subject = Subject(server_id="server-0", tool_name="tool_1", full_digest=full)
    async with a_desk(fleet) as desk:
        address = await desk.decide({"act": "approve", "subject": subject.as_text(), **REASON})
        assert address.startswith(url("/tool", server="server-0", tool="tool_1"))
        ((_, data),) = desk.recorded
        assert (data["scheme"], data["value"]) == ("assay.v1", printed(fleet, subject, "assay.v1"))


@pytest.mark.parametrize("act", ["acknowledge", "comment", "close", "reopen", "assign"])
async def test_what_people_do_with_an_alert(fleet: Path, act: str) -> None:
    subject = subjects(fleet)[0]
    more = {"assignee": "bob"} if act == "assign" else {}
    async with a_desk(fleet) as desk:
        await desk.decide({"act": act, "subject": subject.as_text(), "assignee": "bob", **REASON})
        assert desk.recorded == [
            (ALERT_TYPE + act, {"server_id": subject.server_id, "alert": subject.uid, **more, **REASON})
        ]


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"act": "delete"}, "bad_form"),
        ({"act": ""}, "bad_form"),
        ({"reason": "  "}, "bad_form"),
        ({"subject": "[]"}, "bad_form"),
        ({"subject": '["a", "b", "c", 1]'}, "bad_form"),
        ({"subject": "{"}, "bad_form"),
        ({"subject": '["", "", "", "ffffffffffff"]'}, "unknown_uid"),
        ({"subject": '["server-0", "tool_1", "", ""]'}, "no_definition_in_alert"),
        ({"subject": '["server-0", "tool_1", "sha256:00", ""]'}, "tool_not_observed"),
        ({"act": "close", "subject": '["server-0", "tool_1", "sha256:00", ""]'}, "bad_form"),
        ({"act": "assign"}, "bad_form"),
    ],
)
async def test_a_form_that_makes_no_sense_records_nothing(fleet: Path, change: dict[str, str], code: str) -> None:
    subject = about_definition(fleet)[0]
    async with a_desk(fleet) as desk:
        form = {"act": "approve", "subject": subject.as_text(), **REASON, **change}
        status = 404 if code == "unknown_uid" else 400
        assert code in await desk.decide(form, status)
        assert desk.recorded == []


async def test_what_was_not_shown_is_not_decided_on(fleet: Path) -> None:
    """The alert is about another definition by the time the form arrives. The answer leads to that one."""
    subject, *others = about_definition(fleet)
    older = next(each.full_digest for each in others if each.full_digest != subject.full_digest)
    shown = Subject(server_id=subject.server_id, tool_name=subject.tool_name, full_digest=older, uid=subject.uid)
    async with a_desk(fleet) as desk:
        for act in ("approve", "reject", "acknowledge", "close", "assign"):
            form = {"act": act, "subject": shown.as_text(), "assignee": "bob", **REASON}
            answer = await desk.decide(form, 400)
            assert "definition_changed" in answer
            assert f"As it is now Alert {subject.uid[:12]}" in answer
            assert "Send again" not in answer
        assert desk.recorded == []
        # A server can make definitions whose digests begin alike.
        for seen in ("0" * 16, subject.full_digest.removeprefix("sha256:")[:16], subject.full_digest[:-1]):
            picked = await desk.page(url("/confirm", act="approve", pick=f"{subject.uid}.{seen}"))
            assert "another definition than the one you looked at" in text_of(picked)
            assert "<button name" not in picked


async def test_one_that_cannot_be_decided_holds_up_all(fleet: Path) -> None:
    """Of a form with several, nothing is recorded then."""
    good = about_definition(fleet)[0].as_text()
    async with a_desk(fleet) as desk:
        fields = [("act", "approve"), ("subject", good), ("subject", '["s", "t", "sha256:00", ""]'), *REASON.items()]
        assert "tool_not_observed" in await desk.decide(fields, 400)
        assert desk.recorded == []


async def test_more_than_a_person_looks_through_is_refused(fleet: Path) -> None:
    """On the page before the decision, and with the decision."""
    async with a_desk(fleet) as desk:
        many = [("subject", f'["s", "{number}", "sha256:00", ""]') for number in range(CONSOLE_LIMITS.subjects_max + 1)]
        assert "at most 50" in await desk.decide([("act", "approve"), *many, *REASON.items()], 400)
        picks = "&".join(f"pick={number:064x}." for number in range(CONSOLE_LIMITS.subjects_max + 1))
        assert "choose 1 to 50 alerts" in text_of(await desk.page(f"/confirm?act=close&{picks}", 400))


async def test_the_queue_leads_to_a_decision_on_all_that_was_ticked(fleet: Path) -> None:
    """Through a page that lists what is recorded; without a script."""
    async with a_desk(fleet) as desk:
        queue = await desk.page("/reviews")
        picks = re.findall(r'name="pick" value="([^"]+)"', queue)
        assert len(picks) > 1
        chosen = [pick for pick in picks if not pick.endswith(".")][:2]
        shown = await desk.page(url("/confirm", act="approve") + "".join(f"&pick={pick}" for pick in chosen))
        listed = [unescape(value) for value in re.findall(r'name="subject" value="([^"]+)"', shown)]
        assert len(listed) == len(chosen)
        address = await desk.decide([("act", "approve"), *(("subject", each) for each in listed), *REASON.items()])
        assert len(desk.recorded) == len(chosen)
        for _, data in desk.recorded:
            assert data["value"] in shown
        assert f"Recorded: approve of {len(chosen)}" in text_of(await desk.page(address))


async def test_a_servers_tools_are_approved_at_once(fleet: Path) -> None:
    """Every tool that it offers now, except those that match their pin."""
    async with a_desk(fleet) as desk:
        shown = await desk.page(url("/confirm", act="approve", server="server-1"))
        listed = [unescape(value) for value in re.findall(r'name="subject" value="([^"]+)"', shown)]
        assert listed
        await desk.decide([("act", "approve"), *(("subject", each) for each in listed), *REASON.items()])
        assert {kind for kind, _ in desk.recorded} == {PIN_SET_TYPE}
        assert "tools can be approved or rejected" in text_of(
            await desk.page(url("/confirm", act="close", server="server-1"), 400)
        )


async def test_who_may_only_look_sees_no_form(fleet: Path) -> None:
    """Nor does anybody where nobody is asked who they are."""
    uid = about_definition(fleet)[0].uid
    addresses = ["/reviews", url("/alert", uid=uid), url("/tool", server="server-0", tool="tool_1")]
    addresses.append(url("/server", server="server-0"))
    async with a_desk(fleet, VICTOR) as desk, a_console(fleet) as open_to_all:
        for address in addresses:
            for text in (await desk.page(address), await (await open_to_all.get(address)).text()):
                assert 'action="/decide"' not in text
                assert "/confirm" not in text
        assert "may_not_decide" in text_of(await desk.page("/confirm?act=close", 403))


async def test_hostile_names_stay_text_in_forms(attacks: Path) -> None:
    """And what was decided on is exactly what the form named."""
    async with a_desk(attacks) as desk:
        for subject in about_definition(attacks):
            page = await desk.page(url("/alert", uid=subject.uid))
            (value,) = re.findall(r'name="subject" value="([^"]*)"', page)
            assert unescape(value) == subject.as_text()
            await desk.decide({"act": "reject", "subject": unescape(value), **REASON})
            assert desk.recorded[-1][1]["tool_name"] == subject.tool_name
        assert "<script>document" not in await desk.page("/reviews")
        assert "<script>document" not in await desk.page(
            url("/confirm", act="approve", server=about_definition(attacks)[0].server_id)
        )


async def test_what_differs_from_its_pin_is_not_ticked_for_approval(fleet: Path) -> None:
    """Else a poisoned tool would be approved with the rest of its server, unseen."""
    async with a_desk(fleet) as desk:
        shown = await desk.page(url("/confirm", act="approve", server="server-0"))
    boxes = re.findall(r'name="subject" value="([^"]+)"[^>]*?( checked)?>', shown)
    ticked = {unescape(value).split(",")[1].strip('"'): bool(checked) for value, checked in boxes}
    assert ticked.pop("tool_1") is False
    assert ticked
    assert all(ticked.values())
    assert "were rejected are not ticked" in text_of(shown)


async def test_a_link_from_elsewhere_neither_asks_for_a_decision_nor_reports_one(fleet: Path) -> None:
    """It could bring a reason of its own, or say that something is done that is not."""
    uid = about_definition(fleet)[0].uid
    async with a_desk(fleet) as desk:
        for led_by, is_own in (("same-origin", True), ("cross-site", False), ("same-site", False), ("none", False)):
            headers = {"Sec-Fetch-Site": led_by, "Sec-Fetch-Dest": "document"}
            address = url("/confirm", act="approve", server="server-1", reason="all is well")
            async with desk.client.get(address, headers=headers) as answer:
                assert (answer.status == 200, "all is well" in await answer.text()) == (is_own, is_own)
            address = url("/alert", uid=uid, act="approve", recorded=str(NOW_US))
            async with desk.client.get(address, headers=headers) as answer:
                assert answer.status == 200
                assert ("Recorded: approve" in text_of(await answer.text())) is is_own


async def test_long_definitions_are_left_to_the_page_of_their_alert(tmp_path: Path) -> None:
    """A server with many of them would make the queue cost seconds."""

    def listed(number: int) -> dict[str, Any]:
        members = {f"p{index}": {"type": "string", "title": f"{min(number, 2)}"} for index in range(2_000)}
        short = {"name": "short", "description": f"{max(number, 2)}", "inputSchema": {}}
        data = snapshot_data({"name": "long", "inputSchema": members}, short, server_id="server")
        return data | {"snapshot_id": f"snapshot-{number}"}

    given = [(Role.SNAPSHOTS, an_event(Role.SNAPSHOTS, n, n, listed(n))) for n in (1, 2, 3)]
    async with a_desk(a_store(tmp_path, records_of(given, server="server"))) as desk:
        text = await desk.page("/reviews")
    assert text.count("too long for this page") == 1
    assert text.count("What changed, word by word") == 1
