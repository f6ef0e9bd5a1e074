//! The Python binding of Larder: what the package `larder` needs from Rust.
//!
//! Each method returns a [`call::Call`], which Python waits for on its thread or on an event loop. The
//! package adds the classes that users see.

mod blobs;
mod call;
mod callback;
mod checkpoints;
mod errors;
mod graph;
mod history;
mod input;
mod key_value;
mod mcp;
mod output;
mod process;
mod stores;
mod stream;
mod tasks;
mod toolkit;
mod transcripts;
mod transfer;
mod vectors;

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<call::Call>()?;
    module.add_class::<stores::NativeStores>()?;
    module.add_class::<history::NativeHistory>()?;
    module.add_class::<stream::NativeEvents>()?;
    module.add_class::<key_value::NativeKeyValue>()?;
    module.add_class::<vectors::NativeVectors>()?;
    module.add_class::<graph::NativeGraph>()?;
    module.add_class::<blobs::NativeBlobs>()?;
    module.add_class::<tasks::NativeTasks>()?;
    module.add_class::<checkpoints::NativeCheckpoints>()?;
    module.add_class::<toolkit::NativeContext>()?;
    module.add_class::<toolkit::NativePipeline>()?;
    module.add_class::<toolkit::NativeCompactionAgent>()?;
    module.add_class::<callback::NativeReply>()?;
    module.add_class::<transcripts::NativeTranscript>()?;
    module.add_function(wrap_pyfunction!(stores::pipeline, module)?)?;
    module.add_function(wrap_pyfunction!(transcripts::transcript_lines, module)?)?;
    module.add_function(wrap_pyfunction!(transfer::copy_stores, module)?)?;
    module.add_class::<mcp::NativeMcpServer>()?;
    module.add_class::<mcp::NativeMcpListener>()?;
    module.add_function(wrap_pyfunction!(stores::open, module)?)?;
    module.add_function(wrap_pyfunction!(process::end_deliveries, module)?)
}
