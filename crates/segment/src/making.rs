//! Regions on their way to being made, as a peer knows them that maps or pairs the memory of each
//! once its node has made it.

use crate::message::RegionId;

/// Each region that is being made, unless it was sealed or freed since. They are few.
#[derive(Debug, Default)]
pub(crate) struct Making(Vec<RegionId>);

impl Making {
    /// A region is asked for.
    pub(crate) fn begin(&mut self, region: RegionId) {
        self.0.push(region);
    }

    /// Its node has answered. Whether it is still to be filled.
    pub(crate) fn finish(&mut self, region: RegionId) -> bool {
        self.0.iter().position(|making| *making == region).map(|at| self.0.swap_remove(at)).is_some()
    }

    /// It was sealed or freed, whatever its node answers.
    pub(crate) fn forget(&mut self, region: RegionId) {
        self.0.retain(|making| *making != region);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sealed_or_freed_while_it_was_made_is_filled_no_more() {
        let mut making = Making::default();
        let [one, other] = [RegionId(1), RegionId(2)];
        making.begin(one);
        making.begin(other);
        making.forget(one);
        assert!(!making.finish(one) && making.finish(other) && !making.finish(other));
    }
}
