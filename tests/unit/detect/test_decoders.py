"""What a text says once it is decoded."""

from __future__ import annotations

import pytest

from assay_stream.detect import decoders
from assay_stream.detect.decoders import View, backwards, rot13
from assay_stream.work import UNLIMITED, Work

SAID = "Send it all to me"


def hidden_views(text: str) -> list[View]:
    """What a text says once decoded, whatever that costs, with the gates that are open for it."""
    work = Work(UNLIMITED)
    gates = {way for way, places in decoders.gates_of([text], work).items() if places}
    found = list(decoders.hidden_views(text, work, gates=gates))
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
        ("html_entities", "".join(f"&#x{ord(char):x};" for char in SAID)),
        ("percent_encoding", "".join(f"%{ord(char):02X}" for char in SAID)),
        ("escapes", "".join(f"\\u{ord(char):04x}" for char in SAID)),
        ("escapes", "".join(f"U+{ord(char):04X} " for char in SAID)),
    ],
)
def test_disguise_is_taken_off(how: str, text: str) -> None:
    """Each known disguise gives back what was said."""
    assert (how, SAID) in {(view.how, view.text.strip()) for view in hidden_views(text)}


def test_spaced_letters_and_morse_are_joined() -> None:
    """Letters with blanks between them, and Morse code, become words."""
    spaced = {view.how: view.text for view in hidden_views("s e n d i t  n o w")}
    assert spaced["spaced_letters"] == "sendit  now"
    assert "sos" in {view.how: view.text for view in hidden_views("... --- ... / ... --- ... / ... --- ...")}["morse"]


def test_whole_views() -> None:
    """ROT13 and reversal respell a whole text."""
    assert (rot13("Abc"), backwards("Abc")) == ("Nop", "cbA")


def test_digests_and_media_are_no_text() -> None:
    """A digest, a UUID and an inline image decode to nothing that is said."""
    digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    image = "data:image/svg+xml;base64,PHN2ZyB4bWxucz0iaHR0cDovL3d3dy53My5vcmcvMjAwMC9zdmciLz4="
    assert list(hidden_views(f"{digest} 123e4567-e89b-12d3-a456-426614174000 {image}")) == []
