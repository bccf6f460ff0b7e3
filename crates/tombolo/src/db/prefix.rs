//! Keys by their beginning.

use std::ops::Bound;

/// The range of all keys that begin with `prefix`.
pub(crate) fn prefix_range(prefix: &[u8]) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
    // The least key after all of them: the prefix counted up by one, without what overflows.
    let upper = match prefix.iter().rposition(|byte| *byte != u8::MAX) {
        Some(at) => {
            let mut upper = prefix[..=at].to_vec();
            upper[at] += 1;
            Bound::Excluded(upper)
        }
        None => Bound::Unbounded,
    };
    (Bound::Included(prefix.to_vec()), upper)
}

#[cfg(test)]
mod tests;
