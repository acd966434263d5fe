//! Plain calls, read and written as evidence: the same bytes as the Python path writes, or nothing.
//!
//! What a call may hold is declared in Python and arrives as a schema. Whatever is not plainly that is declined, and
//! the Python path decides.

mod evidence;
mod read;
mod schema;
mod text;
mod time;

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::evidence::Joined;
use crate::read::Plain;
use crate::schema::{Declared, Schema};

/// Reads calls.
#[pyclass(frozen)]
struct Reader {
    schema: Arc<Schema>,
}

#[pymethods]
impl Reader {
    /// `event` and `data` declare the fields of a call; `constants` are written with each digest of a definition.
    #[new]
    fn new(
        event: Vec<Declared>,
        data: Vec<Declared>,
        constants: Vec<(String, String)>,
    ) -> PyResult<Self> {
        let schema = Schema::new(event, data, constants).map_err(PyValueError::new_err)?;
        Ok(Self {
            schema: Arc::new(schema),
        })
    }

    /// Return a plain call, or `None` where the Python path has to decide.
    fn read(&self, raw: Bound<'_, PyBytes>) -> Option<Call> {
        let plain = read::read(raw.as_bytes(), &self.schema)?;
        Some(self.call(raw, plain))
    }

    /// Return what `read` returns for each; other threads of Python run meanwhile.
    fn read_many(&self, py: Python<'_>, raws: Vec<Bound<'_, PyBytes>>) -> Vec<Option<Call>> {
        let held: Vec<&[u8]> = raws.iter().map(|raw| raw.as_bytes()).collect();
        let schema = &*self.schema;
        let plains: Vec<Option<Plain>> =
            py.allow_threads(|| held.iter().map(|bytes| read::read(bytes, schema)).collect());
        raws.into_iter()
            .zip(plains)
            .map(|(raw, plain)| plain.map(|plain| self.call(raw, plain)))
            .collect()
    }
}

impl Reader {
    fn call(&self, raw: Bound<'_, PyBytes>, plain: Plain) -> Call {
        let (py, bytes) = (raw.py(), raw.as_bytes());
        let text = |span: read::Span| PyString::new(py, text::of(bytes, span)).unbind();
        let data = |index: usize| text(plain.data[index]);
        let optional = |span: read::Span| span.is_given().then(|| text(span));
        Call {
            time_us: plain.time_us,
            server_id: data(self.schema.server_id),
            tool_name: data(self.schema.tool_name),
            observer_id: data(self.schema.observer_id),
            snapshot_id: optional(plain.data[self.schema.snapshot_id]),
            traceparent: optional(plain.event[self.schema.traceparent]),
            schema: self.schema.clone(),
            raw: raw.clone().unbind(),
            plain,
        }
    }
}

/// A plain call; its fields by the names that the Python path gives them.
#[pyclass(frozen)]
struct Call {
    schema: Arc<Schema>,
    raw: Py<PyBytes>,
    plain: Plain,
    #[pyo3(get)]
    time_us: i64,
    #[pyo3(get)]
    server_id: Py<PyString>,
    #[pyo3(get)]
    tool_name: Py<PyString>,
    #[pyo3(get)]
    observer_id: Py<PyString>,
    #[pyo3(get)]
    snapshot_id: Option<Py<PyString>>,
    #[pyo3(get)]
    traceparent: Option<Py<PyString>>,
}

impl Call {
    fn text<'py>(&self, py: Python<'py>, span: read::Span) -> Bound<'py, PyString> {
        PyString::new(py, text::of(self.raw.as_bytes(py), span))
    }
}

#[pymethods]
impl Call {
    #[getter]
    fn source<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.text(py, self.plain.event[self.schema.source])
    }

    #[getter]
    fn id<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.text(py, self.plain.event[self.schema.id])
    }

    #[getter]
    fn time<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.text(py, self.plain.event[self.schema.time])
    }

    #[getter]
    fn decision<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        self.text(py, self.plain.data[self.schema.decision])
    }
}

/// What evidence says of the definition that was in force; all of it canonical.
#[pyclass(frozen)]
pub struct Part {
    binding: Vec<u8>,
    identity: Option<Vec<u8>>,
    digest: Option<Vec<u8>>,
    unbound_reason: Option<Vec<u8>>,
}

#[pymethods]
impl Part {
    #[new]
    fn new(
        binding: Vec<u8>,
        identity: Option<Vec<u8>>,
        digest: Option<Vec<u8>>,
        unbound_reason: Option<Vec<u8>>,
    ) -> Self {
        Self {
            binding,
            identity,
            digest,
            unbound_reason,
        }
    }
}

/// A call; its topic as a JSON text, partition and offset; what was in force; pin and signature, canonical.
type Writing<'py> = (
    Bound<'py, Call>,
    Bound<'py, PyBytes>,
    u64,
    u64,
    Bound<'py, Part>,
    Bound<'py, PyBytes>,
    Option<Bound<'py, PyBytes>>,
);

/// About what a record of evidence takes.
const RECORD_BYTES: usize = 2_200;

/// Return the record of evidence of each call; other threads of Python run meanwhile. `producer` is its fragment of the
/// envelope.
#[pyfunction]
fn write<'py>(
    py: Python<'py>,
    writings: Vec<Writing<'py>>,
    producer: &[u8],
) -> Vec<Bound<'py, PyBytes>> {
    let calls: Vec<Joined> = writings
        .iter()
        .map(|(call, topic, partition, offset, part, pin, signature)| {
            let call = call.get();
            Joined {
                raw: call.raw.as_bytes(py),
                plain: &call.plain,
                schema: &call.schema,
                topic: topic.as_bytes(),
                partition: *partition,
                offset: *offset,
                part: part.get(),
                pin: pin.as_bytes(),
                signature: signature.as_ref().map(|each| each.as_bytes()),
            }
        })
        .collect();
    let (written, ends) = py.allow_threads(|| {
        // One after the other in one piece of memory: each is copied once more.
        let mut written = Vec::with_capacity(calls.len() * RECORD_BYTES);
        let ends: Vec<usize> = calls
            .iter()
            .map(|call| {
                evidence::record(&mut written, call, producer);
                written.len()
            })
            .collect();
        (written, ends)
    });
    let mut begin = 0;
    ends.into_iter()
        .map(|end| PyBytes::new(py, &written[std::mem::replace(&mut begin, end)..end]))
        .collect()
}

#[pymodule]
fn assay_stream_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Reader>()?;
    module.add_class::<Call>()?;
    module.add_class::<Part>()?;
    module.add_function(wrap_pyfunction!(write, module)?)
}
