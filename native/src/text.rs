//! Texts and numbers of a call, as JSON has them.

use crate::read::Span;
use crate::schema::Class;

/// Return a text that was read: it is UTF-8, since the whole call was checked to be.
pub fn of(raw: &[u8], span: Span) -> &str {
    std::str::from_utf8(span.of(raw)).unwrap_or_default()
}

/// Tell whether all characters of a text are of a class.
pub fn is_of(text: &[u8], class: Class) -> bool {
    match class {
        Class::Any => true,
        Class::Token => all(text, |byte| {
            byte.is_ascii_alphanumeric() | matches!(byte, b'_' | b':' | b'-'..=b'/')
        }),
        Class::Sha256 => {
            text.len() == 71 && text.starts_with(b"sha256:") && all(&text[7..], is_hexadecimal)
        }
        Class::Traceparent => {
            (1..=64).contains(&text.len())
                && all(text, |byte| is_hexadecimal(byte) | (byte == b'-'))
        }
    }
}

/// Tell whether all of some bytes are printable ASCII, or DEL.
pub fn is_printable(bytes: &[u8]) -> bool {
    all(bytes, |byte| (b' '..=0x7F).contains(&byte))
}

pub fn code_points(text: &[u8]) -> u64 {
    text.iter().map(|byte| u64::from(byte & 0xC0 != 0x80)).sum()
}

/// Tell whether a text has a control character, which JSON would escape.
pub fn has_control(text: &[u8]) -> bool {
    !all(text, |byte| byte >= b' ')
}

/// Look at every byte, whatever the ones before it are: without a branch in it the loop takes many at once.
fn all(text: &[u8], is: impl Fn(u8) -> bool) -> bool {
    text.iter().fold(true, |so_far, &byte| so_far & is(byte))
}

fn is_hexadecimal(byte: u8) -> bool {
    byte.is_ascii_digit() | (b'a'..=b'f').contains(&byte)
}

/// Tell whether a name may be blank, so that the model has to look: it begins with a space of any kind.
pub fn may_be_blank(text: &str) -> bool {
    text.chars()
        .next()
        .is_none_or(|first| first <= ' ' || first.is_whitespace())
}

/// Return an integer that is written as JCS writes it, and is no larger than 2^53.
pub fn integer(text: &[u8]) -> Option<u64> {
    if text.is_empty()
        || text.len() > 16
        || !text.iter().all(u8::is_ascii_digit)
        || (text[0] == b'0' && text.len() > 1)
    {
        return None;
    }
    let value = text
        .iter()
        .fold(0_u64, |value, digit| value * 10 + u64::from(digit - b'0'));
    (value <= 1 << 53).then_some(value)
}

/// Tell whether a number that may be a fraction is written as JCS writes it, and lies within the bounds of a duration.
pub fn is_plain_number(text: &[u8]) -> bool {
    if integer(text).is_some() {
        return true;
    }
    let Some(value) = std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse::<f64>().ok())
    else {
        return false;
    };
    let mut buffer = ryu_js::Buffer::new();
    (0.0001..=9_007_199_254_740_992.0).contains(&value) && buffer.format(value).as_bytes() == text
}
