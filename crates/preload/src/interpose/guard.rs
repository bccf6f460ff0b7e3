//! Whether the calling thread serves a call already: what it asks of the operating system meanwhile
//! is not for the database.
//!
//! A thread that is started while a call is served is one of the database's own, and serves for as
//! long as it lives: were its calls taken for the program's, it would wait for itself.

use std::cell::Cell;

thread_local! {
    // Constant and without a destructor: it can be asked at any moment of a thread's life.
    static SERVING: Cell<bool> = const { Cell::new(false) };
}

/// Ends serving when it is dropped.
#[derive(Debug)]
pub struct Serving(());

/// Begins to serve a call; `None` within another.
pub fn enter() -> Option<Serving> {
    // Lazily: one that is made and dropped would end the serving that it found.
    (!SERVING.replace(true)).then(|| Serving(()))
}

/// Runs `work` while serving.
pub fn serving<T>(work: impl FnOnce() -> T) -> T {
    let _serving = enter();
    work()
}

/// Serves until the calling thread ends.
pub fn enter_for_ever() {
    SERVING.set(true);
}

/// Whether the calling thread serves a call.
pub fn is_serving() -> bool {
    SERVING.get()
}

impl Drop for Serving {
    fn drop(&mut self) {
        SERVING.set(false);
    }
}
