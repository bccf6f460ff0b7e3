//! Counters that count each request once, however often it is tried.
//!
//! ```console
//! $ cargo run -p tombolo-examples --bin counter
//! ```
//!
//! What to copy:
//! 1. A write whose outcome is unknown is tried again safely when it carries the request's id: the
//!    batch that counts also remembers the id.
//! 2. Read, change and start the write under a lock; wait for the write outside of it. Writes keep
//!    the order of the calls, so that no increment is lost, and threads share syncs.
//! 3. A snapshot gives sums that belong together, beside writers.

use std::sync::{Arc, Mutex, PoisonError};

use tombolo::{Batch, Db, ErrorKind, Keyspace, KeyspaceOptions, Result};

#[derive(Clone)]
struct Counters {
    db: Db,
    counts: Keyspace,
    /// Ids of requests that were counted. A real service drops old ones.
    seen: Keyspace,
    changing: Arc<Mutex<()>>,
}

impl Counters {
    fn open(uri: &str) -> Result<Counters> {
        let db = Db::builder(uri).open().wait()?;
        let counts = db.open_or_create_keyspace("counts", KeyspaceOptions::default()).wait()?;
        let seen = db.open_or_create_keyspace("seen", KeyspaceOptions::default()).wait()?;
        Ok(Counters { db, counts, seen, changing: Arc::new(Mutex::new(())) })
    }

    /// Counts `name` once for `request`; durable on return.
    fn increment(&self, name: &str, request: u64) -> Result<()> {
        let write = {
            let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            if self.seen.get(request.to_be_bytes()).wait()?.is_some() {
                // Counted before. It may still be on its way to the log: wait for that.
                self.db.sync()
            } else {
                let count = self.read(name)? + 1;
                let mut batch = Batch::new();
                batch.put(&self.counts, name, count.to_be_bytes()).put(&self.seen, request.to_be_bytes(), "");
                self.db.write(batch)
            }
        };
        write.wait()
    }

    /// As [`Counters::increment`], again and again while it may help.
    fn increment_surely(&self, name: &str, request: u64) -> Result<()> {
        for _ in 0..5 {
            match self.increment(name, request) {
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::OutcomeUnknown | ErrorKind::Retry | ErrorKind::Busy
                    ) => {}
                ended => return ended,
            }
        }
        self.increment(name, request)
    }

    fn read(&self, name: &str) -> Result<u64> {
        let count = self.counts.get_with(name, |bytes| bytes.try_into().map(u64::from_be_bytes)).wait()?;
        Ok(count.and_then(std::result::Result::ok).unwrap_or(0))
    }
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let uri = format!("file://{}/counters", folder.path().display());
    let counters = Counters::open(&uri)?;

    // Eight threads count 4,000 requests, and every tenth request comes twice.
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread| {
                let counters = counters.clone();
                scope.spawn(move || -> Result<()> {
                    for request in (thread..4000).step_by(8) {
                        let name = if request % 2 == 0 { "even" } else { "odd" };
                        counters.increment_surely(name, request)?;
                        if request % 10 == 0 {
                            counters.increment_surely(name, request)?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a counting thread panicked"))
    })?;

    let moment = counters.db.snapshot();
    for entry in moment.scan::<&[u8]>(&counters.counts, ..) {
        let (name, count) = entry?;
        let count = u64::from_be_bytes(count[..].try_into()?);
        println!("{}: {count}", String::from_utf8_lossy(&name));
        assert_eq!(count, 2000);
    }
    drop(moment);
    counters.db.close().wait()?;
    Ok(())
}
