use super::*;
use crate::{Db, Registry};

/// That a batch has too many tables is said once it is so, and not when all was written.
#[test]
fn a_batch_of_too_many_tables_is_refused_early() {
    const KEYSPACES: usize = 40;
    let db = Db::builder("mem://sorted-tables").registry(Registry::with_defaults()).open().wait().unwrap();
    let keyspaces: Vec<_> = (0..KEYSPACES)
        .map(|number| db.create_keyspace(&number.to_string(), KeyspaceOptions::default()).wait().unwrap())
        .collect();
    let mut sorted = Sorted::new(db.engine());
    (sorted.tables_max, sorted.waiting_bytes_max, sorted.waiting_bytes_limit) = (5, 1 << 10, 1 << 10);
    let mut written = 0_u32;
    let error = loop {
        let keyspace = keyspaces[written as usize % KEYSPACES].info();
        let wants_work = sorted.add(keyspace, EntryKind::Put, &written.to_be_bytes(), &[7; 200]).unwrap();
        written += 1;
        assert!(written < 1000, "nothing is refused");
        if wants_work && let Err(error) = db.engine().env.block_on(sorted.work()) {
            break error;
        }
    };
    assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
    drop(sorted);
    db.close().wait().unwrap();
}
