//! Merge operators of programs.

use std::ffi::{c_char, c_int, c_uchar, c_void};
use std::ptr::null;
use std::sync::Arc;

use tombolo::{FullOperator, Operator, OperatorError, OperatorName};
use tombolo_c::bytes;

use crate::door::name_of;

type FullMerge = unsafe extern "C" fn(
    *mut c_void,
    *const c_char,
    usize,
    *const c_char,
    usize,
    *const *const c_char,
    *const usize,
    c_int,
    *mut c_uchar,
    *mut usize,
) -> *mut c_char;

/// What a program merges with.
pub struct Folding {
    full_merge: Option<FullMerge>,
    delete_value: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    state: *mut c_void,
}

// SAFETY: RocksDB asks the same of programs: their operators are called on any thread, several at
// once. The pointer is only handed on.
unsafe impl Send for Folding {}
// SAFETY: as above.
unsafe impl Sync for Folding {}

impl Drop for Folding {
    fn drop(&mut self) {
        if let Some(destructor) = self.destructor {
            // SAFETY: the caller's function for its own pointer, called once, after all others.
            unsafe { destructor(self.state) };
        }
    }
}

/// A merge operator of the program's.
#[derive(Clone)]
pub struct MergeOperator {
    pub(crate) name: OperatorName,
    pub(crate) folding: Arc<Folding>,
}

impl Folding {
    /// Whether it stands for an operator that is always there.
    pub(crate) fn is_shipped(&self) -> bool {
        self.full_merge.is_none()
    }

    pub(crate) fn operator(&self, shared: &Arc<Folding>) -> Operator {
        Operator::full(Shared(Arc::clone(shared)))
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
        let Folding { full_merge: Some(full_merge), delete_value, state, .. } = *self.0 else {
            return Err("the program gave no function that merges".into());
        };
        let pointers: Vec<*const c_char> = operands.iter().map(|operand| operand.as_ptr().cast()).collect();
        let lengths: Vec<usize> = operands.iter().map(|operand| operand.len()).collect();
        let count = c_int::try_from(operands.len()).map_err(|_| "more operands than it can be told")?;
        let (mut success, mut length) = (0, 0);
        let (base_pointer, base_length) = base.map_or((null(), 0), |base| (base.as_ptr().cast(), base.len()));
        // SAFETY: the caller's function, called as RocksDB does; all pointers live longer.
        let made = unsafe {
            full_merge(
                state,
                key.as_ptr().cast(),
                key.len(),
                base_pointer,
                base_length,
                pointers.as_ptr(),
                lengths.as_ptr(),
                count,
                &raw mut success,
                &raw mut length,
            )
        };
        let copied = bytes!(made, length).map(|made| value.extend_from_slice(made));
        match delete_value {
            // SAFETY: the caller's function for what its other one gave.
            Some(delete_value) => unsafe { delete_value(state, made, length) },
            // SAFETY: RocksDB frees it so.
            None => unsafe { libc::free(made.cast()) },
        }
        copied?;
        if success == 0 { Err("the program's function did not succeed".into()) } else { Ok(true) }
    }
}

/// One that is always there.
pub(crate) fn shipped(name: &str) -> Option<MergeOperator> {
    let folding =
        Folding { full_merge: None, delete_value: None, destructor: None, state: std::ptr::null_mut() };
    Some(MergeOperator { name: OperatorName::new(name, 1).ok()?, folding: Arc::new(folding) })
}

/// A merge operator. Its name, with `_` for all but letters, digits, `.` and `-`, becomes the
/// setting `operator` of the column families that have it. `partial_merge` is not called.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rocksdb_mergeoperator_create(
    state: *mut c_void,
    destructor: Option<unsafe extern "C" fn(*mut c_void)>,
    full_merge: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *const c_char,
            usize,
            *const c_char,
            usize,
            *const *const c_char,
            *const usize,
            c_int,
            *mut c_uchar,
            *mut usize,
        ) -> *mut c_char,
    >,
    _partial_merge: Option<
        unsafe extern "C" fn(
            *mut c_void,
            *const c_char,
            usize,
            *const *const c_char,
            *const usize,
            c_int,
            *mut c_uchar,
            *mut usize,
        ) -> *mut c_char,
    >,
    delete_value: Option<unsafe extern "C" fn(*mut c_void, *const c_char, usize)>,
    name: Option<unsafe extern "C" fn(*mut c_void) -> *const c_char>,
) -> Option<Box<MergeOperator>> {
    let folding = Arc::new(Folding { full_merge, delete_value, destructor, state });
    let fine = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '-';
    let mut name: String =
        name_of(name, state).chars().map(|letter| if fine(letter) { letter } else { '_' }).take(64).collect();
    if name.is_empty() {
        name.push_str("unnamed");
    }
    Some(Box::new(MergeOperator { name: OperatorName::new(name, 1).ok()?, folding }))
}

/// One that no options own.
#[unsafe(no_mangle)]
pub extern "C" fn rocksdb_mergeoperator_destroy(operator: Option<Box<MergeOperator>>) {
    drop(operator);
}
