//! The facts of a fight, and whether an observation is possible.
//!
//! Each writer tells what it finds when it opens, before it writes, then each batch before it
//! writes it, and each acknowledgement. Batches are numbered from 1 in each epoch and thread, one
//! at a time; the last write of each is a marker of its epoch and number. So a look at a thread's
//! keys sees the state after a prefix: `epochs before the marker's, each up to where it ended, then
//! the marker's batches up to its number`.
//!
//! Judged at the end, once all pipes are read to their ends:
//! 1. An epoch ended where the next epoch found it: not before its last acknowledged batch, not
//!    after its last announced one, however late either was heard.
//! 2. Each later epoch finds it ended there still: nothing of a stale writer appears.
//! 3. Whatever was seen, by writers, readers and clones, is the state after such a prefix, whole,
//!    and nothing beyond the end of an epoch.
//! 4. What a reader shows never goes back. A checkpoint holds what was acknowledged before it was
//!    asked for.

use std::collections::{BTreeMap, BTreeSet};

use crate::crash::Heard;
use crate::crash::script::{Scripted, State};

/// How far a thread's writes have come: an epoch, and the number of a batch of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The epoch that wrote last; 0 for nobody.
    pub epoch: u64,
    /// Its last batch.
    pub number: u64,
}

/// What somebody saw of one thread's keys at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sight {
    /// The last batch, as the markers say.
    pub place: Place,
    /// The digest of all that the thread's keys held.
    pub digest: u64,
}

/// Who looked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Looker {
    /// The writer of this epoch, before it wrote.
    Opening(u64),
    /// A reader; each has a number of its own, and looks again and again.
    Reader(u64),
    /// A clone of a checkpoint, before which this was acknowledged.
    Clone(Place),
}

/// What was heard of one thread's batches.
#[derive(Debug, Default)]
pub struct Oracle {
    heard: BTreeMap<u64, Heard>,
    openings: BTreeMap<u64, Sight>,
    sights: Vec<(Looker, Sight)>,
}

/// What a fight amounted to, of one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// Batches acknowledged.
    pub acknowledged: u64,
    /// Batches that were not acknowledged and took effect, whole.
    pub surviving: u64,
    /// Epochs that wrote.
    pub epochs: u64,
    /// Looks of readers and at clones.
    pub sights: u64,
}

impl Oracle {
    /// A batch is about to be written.
    pub fn announced(&mut self, epoch: u64, number: u64) {
        let heard = self.heard.entry(epoch).or_default();
        heard.announced = heard.announced.max(number);
    }

    /// A batch was acknowledged.
    pub fn acknowledged(&mut self, epoch: u64, number: u64) {
        let heard = self.heard.entry(epoch).or_default();
        heard.acknowledged = heard.acknowledged.max(number);
    }

    /// How many batches were acknowledged, in all.
    pub fn acknowledged_all(&self) -> u64 {
        self.heard.values().map(|heard| heard.acknowledged).sum()
    }

    /// Somebody looked.
    ///
    /// # Errors
    /// When two processes opened with one epoch.
    pub fn saw(&mut self, looker: Looker, sight: Sight) -> Result<(), String> {
        if let Looker::Opening(epoch) = looker
            && self.openings.insert(epoch, sight).is_some()
        {
            return Err(format!("two processes opened with epoch {epoch}"));
        }
        self.sights.push((looker, sight));
        Ok(())
    }

    /// Judges all of it; `batch` says what a batch of an epoch holds. The last opening must be one
    /// that nobody wrote after.
    ///
    /// # Errors
    /// The impossible findings, in words.
    pub fn judge(&self, batch: impl Fn(Place) -> Scripted) -> Result<Verdict, String> {
        let ends = self.ends()?;
        for (epoch, heard) in &self.heard {
            let end = ends.get(epoch).copied().unwrap_or(0);
            if end < heard.acknowledged {
                return Err(format!(
                    "batch {} of epoch {epoch} was acknowledged, and the next epoch found {end}",
                    heard.acknowledged
                ));
            }
            if end > heard.announced {
                return Err(format!(
                    "batch {end} of epoch {epoch} is there, and {} was the last one announced",
                    heard.announced
                ));
            }
        }
        self.order()?;
        self.states(&ends, batch)?;
        let acknowledged = self.acknowledged_all();
        Ok(Verdict {
            acknowledged,
            surviving: ends.values().sum::<u64>() - acknowledged,
            epochs: self.heard.len() as u64,
            sights: (self.sights.len() - self.openings.len()) as u64,
        })
    }

    /// Where each epoch but the last ended, as the next one found it; what later ones found must
    /// agree.
    fn ends(&self) -> Result<BTreeMap<u64, u64>, String> {
        let mut ends = BTreeMap::new();
        let (mut before, mut last) = (0, Place::default());
        for (epoch, sight) in &self.openings {
            let found = sight.place;
            if found.epoch == before && before > 0 {
                ends.insert(before, found.number);
            } else if found == last {
                ends.insert(before, 0);
            } else {
                return Err(format!(
                    "epoch {epoch} found batch {} of epoch {} as the last one, after epoch {before} had \
                    found batch {} of epoch {}",
                    found.number, found.epoch, last.number, last.epoch
                ));
            }
            (before, last) = (*epoch, found);
        }
        Ok(ends)
    }

    /// Whether readers went on, and checkpoints held what they must.
    fn order(&self) -> Result<(), String> {
        let mut shown: BTreeMap<Looker, Place> = BTreeMap::new();
        for (looker, sight) in &self.sights {
            match looker {
                Looker::Opening(_) => {}
                Looker::Reader(number) => {
                    if let Some(earlier) =
                        shown.insert(*looker, sight.place).filter(|earlier| *earlier > sight.place)
                    {
                        return Err(format!(
                            "reader {number} showed {earlier:?}, and then {:?}",
                            sight.place
                        ));
                    }
                }
                Looker::Clone(least) if sight.place < *least => {
                    return Err(format!(
                        "a checkpoint holds {:?}, and {least:?} was acknowledged before it was asked for",
                        sight.place
                    ));
                }
                Looker::Clone(_) => {}
            }
        }
        Ok(())
    }

    /// Whether each sight is the state after a prefix.
    fn states(&self, ends: &BTreeMap<u64, u64>, batch: impl Fn(Place) -> Scripted) -> Result<(), String> {
        let mut wanted: BTreeMap<Place, Vec<&(Looker, Sight)>> = BTreeMap::new();
        for sight in &self.sights {
            wanted.entry(sight.1.place).or_default().push(sight);
        }
        let mut state = State::default();
        let mut compare = |place: Place, state: &State| {
            for (looker, sight) in wanted.remove(&place).unwrap_or_default() {
                if sight.digest != state.digest() {
                    return Err(format!(
                        "{looker:?} saw at {place:?} something else than what its batches give"
                    ));
                }
            }
            Ok(())
        };
        compare(Place::default(), &state)?;
        for (epoch, end) in ends {
            for number in 1..=*end {
                let place = Place { epoch: *epoch, number };
                state.apply(&batch(place));
                compare(place, &state)?;
            }
        }
        match wanted.pop_first() {
            None => Ok(()),
            Some((place, lookers)) => {
                let end = ends.get(&place.epoch).copied().unwrap_or(0);
                let looker = lookers.first().map(|sight| sight.0);
                Err(format!("{looker:?} saw {place:?}, and that epoch ended at {end}"))
            }
        }
    }

    /// Acknowledgements that lie beyond what a later epoch has found already: no later word can
    /// make them right.
    pub fn lost_so_far(&self) -> Option<String> {
        let epochs: BTreeSet<_> = self.openings.keys().copied().collect();
        self.heard.iter().find_map(|(epoch, heard)| {
            let next = epochs.range(epoch + 1..).next()?;
            let found = self.openings.get(next)?.place;
            let end = if found.epoch == *epoch { found.number } else { 0 };
            (heard.acknowledged > end).then(|| {
                format!(
                    "batch {} of epoch {epoch} was acknowledged, and epoch {next} found {found:?}",
                    heard.acknowledged
                )
            })
        })
    }
}

#[cfg(test)]
mod tests;
