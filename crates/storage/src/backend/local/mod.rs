//! To come.

pub(crate) fn register(_registry: &mut crate::Registry) {}
