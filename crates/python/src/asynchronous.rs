//! Futures of asyncio that the engine's threads resolve.

use pyo3::prelude::*;
use tombolo::{Env, Op};
use tombolo_env::TaskClass;

use crate::error::raised;

/// A future of the running loop, which gets what the operation of `start` comes to. Without a
/// running loop nothing is begun. The loop is told by `call_soon_threadsafe`; a future that was
/// cancelled meanwhile stays so, and the operation goes on.
pub fn begin<'py, T: Send + 'static>(
    python: Python<'py>,
    env: &Env,
    start: impl FnOnce() -> Op<T>,
    to_python: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
) -> PyResult<Bound<'py, PyAny>> {
    let event_loop = python.import("asyncio")?.call_method0("get_running_loop")?;
    let future = event_loop.call_method0("create_future")?;
    let resolve = python.import("tombolo._asyncio")?.getattr("resolve")?.unbind();
    let (event_loop, promised) = (event_loop.unbind(), future.clone().unbind());
    let op = start();
    let work = async move {
        let ended = op.await;
        Python::attach(|python| {
            let result = ended.map_err(|error| raised(&error)).and_then(|value| to_python(python, value));
            let (value, error) = match result {
                Ok(value) => (value, python.None()),
                Err(error) => (python.None(), error.into_value(python).into_any()),
            };
            let told = (resolve, promised, value, error);
            let told = event_loop.call_method1(python, "call_soon_threadsafe", told);
            // A loop that is closed has nobody who waits.
            drop(told);
        });
    };
    env.spawn(TaskClass::Foreground, "operation of asyncio", work).detach();
    Ok(future)
}
