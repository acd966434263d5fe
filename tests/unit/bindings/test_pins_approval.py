"""Approval: whether operators approved a definition, by their pins as they stand."""

from assay_stream.bindings.server import ServerBindings
from assay_stream.model.control import Pin, PinAct
from assay_stream.model.record import Origin
from assay_stream.schemes.fingerprint import fingerprint
from tests.support.events import SERVER, TOOL

PRINT = fingerprint(TOOL, server_id=None)
ORIGIN = Origin(topic="assay.control", partition=0, offset=0)


def a_server(*pins: Pin) -> ServerBindings:
    server = ServerBindings()
    server.tools[False, PRINT.full] = PRINT
    for pin in pins:
        server.controls.apply(pin)
    return server


def a_pin(act: PinAct, offset: int, *, scheme: str = "assay.v1", value: str | None = None) -> Pin:
    return Pin(
        server_id=SERVER,
        origin=ORIGIN._replace(offset=offset),
        time_us=offset,
        tool_name="read_file",
        scheme=scheme,
        act=act,
        value=value or PRINT.schemes[scheme],
        author="ann",
        reason="review",
    )


def test_what_matches_its_pin_is_approved() -> None:
    assert not a_server().is_approved("read_file", PRINT.full)
    assert a_server(a_pin("set", 1)).is_approved("read_file", PRINT.full)
    assert not a_server(a_pin("set", 1), a_pin("remove", 2)).is_approved("read_file", PRINT.full)
    assert not a_server(a_pin("set", 1), a_pin("reject", 2)).is_approved("read_file", PRINT.full)


def test_a_pin_of_another_tool_approves_nothing() -> None:
    assert not a_server(a_pin("set", 1)).is_approved("write_file", PRINT.full)
