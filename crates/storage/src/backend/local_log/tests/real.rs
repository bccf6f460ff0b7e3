//! On real files.

use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

use tombolo_env::Env;

use super::super::{Form, LocalLogOptions, LocalLogStore};
use crate::backend::memory::{MemoryLogStore, MemoryObjectStore};
use crate::conformance::log::{LogSubject, MemoryChain, append, check_log_store, entry};
use crate::log_memory::Uncounted;
use crate::{Epoch, Incarnation, LogContext};

fn subject(env: &Env, directory: &std::path::Path, form: Form) -> LogSubject {
    let options = LocalLogOptions { form, ..LocalLogOptions::default() };
    let store = LocalLogStore::new(env, directory, true, options);
    LogSubject {
        env: env.clone(),
        store: Arc::new(store),
        objects: Arc::new(MemoryObjectStore::unnamed(env)),
    }
}

#[test]
fn the_memory_log_keeps_its_promises() {
    let env = Env::real();
    let store = Arc::new(MemoryLogStore::unnamed(&env));
    check_log_store(&LogSubject {
        env: env.clone(),
        store,
        objects: Arc::new(MemoryObjectStore::unnamed(&env)),
    });
}

#[test]
fn the_mapped_log_keeps_its_promises() {
    let directory = tempfile::tempdir().unwrap();
    check_log_store(&subject(&Env::real(), directory.path(), Form::Mapped));
}

#[test]
fn the_written_log_keeps_its_promises() {
    let directory = tempfile::tempdir().unwrap();
    check_log_store(&subject(&Env::real(), directory.path(), Form::Written));
}

/// A store through a mapping of a file without blocks could find the disk full, and end the
/// process.
#[test]
fn a_segment_that_is_not_zeroed_has_its_blocks() {
    let directory = tempfile::tempdir().unwrap();
    let env = Env::real();
    let LogSubject { store, objects, .. } = subject(&env, directory.path(), Form::Mapped);
    let chain = Arc::new(MemoryChain::default());
    let context = LogContext {
        env: env.clone(),
        incarnation: Incarnation(1),
        database: 1,
        epoch: Epoch(1),
        chain,
        objects,
        memory: Arc::new(Uncounted),
    };
    let log = env.block_on(store.open(&context, 1)).expect("opening");
    let mut end = append(&env, &*log, 0, &entry(0, 4000)).expect("appending");
    for number in 1..3000 {
        end = append(&env, &*log, 0, &entry(number, 4000)).expect("appending");
    }
    log.sync(0, end).expect("syncing");
    let lane = directory.path().join("0000000000000001/log/0000000000000001-0000");
    let mut lengths = Vec::new();
    for file in std::fs::read_dir(lane).unwrap() {
        let metadata = file.unwrap().metadata().unwrap();
        assert!(
            metadata.blocks() * 512 >= metadata.len(),
            "{} blocks for {} bytes",
            metadata.blocks(),
            metadata.len()
        );
        lengths.push(metadata.len());
    }
    assert!(lengths.iter().any(|length| *length > 1 << 20), "{lengths:?}");
}
