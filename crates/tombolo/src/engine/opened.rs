//! What this process has open as its writer: a second opening of the same database here would fence
//! the first, which is hardly ever meant.
//!
//! One list for all worlds of the address space; entries are told apart by their process. It costs
//! a lock at each opening, and nothing else. For convenience only: nothing safe depends on it.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tombolo_env::Env;
use tombolo_storage::Epoch;

use super::Engine;

struct Opened {
    /// See [`Env::process_token`].
    process: u64,
    engine: Weak<Engine>,
}

static OPENED: Mutex<Vec<Opened>> = Mutex::new(Vec::new());

/// Notes that this process has it open.
pub(crate) fn note_opened(engine: &Arc<Engine>) {
    let opened = Opened { process: engine.env.process_token(), engine: Arc::downgrade(engine) };
    let gone: Vec<Opened> = {
        let mut all = OPENED.lock();
        let (there, gone) =
            std::mem::take(&mut *all).into_iter().partition(|opened| opened.engine.strong_count() > 0);
        *all = there;
        all.push(opened);
        gone
    };
    // Whatever ends with an entry ends outside of the lock.
    drop(gone);
}

/// What this process has open and can write to: the random number of each database, and the epoch.
pub(crate) fn opened_here(env: &Env) -> Vec<(u64, Epoch)> {
    let process = env.process_token();
    let engines: Vec<Arc<Engine>> = {
        let all = OPENED.lock();
        let here = all.iter().filter(|opened| opened.process == process);
        here.filter_map(|opened| opened.engine.upgrade()).collect()
    };
    let live = engines.iter().filter(|engine| !engine.is_stopping());
    live.map(|engine| (engine.context.database, engine.context.epoch)).collect()
}
