//! A pair: one process writes, another stands by and goes on when the first is killed.
//!
//! ```console
//! $ cargo run -p tombolo-examples --bin standby
//! ```
//!
//! It starts itself once more as the writer, stands by, kills the writer with SIGKILL, and checks
//! that every write that the writer had reported is there. On two machines, name a store that both
//! reach: an `s3://` bucket in the place of the directory.
//!
//! What to copy:
//! 1. The writer opens, and ends when it is told `Fenced`.
//! 2. The standby calls `stand_by`, then `take_over`, which ends once it is the writer.
//! 3. `silence_max` is longer than the store's slowest put.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tombolo::{Db, ErrorKind, StandbyOptions};

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    match std::env::args().nth(1) {
        Some(uri) => write(&uri),
        None => stand_by(),
    }
}

/// The writer: writes numbers, each durable before it is reported.
fn write(uri: &str) -> Result<(), Failure> {
    let db = Db::builder(uri).open().wait()?;
    let numbers = db.default_keyspace();
    let mut output = std::io::stdout();
    for number in 0_u64.. {
        match numbers.put(number.to_be_bytes(), "written").wait() {
            // Another process has the database: this one has nothing left to do.
            Err(error) if error.kind() == ErrorKind::Fenced => return Ok(()),
            ended => ended?,
        }
        writeln!(output, "{number}")?;
    }
    Ok(())
}

/// The standby, which in this example starts and kills the writer as well.
fn stand_by() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let uri = format!("file://{}/pair", folder.path().display());
    let mut writer = Command::new(std::env::current_exe()?).arg(&uri).stdout(Stdio::piped()).spawn()?;
    let mut reports = BufReader::new(writer.stdout.take().ok_or("the writer has no output")?).lines();
    // The database is there once the writer reports its first write.
    reports.next().ok_or("the writer ended")??;

    let options = StandbyOptions { silence_max: Duration::from_millis(500) };
    let standby = Db::builder(&uri).stand_by(options).wait()?;
    let taking_over = standby.take_over();
    println!("standing by for process {}", writer.id());

    // Let it write on for a while, then kill it.
    let mut reported = 0;
    for report in reports.by_ref().take(2000) {
        reported = report?.parse()?;
    }
    writer.kill()?;
    let killed = Instant::now();
    for report in reports {
        reported = report?.parse::<u64>()?;
    }
    writer.wait()?;

    let db = taking_over.wait()?;
    println!("took over {} ms after the kill", killed.elapsed().as_millis());
    let numbers = db.default_keyspace();
    let found = numbers.scan::<&[u8]>(..).count();
    println!("the writer had reported {} writes; {found} are there", reported + 1);
    assert!(found as u64 > reported, "an acknowledged write is lost");
    numbers.put("written by", "the standby").wait()?;
    db.close().wait()?;
    Ok(())
}
