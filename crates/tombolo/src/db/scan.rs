//! A cursor over the keys of a range.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tombolo_storage::{Error, Result};

use crate::db::Handle;
use crate::read::RangeCursor;
use crate::value::Value;

/// A cursor between the entries of a range, at one moment of the database.
///
/// It stands in a gap: `next` gives the entry after the gap and steps over it, `prev` the entry before it. As an iterator it blocks
/// the calling thread on a miss; the `_async` verbs do not. After an error it stays where it was.
#[derive(Debug)]
pub struct Scan {
    handle: Arc<Handle>,
    /// What opening it failed with, which every verb answers.
    cursor: std::result::Result<RangeCursor, Error>,
}

impl Scan {
    pub(crate) fn new(handle: Arc<Handle>, cursor: Result<RangeCursor>) -> Scan {
        Scan { handle, cursor }
    }

    fn cursor(&mut self) -> Result<&mut RangeCursor> {
        self.cursor.as_mut().map_err(|error| error.clone())
    }

    /// The entry before the cursor, which steps back over it; `None` at the range's start. Blocks on a miss.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub fn prev(&mut self) -> Option<Result<(Value, Value)>> {
        let handle = Arc::clone(&self.handle);
        wait(&handle, self.prev_async()).transpose()
    }

    /// Moves the cursor before the first key at or after `key`, within the range.
    pub fn seek(&mut self, key: impl AsRef<[u8]>) {
        if let Ok(cursor) = &mut self.cursor {
            cursor.seek(key.as_ref());
        }
    }

    /// Moves the cursor before the first entry.
    pub fn seek_to_first(&mut self) {
        if let Ok(cursor) = &mut self.cursor {
            cursor.seek_to_first();
        }
    }

    /// Moves the cursor after the last entry.
    pub fn seek_to_last(&mut self) {
        if let Ok(cursor) = &mut self.cursor {
            cursor.seek_to_last();
        }
    }

    /// As the iterator's `next`, without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn next_async(&mut self) -> Result<Option<(Value, Value)>> {
        match self.cursor()?.next().await {
            Ok(entry) => Ok(entry.map(values)),
            Err(error) => Err(self.handle.engine.judge(error).await),
        }
    }

    /// As [`Scan::prev`], without blocking.
    ///
    /// # Errors
    /// As [`crate::Keyspace::get`].
    pub async fn prev_async(&mut self) -> Result<Option<(Value, Value)>> {
        match self.cursor()?.prev().await {
            Ok(entry) => Ok(entry.map(values)),
            Err(error) => Err(self.handle.engine.judge(error).await),
        }
    }
}

fn values((key, value): (bytes::Bytes, bytes::Bytes)) -> (Value, Value) {
    (Value::from(key), Value::from(value))
}

/// Waits for a step, which most often needs no waiting.
fn wait<T: Send>(handle: &Handle, step: impl Future<Output = Result<T>> + Send) -> Result<T> {
    let mut step = pin!(step);
    match step.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(result) => result,
        Poll::Pending => handle.engine.env.block_on(step),
    }
}

impl Iterator for Scan {
    type Item = Result<(Value, Value)>;

    fn next(&mut self) -> Option<Result<(Value, Value)>> {
        let handle = Arc::clone(&self.handle);
        wait(&handle, self.next_async()).transpose()
    }
}
