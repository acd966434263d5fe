//! One pass over a call: where each field stands, or that the Python path has to decide.

use crate::schema::{Field, Fields, Kind, Schema};
use crate::text;
use crate::time;

/// Where a value stands; of a text without its quotation marks. Nothing stands at the very beginning.
#[derive(Clone, Copy, Default)]
pub struct Span {
    begin: u32,
    end: u32,
}

impl Span {
    pub fn is_given(self) -> bool {
        self.end != 0
    }

    pub fn of(self, raw: &[u8]) -> &[u8] {
        &raw[self.begin as usize..self.end as usize]
    }
}

/// Where the fields of a call stand, by their numbers in the schema.
pub struct Plain {
    pub event: Vec<Span>,
    pub data: Vec<Span>,
    /// The objects and lists in its data, in canonical form, by the number of their field.
    pub canonical: Vec<(usize, Vec<u8>)>,
    pub time_us: i64,
}

/// Return a plain call. The caller bounds its length.
pub fn read(raw: &[u8], schema: &Schema) -> Option<Plain> {
    if u32::try_from(raw.len()).is_err()
        || memchr::memchr(b'\\', raw).is_some()
        || std::str::from_utf8(raw).is_err()
    {
        return None;
    }
    let mut cursor = Cursor {
        raw,
        at: 0,
        is_printable: text::is_printable(raw),
    };
    let mut event = vec![Span::default(); schema.event.all.len()];
    let mut data = vec![Span::default(); schema.data.all.len()];
    let mut canonical = Vec::new();
    cursor.object(&schema.event, |cursor, index, field| {
        if index == schema.data_field {
            cursor.object(&schema.data, |cursor, index, field| {
                data[index] = match &field.kind {
                    Kind::Object(_) | Kind::List { .. } => {
                        let begin = cursor.at;
                        canonical.push((index, cursor.composed(&field.kind)?));
                        cursor.since(begin)
                    }
                    kind => cursor.simple(kind)?,
                };
                Some(())
            })?;
            event[index] = cursor.since(cursor.at - 1);
        } else {
            event[index] = cursor.simple(&field.kind)?;
        }
        Some(())
    })?;
    cursor.blanks();
    let names = [
        schema.server_id,
        schema.tool_name,
        schema.observer_id,
        schema.tool_call_id,
        schema.snapshot_id,
    ];
    let is_blank = names
        .iter()
        .map(|&name| data[name])
        .chain([event[schema.id]])
        .any(|span| span.is_given() && text::may_be_blank(text::of(raw, span)));
    if cursor.at != raw.len() || is_blank {
        return None;
    }
    // Its form was checked as it was read.
    let time_us = time::micros(event[schema.time].of(raw))?;
    Some(Plain {
        event,
        data,
        canonical,
        time_us,
    })
}

struct Cursor<'a> {
    raw: &'a [u8],
    at: usize,
    /// Whether all of the call is ASCII without control characters: then no text has to be looked at for either.
    is_printable: bool,
}

impl<'a> Cursor<'a> {
    fn since(&self, begin: usize) -> Span {
        // The length was checked to fit.
        Span {
            begin: begin as u32,
            end: self.at as u32,
        }
    }

    fn blanks(&mut self) {
        while matches!(self.raw.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.blanks();
        (self.raw.get(self.at) == Some(&byte)).then(|| self.at += 1)
    }

    fn has(&mut self, byte: u8) -> bool {
        self.take(byte).is_some()
    }

    /// Read a text without escapes.
    fn text(&mut self) -> Option<Span> {
        self.take(b'"')?;
        let begin = self.at;
        self.at = begin + memchr::memchr(b'"', &self.raw[begin..])?;
        let span = self.since(begin);
        self.at += 1;
        (self.is_printable || !text::has_control(span.of(self.raw))).then_some(span)
    }

    /// Read an object: each field once, none that is not declared, all that are required.
    fn object(
        &mut self,
        fields: &Fields,
        mut member: impl FnMut(&mut Self, usize, &Field) -> Option<()>,
    ) -> Option<()> {
        self.take(b'{')?;
        let mut seen = 0_u64;
        if !self.has(b'}') {
            loop {
                self.blanks();
                let index = fields.find(self.text()?.of(self.raw))?;
                if seen & 1 << index != 0 {
                    return None;
                }
                seen |= 1 << index;
                self.take(b':')?;
                self.blanks();
                member(self, index, &fields.all[index])?;
                if self.has(b'}') {
                    break;
                }
                self.take(b',')?;
            }
        }
        (seen & fields.required == fields.required).then_some(())
    }

    fn simple(&mut self, kind: &Kind) -> Option<Span> {
        match kind {
            Kind::Text { low, high, class } => {
                let span = self.text()?;
                let text = span.of(self.raw);
                let length = if self.is_printable {
                    text.len() as u64
                } else {
                    text::code_points(text)
                };
                ((*low..=*high).contains(&length) && text::is_of(text, *class)).then_some(span)
            }
            Kind::OneOf(texts) => self
                .text()
                .filter(|span| texts.iter().any(|each| each == span.of(self.raw))),
            Kind::Time => self.text().filter(|span| time::has_form(span.of(self.raw))),
            Kind::Integer { low, high } => {
                let span = self.bare();
                text::integer(span.of(self.raw))
                    .filter(|value| (low..=high).contains(&value))
                    .map(|_| span)
            }
            Kind::Number => {
                Some(self.bare()).filter(|span| text::is_plain_number(span.of(self.raw)))
            }
            Kind::Boolean => {
                Some(self.bare()).filter(|span| matches!(span.of(self.raw), b"true" | b"false"))
            }
            Kind::Never | Kind::Object(_) | Kind::List { .. } => None,
        }
    }

    fn bare(&mut self) -> Span {
        let begin = self.at;
        while self
            .raw
            .get(self.at)
            .is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
        {
            self.at += 1;
        }
        self.since(begin)
    }

    /// Read an object or a list, and return it in canonical form.
    fn composed(&mut self, kind: &Kind) -> Option<Vec<u8>> {
        let mut written = Vec::new();
        match kind {
            Kind::Object(fields) => {
                let mut spans = vec![Span::default(); fields.all.len()];
                self.object(fields, |cursor, index, field| {
                    spans[index] = cursor.simple(&field.kind)?;
                    Some(())
                })?;
                written.push(b'{');
                for (field, span) in fields
                    .all
                    .iter()
                    .zip(&spans)
                    .filter(|(field, span)| span.is_given() && !field.dropped)
                {
                    separate(&mut written, b'{');
                    quote(&mut written, &field.name);
                    written.push(b':');
                    value(&mut written, &field.kind, span.of(self.raw));
                }
                written.push(b'}');
            }
            Kind::List { of, most } => {
                self.take(b'[')?;
                written.push(b'[');
                let mut count = 0;
                while !self.has(b']') {
                    if count > 0 {
                        self.take(b',')?;
                    }
                    count += 1;
                    let item = self.text()?.of(self.raw);
                    if count > *most || !of.iter().any(|each| each == item) {
                        return None;
                    }
                    separate(&mut written, b'[');
                    quote(&mut written, item);
                }
                written.push(b']');
            }
            _ => return None,
        }
        Some(written)
    }
}

/// Write a comma, unless a value has just begun.
pub fn separate(written: &mut Vec<u8>, opening: u8) {
    if written.last() != Some(&opening) {
        written.push(b',');
    }
}

/// Write a text; without escapes it stands as it is.
pub fn quote(written: &mut Vec<u8>, text: &[u8]) {
    written.push(b'"');
    written.extend_from_slice(text);
    written.push(b'"');
}

/// Write a simple value as JCS does.
pub fn value(written: &mut Vec<u8>, kind: &Kind, text: &[u8]) {
    match kind {
        Kind::Text { .. } | Kind::OneOf(_) | Kind::Time => quote(written, text),
        _ => written.extend_from_slice(text),
    }
}
