//! Functions of C programs that the engine calls: merge operators, and who is told of events.
//!
//! They are called on threads of the engine, several at once. They must neither wait for the
//! database that calls them nor leave by an exception or `longjmp`.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use tombolo::{Event, FullOperator, Listener, Operator, OperatorError, OperatorName};

use crate::boundary::{copy_text, invalid};
use crate::bytes;

/// Frees what belongs to a callback, once nobody needs it.
pub type FreeState = Option<unsafe extern "C" fn(state: *mut c_void)>;

/// A pointer of the program's, which its callbacks get back, and how it is freed.
pub(crate) struct State {
    pointer: *mut c_void,
    free: FreeState,
}

// SAFETY: the caller of the function that takes a state says that its callbacks may be called on
// any thread, several at once; the engine itself only hands the pointer on.
unsafe impl Send for State {}
// SAFETY: as above.
unsafe impl Sync for State {}

impl State {
    pub(crate) fn new(pointer: *mut c_void, free: FreeState) -> State {
        State { pointer, free }
    }
}

impl Drop for State {
    fn drop(&mut self) {
        if let Some(free) = self.free {
            // SAFETY: the caller's function for its own pointer, called once, after all others.
            unsafe { free(self.pointer) };
        }
    }
}

/// What a key has with a value below operands. `base` is null where there is no value; operands
/// come oldest first. It gives memory of `malloc`, which the library frees, and its length; null
/// says that it cannot, and then the merge fails. Pure: the same input gives the same output for
/// ever.
pub type FoldOperands = Option<
    unsafe extern "C" fn(
        state: *mut c_void,
        key: *const c_char,
        key_bytes: usize,
        base: *const c_char,
        base_bytes: usize,
        operands: *const *const c_char,
        operand_lengths: *const usize,
        count: usize,
        value_bytes: *mut usize,
    ) -> *mut c_char,
>;

/// An operator of a C program.
pub(crate) struct OperatorCallbacks {
    pub(crate) name: OperatorName,
    shared: Arc<Folding>,
}

struct Folding {
    fold: unsafe extern "C" fn(
        *mut c_void,
        *const c_char,
        usize,
        *const c_char,
        usize,
        *const *const c_char,
        *const usize,
        usize,
        *mut usize,
    ) -> *mut c_char,
    state: State,
}

impl OperatorCallbacks {
    /// # Errors
    /// `Invalid` for a null pointer, and for a name that is none.
    pub(crate) fn new(
        name: &str,
        version: u32,
        fold: FoldOperands,
        state: State,
    ) -> tombolo::Result<OperatorCallbacks> {
        let fold = fold.ok_or_else(|| invalid("the operator is a null pointer"))?;
        let name = OperatorName::new(name, version)?;
        Ok(OperatorCallbacks { name, shared: Arc::new(Folding { fold, state }) })
    }

    pub(crate) fn operator(&self) -> Operator {
        Operator::full(Shared(Arc::clone(&self.shared)))
    }
}

struct Shared(Arc<Folding>);

impl FullOperator for Shared {
    fn fold(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        value: &mut Vec<u8>,
    ) -> Result<bool, OperatorError> {
        let pointers: Vec<*const c_char> = operands.iter().map(|operand| operand.as_ptr().cast()).collect();
        let lengths: Vec<usize> = operands.iter().map(|operand| operand.len()).collect();
        let mut length = 0;
        // SAFETY: the caller's function, called as its type says; all pointers live longer.
        let made = unsafe {
            (self.0.fold)(
                self.0.state.pointer,
                key.as_ptr().cast(),
                key.len(),
                base.map_or(std::ptr::null(), |base| base.as_ptr().cast()),
                base.map_or(0, <[u8]>::len),
                pointers.as_ptr(),
                lengths.as_ptr(),
                operands.len(),
                &raw mut length,
            )
        };
        if made.is_null() {
            return Err("the program's function gave nothing".into());
        }
        let copied = bytes!(made, length).map(|made| value.extend_from_slice(made));
        // SAFETY: memory of `malloc`, as the type says, and ours now.
        unsafe { libc::free(made.cast()) };
        copied?;
        Ok(true)
    }
}

/// An event is usual.
pub const TOMBOLO_LEVEL_INFO: c_int = 0;
/// An event is trouble that the engine deals with.
pub const TOMBOLO_LEVEL_WARNING: c_int = 1;
/// An event ends the handle.
pub const TOMBOLO_LEVEL_ERROR: c_int = 2;

/// Is told of an event, with a text that is lent for the call.
pub type TellEvent = Option<unsafe extern "C" fn(state: *mut c_void, level: c_int, text: *const c_char)>;

/// Who is told of events, for a log.
pub struct ToldByEvents {
    tell: unsafe extern "C" fn(*mut c_void, c_int, *const c_char),
    state: State,
}

impl ToldByEvents {
    /// # Errors
    /// `Invalid` for a null pointer.
    pub(crate) fn new(tell: TellEvent, state: State) -> tombolo::Result<ToldByEvents> {
        let tell = tell.ok_or_else(|| invalid("the listener is a null pointer"))?;
        Ok(ToldByEvents { tell, state })
    }
}

impl Listener for ToldByEvents {
    fn event(&self, event: &Event) {
        let level = match event {
            Event::Finished { .. } => TOMBOLO_LEVEL_ERROR,
            Event::Failing { .. } | Event::MergeFailed { .. } | Event::StallBegan { .. } => {
                TOMBOLO_LEVEL_WARNING
            }
            _ => TOMBOLO_LEVEL_INFO,
        };
        let text = copy_text(&format!("{event:?}"));
        // SAFETY: the caller's function, called as its type says; the text lives longer.
        unsafe { (self.tell)(self.state.pointer, level, text) };
        // SAFETY: made above.
        unsafe { libc::free(text.cast()) };
    }
}
