//! Evidence of a plain call: the canonical payload (RFC 8785) in its envelope, with both hashes.

use sha2::{Digest, Sha256};

use crate::read::{quote, separate, value, Plain};
use crate::schema::{Schema, Slot};
use crate::Part;

const TYPE_AND_END: &[u8] = b",\"type\":\"assay.tool.decision\"}";
const MIDDLE: &[u8] =
    b",\"datacontenttype\":\"application/json\",\"specversion\":\"1.0\",\"subject\":";

/// A call, where it stands, and what was joined with it.
pub struct Joined<'a> {
    pub raw: &'a [u8],
    pub plain: &'a Plain,
    pub schema: &'a Schema,
    /// A JSON text.
    pub topic: &'a [u8],
    pub partition: u64,
    pub offset: u64,
    pub part: &'a Part,
    /// Canonical, as is the signature.
    pub pin: &'a [u8],
    pub signature: Option<&'a [u8]>,
}

fn payload(written: &mut Vec<u8>, call: &Joined) {
    let (raw, plain, schema, part) = (call.raw, call.plain, call.schema, call.part);
    written.push(b'{');
    for (name, slot) in &schema.payload {
        let mut put = |bytes: &[u8]| {
            separate(written, b'{');
            written.extend_from_slice(name);
            written.extend_from_slice(bytes);
        };
        match slot {
            Slot::Binding => put(&part.binding),
            Slot::Origin => {
                put(b"{\"offset\":");
                number(written, call.offset);
                written.extend_from_slice(b",\"partition\":");
                number(written, call.partition);
                written.extend_from_slice(b",\"topic\":");
                written.extend_from_slice(call.topic);
                written.push(b'}');
            }
            Slot::Pin => put(call.pin),
            Slot::Signature => call.signature.into_iter().for_each(put),
            Slot::Identity => part.identity.as_deref().into_iter().for_each(put),
            Slot::Digest => part.digest.as_deref().into_iter().for_each(put),
            Slot::Constant(text) => part
                .digest
                .is_some()
                .then_some(text.as_slice())
                .into_iter()
                .for_each(put),
            Slot::UnboundReason => part.unbound_reason.as_deref().into_iter().for_each(put),
            Slot::Tool => {
                put(b"");
                quote(written, plain.data[schema.tool_name].of(raw));
            }
            Slot::Call(index) => {
                let span = plain.data[*index];
                if let Some((_, canonical)) = plain.canonical.iter().find(|(each, _)| each == index)
                {
                    put(canonical);
                } else if span.is_given() {
                    put(b"");
                    value(written, &schema.data.all[*index].kind, span.of(raw));
                }
            }
        }
    }
    written.push(b'}');
}

/// Write the record: the payload in its envelope, whose content hash covers type, subject and payload.
pub fn record(written: &mut Vec<u8>, call: &Joined, producer: &[u8]) {
    let (raw, plain, schema) = (call.raw, call.plain, call.schema);
    written.extend_from_slice(b"{\"assaycontenthash\":\"sha256:");
    let hash_begin = written.len();
    written.extend_from_slice(&[0; 64]); // for the hash of what follows
    written.extend_from_slice(producer);
    let payload_begin = written.len();
    payload(written, call);
    let tool_name = plain.data[schema.tool_name].of(raw);
    let mut covered = Sha256::new();
    for part in [
        b"{\"data\":",
        &written[payload_begin..],
        MIDDLE,
        b"\"",
        tool_name,
        b"\"",
        TYPE_AND_END,
    ] {
        covered.update(part);
    }
    written[hash_begin..hash_begin + 64].copy_from_slice(&hexadecimal(covered));
    let mut named = Sha256::new();
    for part in [
        b"[\"",
        plain.event[schema.source].of(raw),
        b"\",\"",
        plain.event[schema.id].of(raw),
        b"\"]",
    ] {
        named.update(part);
    }
    written.extend_from_slice(b",\"datacontenttype\":\"application/json\",\"id\":\"");
    written.extend_from_slice(&hexadecimal(named));
    written.extend_from_slice(
        b"\",\"source\":\"urn:assay-stream\",\"specversion\":\"1.0\",\"subject\":",
    );
    quote(written, tool_name);
    written.extend_from_slice(b",\"time\":");
    quote(written, plain.event[schema.time].of(raw));
    let traceparent = plain.event[schema.traceparent];
    if traceparent.is_given() {
        written.extend_from_slice(b",\"traceparent\":");
        quote(written, traceparent.of(raw));
    }
    written.extend_from_slice(TYPE_AND_END);
}

fn number(written: &mut Vec<u8>, value: u64) {
    let mut digits = [0; 20];
    let mut begin = digits.len();
    let mut rest = value;
    loop {
        begin -= 1;
        digits[begin] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    written.extend_from_slice(&digits[begin..]);
}

fn hexadecimal(digest: Sha256) -> [u8; 64] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut written = [0; 64];
    for (two, byte) in written.chunks_exact_mut(2).zip(digest.finalize()) {
        two[0] = DIGITS[(byte >> 4) as usize];
        two[1] = DIGITS[(byte & 15) as usize];
    }
    written
}
