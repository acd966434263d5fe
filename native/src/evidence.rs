//! Evidence of a plain call: the canonical payload (RFC 8785) in its envelope, with both hashes.

use sha2::{Digest, Sha256};

use crate::read::{quote, separate, value, Plain};
use crate::schema::{Schema, Slot};
use crate::Part;

const TYPE_AND_END: &[u8] = b",\"type\":\"assay.tool.decision\"}";
const MIDDLE: &[u8] =
    b",\"datacontenttype\":\"application/json\",\"specversion\":\"1.0\",\"subject\":";

/// Where a call stands, in canonical form.
pub struct Place {
    written: Vec<u8>,
}

impl Place {
    /// `topic` is a JSON text.
    pub fn new(topic: &[u8], partition: u64, offset: u64) -> Self {
        let mut written =
            format!("{{\"offset\":{offset},\"partition\":{partition},\"topic\":").into_bytes();
        written.extend_from_slice(topic);
        written.push(b'}');
        Self { written }
    }
}

/// Return the payload.
pub fn payload(
    raw: &[u8],
    plain: &Plain,
    schema: &Schema,
    place: &Place,
    part: &Part,
    pin: &[u8],
    signature: Option<&[u8]>,
) -> Vec<u8> {
    let mut written = Vec::with_capacity(raw.len() + 1_500);
    written.push(b'{');
    for (name, slot) in &schema.payload {
        let mut put = |bytes: &[u8]| {
            separate(&mut written, b'{');
            written.extend_from_slice(name);
            written.extend_from_slice(bytes);
        };
        match slot {
            Slot::Binding => put(&part.binding),
            Slot::Origin => put(&place.written),
            Slot::Pin => put(pin),
            Slot::Signature => signature.into_iter().for_each(put),
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
                quote(&mut written, plain.data[schema.tool_name].of(raw));
            }
            Slot::Call(index) => {
                let span = plain.data[*index];
                if let Some((_, canonical)) = plain.canonical.iter().find(|(each, _)| each == index)
                {
                    put(canonical);
                } else if span.is_given() {
                    put(b"");
                    value(&mut written, &schema.data.all[*index].kind, span.of(raw));
                }
            }
        }
    }
    written.push(b'}');
    written
}

/// Return the record: the payload in its envelope, whose content hash covers type, subject and payload.
pub fn envelope(
    raw: &[u8],
    plain: &Plain,
    schema: &Schema,
    payload: &[u8],
    producer: &[u8],
) -> Vec<u8> {
    let mut subject = Vec::new();
    quote(&mut subject, plain.data[schema.tool_name].of(raw));
    let mut covered = Sha256::new();
    for part in [b"{\"data\":", payload, MIDDLE, &subject, TYPE_AND_END] {
        covered.update(part);
    }
    let mut named = Sha256::new();
    named.update(b"[\"");
    named.update(plain.event[schema.source].of(raw));
    named.update(b"\",\"");
    named.update(plain.event[schema.id].of(raw));
    named.update(b"\"]");
    let mut written = Vec::with_capacity(payload.len() + producer.len() + 600);
    written.extend_from_slice(b"{\"assaycontenthash\":\"sha256:");
    written.extend_from_slice(&hexadecimal(covered));
    written.extend_from_slice(producer);
    written.extend_from_slice(payload);
    written.extend_from_slice(b",\"datacontenttype\":\"application/json\",\"id\":\"");
    written.extend_from_slice(&hexadecimal(named));
    written.extend_from_slice(
        b"\",\"source\":\"urn:assay-stream\",\"specversion\":\"1.0\",\"subject\":",
    );
    written.extend_from_slice(&subject);
    written.extend_from_slice(b",\"time\":");
    quote(&mut written, plain.event[schema.time].of(raw));
    let traceparent = plain.event[schema.traceparent];
    if traceparent.is_given() {
        written.extend_from_slice(b",\"traceparent\":");
        quote(&mut written, traceparent.of(raw));
    }
    written.extend_from_slice(TYPE_AND_END);
    written
}

fn hexadecimal(digest: Sha256) -> Vec<u8> {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    digest
        .finalize()
        .iter()
        .flat_map(|byte| [DIGITS[(byte >> 4) as usize], DIGITS[(byte & 15) as usize]])
        .collect()
}
