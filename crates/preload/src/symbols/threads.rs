//! Starting threads: those that are started while a call is served are the database's own.
#![allow(clippy::missing_safety_doc, reason = "said once, in the module above")]

use std::ffi::{c_int, c_void};

use libc::{pthread_attr_t, pthread_t};

use super::real::{self, ThreadStart};
use crate::interpose::guard;

/// What a thread of the database was to begin with.
struct Start {
    start: ThreadStart,
    argument: *mut c_void,
}

extern "C" fn serve_for_ever(start: *mut c_void) -> *mut c_void {
    // SAFETY: made from a box below, for this thread alone.
    let start = unsafe { Box::from_raw(start.cast::<Start>()) };
    guard::enter_for_ever();
    let Start { start, argument } = *start;
    start(argument)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut pthread_t,
    attributes: *const pthread_attr_t,
    start: ThreadStart,
    argument: *mut c_void,
) -> c_int {
    if !guard::is_serving() {
        // SAFETY: the caller's promise.
        return unsafe { real::pthread_create(thread, attributes, start, argument) };
    }
    let start = Box::into_raw(Box::new(Start { start, argument }));
    // SAFETY: the caller's promise; the box is given to the thread, which frees it.
    let failed = unsafe { real::pthread_create(thread, attributes, serve_for_ever, start.cast()) };
    if failed != 0 {
        // SAFETY: no thread has it.
        drop(unsafe { Box::from_raw(start) });
    }
    failed
}
