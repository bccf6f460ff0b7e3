//! How long a store may stay silent to one who writes a table.
//!
//! A store that neither answers nor fails would be waited for without end, and with it every write
//! that waits for the flush. So a request counts as lost after its time: the table is given up, and
//! the flush or compaction is made again, under another name. Each time that a request was lost the
//! next ones have twice as long, until a table is whole that is as large as the one that was
//! lost: so a store that is slow and not silent comes to answer, whatever small tables
//! it takes meanwhile.

use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Env, within};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

/// How long one request may take, beside the time for the bytes of its table.
const SECONDS: u64 = 60;
/// The longest, after requests that were lost.
const SECONDS_MAX: u64 = 3600;
/// The slowest line.
const BYTES_PER_SECOND_MIN: u64 = 256 << 10;

/// The time that requests for tables have, shared by all tables of a database.
#[derive(Debug, Default)]
pub(crate) struct Silence(Mutex<Time>);

#[derive(Debug)]
struct Time {
    seconds: u64,
    /// Bytes of the largest table of which a request was lost since it was `SECONDS`.
    lost_bytes: u64,
}

impl Default for Time {
    fn default() -> Time {
        Time { seconds: SECONDS, lost_bytes: 0 }
    }
}

impl Silence {
    /// The answer to a request for a table of `bytes` so far.
    ///
    /// # Errors
    /// The request's own; `OutcomeUnknown` when its time is over: it may take effect later. Of a
    /// table that nothing names that is garbage.
    pub(super) async fn bounds<T>(
        &self,
        env: &Env,
        bytes: u64,
        request: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let seconds = self.0.lock().seconds;
        let counted = if is_enabled(Mutant::TableSilenceIgnoresBytes) { 0 } else { bytes };
        let time_max = Duration::from_secs(seconds + counted / BYTES_PER_SECOND_MIN);
        if is_enabled(Mutant::TableSilenceUnbounded) {
            return request.await;
        }
        match within(env, time_max, request).await {
            Some(answer) => answer,
            None => {
                let longer = (seconds * 2).min(SECONDS_MAX);
                if !is_enabled(Mutant::TableSilenceNeverLonger) {
                    let mut time = self.0.lock();
                    time.seconds = time.seconds.max(longer);
                    time.lost_bytes = time.lost_bytes.max(bytes);
                }
                let silent = format!("the store has not answered for {time_max:?} what became of a table");
                Err(Error::new(ErrorKind::OutcomeUnknown, silent)
                    .advice("it is written again; let `tombolo doctor` look at the store"))
            }
        }
    }

    /// A table of so many bytes is whole: the store answers for such.
    pub(super) fn answered(&self, bytes: u64) {
        let mut time = self.0.lock();
        if bytes >= time.lost_bytes && !is_enabled(Mutant::TableSilenceStaysLong) {
            *time = Time::default();
        }
    }
}

#[cfg(test)]
mod tests;
