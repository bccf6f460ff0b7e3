//! Ctrl-C as a flag, so that a command ends where it is safe to: temporary databases are removed,
//! handles closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use signal_hook::consts::{SIGINT, SIGTERM};
use tombolo::Op;

use crate::failure::{Failure, Result};

/// How often a waiting command looks whether it was interrupted.
const LOOK: Duration = Duration::from_millis(10);

/// Raised by Ctrl-C and by SIGTERM. The second one ends the process at once.
pub fn listen() -> Result<Arc<AtomicBool>> {
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        let failed = |error| Failure::io(error, "listening for Ctrl-C");
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&flag)).map_err(failed)?;
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(failed)?;
    }
    Ok(flag)
}

/// Waits for an operation that may take long, or for Ctrl-C, which leaves it.
pub fn wait<T: Send + 'static>(mut op: Op<T>, flag: &AtomicBool, mut look: impl FnMut()) -> Result<T> {
    loop {
        match op.try_take() {
            Ok(result) => return Ok(result?),
            Err(waiting) => op = waiting,
        }
        if flag.load(Ordering::Relaxed) {
            return Err(Failure::Interrupted);
        }
        look();
        std::thread::sleep(LOOK);
    }
}
