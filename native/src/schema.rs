//! What a call may hold, as Python declares it.

use pyo3::prelude::*;

/// A field as Python declares it: name, whether it is required, kind, bounds, and texts.
///
/// Kinds: `text` (bounds in code points; texts hold the name of a class of characters), `one_of` (texts), `list`
/// (at most `high` of the texts), `integer`, `number`, `boolean`, `time`, `never`, and `object` with fields.
#[derive(FromPyObject)]
pub struct Declared {
    name: String,
    required: bool,
    kind: String,
    low: u64,
    high: u64,
    texts: Vec<String>,
    fields: Vec<Declared>,
    dropped: bool,
}

/// Characters that a text is made of.
#[derive(Clone, Copy, PartialEq)]
pub enum Class {
    Any,
    Token,
    Sha256,
    Traceparent,
}

pub enum Kind {
    Text { low: u64, high: u64, class: Class },
    OneOf(Vec<Vec<u8>>),
    List { of: Vec<Vec<u8>>, most: u64 },
    Integer { low: u64, high: u64 },
    Number,
    Boolean,
    Time,
    Never,
    Object(Fields),
}

pub struct Field {
    pub name: Vec<u8>,
    pub required: bool,
    pub kind: Kind,
    /// Read, and left out of evidence.
    pub dropped: bool,
}

/// Fields in the order in which evidence has them.
pub struct Fields {
    pub all: Vec<Field>,
    /// The fields that have to be there, one bit each.
    pub required: u64,
    by_length: Vec<Vec<usize>>,
}

impl Fields {
    fn new(declared: Vec<Declared>) -> Result<Self, String> {
        let all = declared
            .into_iter()
            .map(field)
            .collect::<Result<Vec<_>, _>>()?;
        if all.len() > 64 || all.windows(2).any(|two| two[0].name >= two[1].name) {
            return Err("fields are given in order, each once, and 64 at most".into());
        }
        let longest = all.iter().map(|each| each.name.len()).max().unwrap_or(0);
        let mut by_length = vec![Vec::new(); longest + 1];
        for (index, each) in all.iter().enumerate() {
            by_length[each.name.len()].push(index);
        }
        let required = all
            .iter()
            .enumerate()
            .filter(|(_, each)| each.required)
            .fold(0, |bits, (index, _)| bits | 1 << index);
        Ok(Self {
            all,
            required,
            by_length,
        })
    }

    /// Return the number of a field.
    pub fn find(&self, name: &[u8]) -> Option<usize> {
        let candidates = self.by_length.get(name.len())?;
        candidates
            .iter()
            .copied()
            .find(|&index| self.all[index].name == name)
    }

    fn number(&self, name: &str) -> Result<usize, String> {
        self.find(name.as_bytes())
            .ok_or_else(|| format!("no field {name} is declared"))
    }
}

fn field(declared: Declared) -> Result<Field, String> {
    let texts = || {
        declared
            .texts
            .iter()
            .map(|each| each.clone().into_bytes())
            .collect::<Vec<_>>()
    };
    let kind = match declared.kind.as_str() {
        "text" => Kind::Text {
            low: declared.low,
            high: declared.high,
            class: class(&declared.texts)?,
        },
        "one_of" => Kind::OneOf(texts()),
        "list" => Kind::List {
            of: texts(),
            most: declared.high,
        },
        "integer" => Kind::Integer {
            low: declared.low,
            high: declared.high,
        },
        "number" => Kind::Number,
        "boolean" => Kind::Boolean,
        "time" => Kind::Time,
        "never" => Kind::Never,
        "object" => Kind::Object(Fields::new(declared.fields)?),
        other => return Err(format!("no kind is called {other}")),
    };
    Ok(Field {
        name: declared.name.into_bytes(),
        required: declared.required,
        kind,
        dropped: declared.dropped,
    })
}

fn class(texts: &[String]) -> Result<Class, String> {
    match texts.first().map(String::as_str) {
        None => Ok(Class::Any),
        Some("token") => Ok(Class::Token),
        Some("sha256") => Ok(Class::Sha256),
        Some("traceparent") => Ok(Class::Traceparent),
        Some(other) => Err(format!("no class of characters is called {other}")),
    }
}

/// What stands in a place of the payload.
pub enum Slot {
    Call(usize),
    Binding,
    Origin,
    Pin,
    Signature,
    Tool,
    Identity,
    Digest,
    Constant(Vec<u8>),
    UnboundReason,
}

pub struct Schema {
    pub event: Fields,
    pub data: Fields,
    /// `"name":` of each place of the payload in order, and what stands there.
    pub payload: Vec<(Vec<u8>, Slot)>,
    pub source: usize,
    pub id: usize,
    pub time: usize,
    pub traceparent: usize,
    pub data_field: usize,
    pub server_id: usize,
    pub tool_name: usize,
    pub observer_id: usize,
    pub snapshot_id: usize,
    pub tool_call_id: usize,
    pub decision: usize,
}

impl Schema {
    pub fn new(
        event: Vec<Declared>,
        data: Vec<Declared>,
        constants: Vec<(String, String)>,
    ) -> Result<Self, String> {
        let (event, data) = (Fields::new(event)?, Fields::new(data)?);
        let mut payload = Vec::new();
        for (index, each) in data.all.iter().enumerate() {
            let name = String::from_utf8_lossy(&each.name).into_owned();
            let constant = constants.iter().find(|(constant, _)| *constant == name);
            let slot = match name.as_str() {
                "binding" => Slot::Binding,
                "origin" => Slot::Origin,
                "pin" => Slot::Pin,
                "signature" => Slot::Signature,
                "tool" => Slot::Tool,
                "tool_identity" => Slot::Identity,
                "tool_definition_digest" => Slot::Digest,
                "unbound_reason" => Slot::UnboundReason,
                _ if constant.is_some() => Slot::Constant(
                    constant
                        .map(|(_, text)| format!("\"{text}\"").into_bytes())
                        .unwrap_or_default(),
                ),
                _ if each.dropped || matches!(each.kind, Kind::Never) => continue,
                _ => Slot::Call(index),
            };
            payload.push((format!("\"{name}\":").into_bytes(), slot));
        }
        Ok(Self {
            source: event.number("source")?,
            id: event.number("id")?,
            time: event.number("time")?,
            traceparent: event.number("traceparent")?,
            data_field: event.number("data")?,
            server_id: data.number("server_id")?,
            tool_name: data.number("tool_name")?,
            observer_id: data.number("observer_id")?,
            snapshot_id: data.number("snapshot_id")?,
            tool_call_id: data.number("tool_call_id")?,
            decision: data.number("decision")?,
            event,
            data,
            payload,
        })
    }
}
