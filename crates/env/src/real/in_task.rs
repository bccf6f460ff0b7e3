//! Whether this thread runs a task now, where waiting would stop the pool that has to do the work.

use std::cell::Cell;

thread_local! {
    pub(super) static IN_TASK: Cell<bool> = const { Cell::new(false) };
}
