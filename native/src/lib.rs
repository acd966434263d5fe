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

use crate::evidence::Place;
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
        let (py, bytes) = (raw.py(), raw.as_bytes());
        let plain = read::read(bytes, &self.schema)?;
        let text = |span: read::Span| PyString::new(py, text::of(bytes, span)).unbind();
        let data = |index: usize| text(plain.data[index]);
        let optional = |span: read::Span| span.is_given().then(|| text(span));
        Some(Call {
            time_us: plain.time_us,
            server_id: data(self.schema.server_id),
            tool_name: data(self.schema.tool_name),
            observer_id: data(self.schema.observer_id),
            snapshot_id: optional(plain.data[self.schema.snapshot_id]),
            traceparent: optional(plain.event[self.schema.traceparent]),
            schema: self.schema.clone(),
            raw: raw.unbind(),
            plain,
        })
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

    /// Return the whole record of evidence.
    ///
    /// `topic` is quoted; `producer` is the producer's fragment of the envelope; `pin` and `signature` are canonical.
    #[pyo3(signature = (topic, partition, offset, part, pin, signature, producer))]
    #[allow(clippy::too_many_arguments)] // as the parts of a record of evidence are many
    fn evidence<'py>(
        &self,
        py: Python<'py>,
        topic: &[u8],
        partition: u64,
        offset: u64,
        part: &Bound<'py, Part>,
        pin: &[u8],
        signature: Option<&[u8]>,
        producer: &[u8],
    ) -> Bound<'py, PyBytes> {
        let place = Place::new(topic, partition, offset);
        let raw = self.raw.as_bytes(py);
        let payload = evidence::payload(
            raw,
            &self.plain,
            &self.schema,
            &place,
            part.get(),
            pin,
            signature,
        );
        let written = evidence::envelope(raw, &self.plain, &self.schema, &payload, producer);
        PyBytes::new(py, &written)
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

#[pymodule]
fn assay_stream_native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("VERSION", env!("CARGO_PKG_VERSION"))?;
    module.add_class::<Reader>()?;
    module.add_class::<Call>()?;
    module.add_class::<Part>()
}
