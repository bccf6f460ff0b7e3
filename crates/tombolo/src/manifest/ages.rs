//! By when everything up to a sequence number was written: samples, few and far between. They steer
//! where data lies, and nothing else: a clock that jumps costs money, and no answer.

use tombolo_format::cold::Aged;

/// Most samples of a stream.
pub(super) const SAMPLES_MAX: usize = 96;

/// Adds a sample; where there are too many, the one goes that is least missed: between its
/// neighbours there is little time for how old they are.
pub(super) fn add(samples: &mut Vec<Aged>, aged: Aged) {
    samples.push(aged);
    if samples.len() <= SAMPLES_MAX {
        return;
    }
    let newest = aged.unix_seconds;
    let missed = |at: &usize| {
        let (before, after) = (samples[at - 1].unix_seconds, samples[at + 1].unix_seconds);
        let age = newest.saturating_sub(after).saturating_add(1);
        after.saturating_sub(before).saturating_mul(1 << 20) / age
    };
    if let Some(least) = (1..samples.len() - 1).min_by_key(missed) {
        samples.remove(least);
    }
}

/// The greatest sequence number up to which everything was written by `unix_seconds`.
pub(crate) fn written_by(samples: &[Aged], unix_seconds: u64) -> Option<u64> {
    let older = samples.partition_point(|aged| aged.unix_seconds <= unix_seconds);
    samples[..older].last().map(|aged| aged.sequence)
}

#[cfg(test)]
mod tests;
