//! On real files.

use std::sync::Arc;

use tombolo_env::Env;

use super::super::{Form, LocalLogOptions, LocalLogStore};
use crate::backend::memory::{MemoryLogStore, MemoryObjectStore};
use crate::conformance::log::{LogSubject, check_log_store};

fn subject(env: &Env, directory: &std::path::Path, form: Form) -> LogSubject {
    let options = LocalLogOptions { form, ..LocalLogOptions::default() };
    let store = LocalLogStore::new(env, directory, true, options);
    LogSubject { env: env.clone(), store: Arc::new(store), objects: Arc::new(MemoryObjectStore::unnamed(env)) }
}

#[test]
fn the_memory_log_keeps_its_promises() {
    let env = Env::real();
    let store = Arc::new(MemoryLogStore::unnamed(&env));
    check_log_store(&LogSubject { env: env.clone(), store, objects: Arc::new(MemoryObjectStore::unnamed(&env)) });
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
