//! Traces as lines of JSON in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tombolo_env::{Access, Env, File};

use super::{Event, Sink};
use crate::{Error, Result};

/// Lines held in memory before they are written.
const BUFFER_BYTES: usize = 8 << 10;

/// Writes each request as one line of JSON to the end of a file, which belongs to one writer at a
/// time. A write that fails is passed over: a trace never breaks what it watches.
#[derive(Debug)]
pub struct JsonLines {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: Arc<dyn File>,
    /// Where `buffer` belongs.
    offset: u64,
    buffer: Vec<u8>,
}

impl State {
    fn flush(&mut self) {
        if self.file.write_all_at(&self.buffer, self.offset).is_ok() {
            self.offset += self.buffer.len() as u64;
        }
        self.buffer.clear();
    }
}

impl JsonLines {
    /// Opens `path`, or makes it.
    ///
    /// # Errors
    /// What the file system says.
    pub fn open(env: &Env, path: impl AsRef<Path>) -> Result<Arc<JsonLines>> {
        let path = path.as_ref();
        let failed = |error| Error::io(error, "opening a trace", path.display());
        let file = match env.files().create_new(path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                env.files().open(path, Access::ReadWrite)
            }
            made => made,
        };
        let file = file.map_err(failed)?;
        let offset = file.length().map_err(failed)?;
        Ok(Arc::new(JsonLines {
            path: path.into(),
            state: Mutex::new(State { file, offset, buffer: Vec::new() }),
        }))
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the lines held in memory.
    pub fn flush(&self) {
        self.state.lock().flush();
    }

    /// A sink for [`super::Tracer::with_sink`]. Lines go out when 8 KiB have come together, on
    /// [`JsonLines::flush`] and at the end.
    pub fn sink(self: &Arc<JsonLines>) -> Sink {
        let lines = Arc::clone(self);
        Arc::new(move |event: &Event| {
            let mut state = lines.state.lock();
            state.buffer.extend_from_slice(event.to_json().as_bytes());
            state.buffer.push(b'\n');
            if state.buffer.len() >= BUFFER_BYTES {
                state.flush();
            }
        })
    }
}

impl Drop for JsonLines {
    fn drop(&mut self) {
        self.state.get_mut().flush();
    }
}
