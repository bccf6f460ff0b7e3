//! A queue that loses no job and does none twice.
//!
//! ```console
//! $ cargo run -p tombolo-examples --bin queue
//! ```
//!
//! What to copy:
//! 1. Numbers as keys are big-endian, so that they sort as numbers.
//! 2. Writes that are on their way together share one sync: start them all, then wait.
//! 3. A batch takes a job away and keeps its result in one step. After a crash the job is either
//!    still there, or its result is.
//! 4. A scan begins behind what was taken: deleted entries cost until compaction drops them.

use tombolo::{Batch, Db, Error, ErrorKind, Keyspace, KeyspaceOptions, Result};

struct Queue {
    db: Db,
    jobs: Keyspace,
    results: Keyspace,
    /// The number of the next job.
    next: u64,
    /// Jobs below this number were taken.
    taken: u64,
}

impl Queue {
    /// Opens the queue as it was left. The process that had it before is fenced.
    fn open(uri: &str) -> Result<Queue> {
        let db = Db::builder(uri).open().wait()?;
        let jobs = db.open_or_create_keyspace("jobs", KeyspaceOptions::default()).wait()?;
        let results = db.open_or_create_keyspace("results", KeyspaceOptions::default()).wait()?;
        // Both ends follow from the jobs that are there: nothing else has to be kept.
        let first = jobs.scan::<&[u8]>(..).next().transpose()?;
        let last = last_number(&jobs)?.max(last_number(&results)?);
        let next = last.map_or(0, |number| number + 1);
        let taken = first.map_or(Ok(next), |(key, _)| number_of(&key))?;
        Ok(Queue { db, jobs, results, next, taken })
    }

    /// Adds jobs; durable on return.
    fn push_all<'a>(&mut self, jobs: impl IntoIterator<Item = &'a str>) -> Result<()> {
        let mut started = Vec::new();
        for job in jobs {
            started.push(self.jobs.put(self.next.to_be_bytes(), job));
            self.next += 1;
        }
        started.into_iter().try_for_each(tombolo::Op::wait)
    }

    /// Does the oldest job, keeps its result, and takes it away. `None` when there is none.
    fn work(&mut self, work: impl FnOnce(&str) -> String) -> Result<Option<String>> {
        let Some(entry) = self.jobs.scan(self.taken.to_be_bytes()..).next() else { return Ok(None) };
        let (key, job) = entry?;
        let result = work(&String::from_utf8_lossy(&job));
        let mut batch = Batch::new();
        batch.delete(&self.jobs, &key).put(&self.results, &key, &result);
        self.db.write(batch).wait()?;
        self.taken = number_of(&key)? + 1;
        Ok(Some(result))
    }
}

fn last_number(keyspace: &Keyspace) -> Result<Option<u64>> {
    let mut scan = keyspace.scan::<&[u8]>(..);
    scan.seek_to_last();
    scan.prev().transpose()?.map(|(key, _)| number_of(&key)).transpose()
}

fn number_of(key: &[u8]) -> Result<u64> {
    let bytes =
        key.try_into().map_err(|_| Error::new(ErrorKind::Corrupt, "a key of this queue has 8 bytes"))?;
    Ok(u64::from_be_bytes(bytes))
}

fn main() -> std::result::Result<(), Box<dyn std::error::Error>> {
    let folder = tempfile::tempdir()?;
    let uri = format!("file://{}/queue", folder.path().display());

    let mut queue = Queue::open(&uri)?;
    let jobs: Vec<String> = (0..1000).map(|number| format!("resize picture {number}")).collect();
    queue.push_all(jobs.iter().map(String::as_str))?;
    for _ in 0..600 {
        queue.work(|job| format!("done: {job}"))?;
    }
    println!("600 of 1000 jobs are done; the process ends without closing the database");
    drop(queue);

    let mut queue = Queue::open(&uri)?;
    println!("opened again: jobs {} to {} are waiting", queue.taken, queue.next - 1);
    let mut done = 0;
    while let Some(result) = queue.work(|job| format!("done: {job}"))? {
        done += 1;
        if done == 400 {
            println!("the last result: {result}");
        }
    }
    let results = queue.results.scan::<&[u8]>(..).count();
    println!("{done} more were done, {results} results, no job twice");
    assert_eq!((done, results), (400, 1000));
    queue.db.close().wait()?;
    Ok(())
}
