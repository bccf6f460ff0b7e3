//! A fleet of readers: processes that follow one writer, and serve what it has made durable.
//!
//! ```console
//! $ cargo run -p tombolo-examples --bin readers
//! ```
//!
//! It writes a price list in versions, and starts itself three times more as readers. Each reader
//! shows which version it sees, and that no version is ever half. On other machines, name a store
//! that all reach.
//!
//! What to copy:
//! 1. A reader states its lag: what was durable so long ago is visible.
//! 2. Each snapshot is one cut: all keys of a batch, or none.
//! 3. Readers disturb no writer, and write nothing but pins.

use std::process::{Child, Command};
use std::time::Duration;

use tombolo::{Batch, Db, ErrorKind, ReaderOptions};

type Failure = Box<dyn std::error::Error>;

const ITEMS: u32 = 100;
const VERSIONS: u32 = 50;
const READERS: u32 = 3;

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [uri, name] => read(uri, name),
        _ => write(),
    }
}

/// The writer: each version of the list is one batch.
fn write() -> Result<(), Failure> {
    let folder = tempfile::tempdir()?;
    let uri = format!("file://{}/prices", folder.path().display());
    let db = Db::builder(&uri).open().wait()?;
    let prices = db.default_keyspace();
    let mut readers = Vec::new();
    for version in 1..=VERSIONS {
        let mut batch = Batch::new();
        for item in 0..ITEMS {
            batch.put(&prices, item.to_be_bytes(), version.to_be_bytes());
        }
        db.write(batch).wait()?;
        if version == 1 {
            readers = (1..=READERS).map(|reader| start(&uri, reader)).collect::<Result<_, _>>()?;
        }
        // A list changes now and then.
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("the writer has written {VERSIONS} versions");
    for mut reader in readers {
        if !reader.wait()?.success() {
            return Err("a reader failed".into());
        }
    }
    db.close().wait()?;
    Ok(())
}

fn start(uri: &str, reader: u32) -> std::io::Result<Child> {
    Command::new(std::env::current_exe()?).args([uri, &format!("reader {reader}")]).spawn()
}

/// A reader: follows until it sees the last version.
fn read(uri: &str, name: &str) -> Result<(), Failure> {
    let options = ReaderOptions { lag: Duration::from_millis(100), ..ReaderOptions::default() };
    let reader = Db::open_reader(uri, options).wait()?;
    let prices = reader.default_keyspace();
    let mut seen = 0;
    while seen < VERSIONS {
        let moment = reader.snapshot();
        let mut versions = Vec::new();
        for entry in moment.scan::<&[u8]>(&prices, ..) {
            let (_, version) = entry?;
            versions.push(u32::from_be_bytes(version[..].try_into()?));
        }
        assert_eq!(versions.len(), ITEMS as usize);
        assert!(versions.iter().all(|version| *version == versions[0]), "a version is half there");
        if versions[0] / 20 != seen / 20 {
            println!("{name}: version {}, at most {:?} old", versions[0], reader.lag());
        }
        seen = versions[0];
        drop(moment);
        // A service would read when it is asked. This one asks to come up to date.
        match reader.refresh().wait() {
            Err(error) if error.kind() == ErrorKind::Retry => {}
            ended => ended?,
        }
    }
    println!("{name}: saw the last version");
    reader.close().wait()?;
    Ok(())
}
