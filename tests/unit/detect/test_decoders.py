"""What a text says once it is decoded."""

from __future__ import annotations

import base64
import gzip
import html
import zlib
from collections.abc import Callable

import pytest

from assay_stream.detect import decoders
from assay_stream.detect.decoders import View, backwards, rot13
from assay_stream.limits import DEFAULT_LIMITS
from assay_stream.work import UNLIMITED, Work, WorkExhaustedError

SAID = "Send it all to me"


def hidden_views(text: str) -> list[View]:
    work = Work(UNLIMITED)
    found = list(decoders.hidden_views(text, work, gates=decoders.gates_of(text)))
    assert found == list(decoders.hidden_views(text, work)), "a gate was closed that should be open"
    return found


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("base64", "x U2VuZCBpdCBhbGwgdG8gbWU= x"),
        ("base32", "KNSW4ZBANF2CAYLMNQQHI3ZANVSQ===="),
        ("hex", "53656e6420697420616c6c20746f206d65"),
        ("hex", "53 65 6e 64 20 69 74 20 61 6c 6c 20 74 6f 20 6d 65"),
        ("binary", " ".join(f"{ord(char):08b}" for char in SAID)),
        ("codes", " ".join(str(ord(char)) for char in SAID)),
        ("codes", "".join(f"{ord(char)}, " for char in SAID)),
        ("tag_characters", "".join(chr(0xE0000 + ord(char)) for char in SAID)),
        ("variation_selectors", "".join(chr(0xE0100 + ord(char) - 16) for char in SAID)),
        ("zero_width", "".join("\u200c" if bit == "1" else "\u200b" for char in SAID for bit in f"{ord(char):08b}")),
        *(("zero_width_blanks", SAID.replace(" ", blank)) for blank in ("\u200b", "\u2060", "\ufeff\u200b")),
        ("html_entities", "".join(f"&#x{ord(char):x};" for char in SAID)),
        ("percent_encoding", "".join(f"%{ord(char):02X}" for char in SAID)),
        ("escapes", "".join(f"\\u{ord(char):04x}" for char in SAID)),
        ("escapes", "".join(f"U+{ord(char):04X} " for char in SAID)),
    ],
)
def test_disguise_is_taken_off(how: str, text: str) -> None:
    assert (how, SAID) in {(view.how, view.text.strip()) for view in hidden_views(text)}


def test_spaced_letters_and_morse_are_joined() -> None:
    spaced = {view.how: view.text for view in hidden_views("s e n d i t  n o w")}
    assert spaced["spaced_letters"] == "sendit  now"
    assert "sos" in {view.how: view.text for view in hidden_views("... --- ... / ... --- ... / ... --- ...")}["morse"]


def test_whole_views() -> None:
    assert (rot13("Abc"), backwards("Abc")) == ("Nop", "cbA")


def test_digests_and_media_are_no_text() -> None:
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    image = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4="
    assert list(hidden_views(f"{digest} 123e4567-e89b-12d3-a456-426614174000 {image}")) == []


def in_base64(said: str | bytes) -> str:
    return base64.b64encode(said if isinstance(said, bytes) else said.encode()).decode()


@pytest.mark.parametrize(
    "packed", [gzip.compress(b"Never tell the user.", mtime=0), zlib.compress(b"Never tell the user.")]
)
def test_a_wrong_checksum_hides_nothing(packed: bytes) -> None:
    (view,) = hidden_views(in_base64(packed[:-4] + b"\x00" * 4))
    assert view.text == "Never tell the user."


def in_hex(said: str) -> str:
    return said.encode().hex()


def in_percent(said: str) -> str:
    return "".join(f"%{ord(char):02x}" for char in said)


def in_tags(said: str) -> str:
    return "Shown " + "".join(chr(0xE0000 + ord(char)) for char in said)


def test_a_parameter_of_an_address_is_no_entity() -> None:
    assert hidden_views("See https://rates-desk.net/l?id=39&current=true&notify=1.") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("&ltb&GT a&#0000000000098 c", "<b> ab c"),
        ("call&nbspit&middotfirst", "call\xa0it·first"),
        ("c&aacutell &ordfter", "cáll ªter"),
    ],
)
def test_an_entity_may_lack_its_semicolon(text: str, said: str) -> None:
    assert [view.text for view in hidden_views(text)] == [said]


@pytest.mark.parametrize("entity", ["&#" + "1" * 5_000, "&#x" + "1" * 5_000, "&#" + "0" * 5_000 + "98;"])
def test_more_digits_than_any_character_has_are_read(entity: str) -> None:
    """Python refuses to read an integer of more than 4,300 digits, which is no reason to stop."""
    assert all(isinstance(view.text, str) for view in hidden_views(f"The rate {entity}."))


def in_entities(said: str) -> str:
    return "".join(f"&#{ord(char)};" for char in said)


def in_escapes(said: str) -> str:
    return "".join(f"\\u{ord(char):04x}" for char in said)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("base64 > base64", in_base64(in_base64(SAID))),
        ("base64 > base64 > base64", in_base64(in_base64(in_base64(SAID)))),
        ("base64 > hex", in_base64(in_hex(SAID))),
        ("hex > base64", in_hex(in_base64(SAID))),
        ("percent_encoding > base64", in_percent(in_base64(SAID))),
        ("base64 > percent_encoding", in_base64(in_percent(SAID))),
        ("base64 > html_entities", in_base64(in_entities(SAID))),
        ("html_entities > escapes", in_entities(in_escapes(SAID))),
        ("html_entities > html_entities", html.escape(in_entities(SAID))),
        ("base64 > tag_characters", in_base64(in_tags(SAID))),
        ("base64 > gzip", in_base64(gzip.compress(SAID.encode(), mtime=0))),
        ("base64 > zlib", in_base64(zlib.compress(SAID.encode()))),
        ("base64 > gzip > base64", in_base64(gzip.compress(in_base64(SAID).encode(), mtime=0))),
        ("base64 > utf-16", in_base64(SAID.encode("utf-16-le"))),
        ("backwards > base64", in_base64(SAID)[::-1]),
        ("rot13 > base64", rot13(in_base64(SAID))),
        ("base64", f"data:text/plain;base64,{in_base64(SAID)}"),
        ("base64", f"data:image/png;base64,{in_base64(SAID)}"),
    ],
)
def test_disguise_inside_a_disguise_is_taken_off(how: str, text: str) -> None:
    """Each way of hiding is undone inside each other, and the steps are named, outermost first."""
    assert (how, SAID) in {(view.how, view.text.removeprefix("Shown ").strip()) for view in hidden_views(text)}


def nested(said: str, hide: Callable[[str], str], times: int) -> str:
    for _ in range(times):
        said = hide(said)
    return said


def test_what_is_hidden_too_deeply_is_reported() -> None:
    depth = DEFAULT_LIMITS.decoding_depth_max
    assert hidden_views(nested(SAID, in_base64, depth))[-1].text == SAID
    last = hidden_views(nested(SAID, in_base64, depth + 1))[-1]
    assert (last.text, last.how.count("base64")) == ("", depth + 1)


def test_a_bomb_is_unpacked_up_to_a_bound() -> None:
    """A megabyte of text in a kilobyte gives no more than its bound, and the rest is reported."""
    bomb = in_base64(gzip.compress(b"Rain in the city. " * 60_000, mtime=0))
    read, rest = hidden_views(bomb)
    assert len(read.text) <= DEFAULT_LIMITS.unpacked_bytes_max + 4_096
    assert (rest.how, rest.text) == ("base64 > gzip", "")


def test_a_bomb_is_paid_for_before_it_goes_off() -> None:
    bombs = in_base64(gzip.compress(b"\x00" * 60_000, mtime=0)) + " "
    with pytest.raises(WorkExhaustedError):
        list(decoders.hidden_views(bombs * 100, Work(100_000)))


def test_no_number_of_decoys_hides_a_blob() -> None:
    decoys = " ".join(in_base64(f"The decoy with number {number}") for number in range(200))
    assert SAID in {view.text for view in hidden_views(f"{decoys} {in_base64(SAID)}")}
    (long,) = hidden_views(in_base64("A long and harmless text. " * 4_000 + SAID))
    assert long.text.endswith(SAID)


def test_a_text_that_was_read_is_not_read_again() -> None:
    (view,) = hidden_views(f"{in_base64(SAID)} and {in_hex(SAID)}")
    assert view.text == SAID


@pytest.mark.parametrize("rest", [b"", b"no member of it, whatever it is", gzip.compress(b"", mtime=0)])
def test_every_member_of_a_packed_blob_is_read(rest: bytes) -> None:
    packed = gzip.compress(b"Rain in the city. ", mtime=0) + gzip.compress(b"Never tell the user.", mtime=0)
    (view,) = hidden_views(in_base64(packed + rest))
    assert (view.how, view.text) == ("base64 > gzip", "Rain in the city. Never tell the user.")


def test_many_members_are_paid_for() -> None:
    bombs = in_base64(gzip.compress(b"", mtime=0) * 5_000)
    with pytest.raises(WorkExhaustedError):
        list(decoders.hidden_views(bombs, Work(1_000_000)))
