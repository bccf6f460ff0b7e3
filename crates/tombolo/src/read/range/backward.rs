//! Moves backward: versions of a key come oldest first, so that the newest one that is seen comes
//! last.

use tombolo_format::key::Trailer;
use tombolo_storage::Result;

use super::{Direction, Place, RangeCursor, SHARE_BYTES_MIN, STEPS_MAX, Stand, Step, Walk};
use crate::resolve::{Answer, Fold, Moment, Says, says};

impl RangeCursor {
    /// [`RangeCursor::prev`] where one table is left, which stands at a value that is seen: most
    /// often the only version of its key.
    #[inline]
    pub(super) fn prev_alone(&mut self) -> Option<Result<Step>> {
        if self.hides.is_some() {
            return None;
        }
        let table = self.merge.alone()?;
        let (key, value) = (table.key(), table.value());
        if Moment(self.sequence).feed(key.trailer) != Ok(Answer::Value)
            || value.len() >= SHARE_BYTES_MIN
            || self.range.as_ref().is_some_and(|range| range.is_below(key.user_key))
        {
            return None;
        }
        self.anchor.clear();
        self.anchor.extend_from_slice(key.user_key);
        self.saved.shared = None;
        if let Some(values) = &mut self.apart {
            values.forget_saved();
        }
        self.saved.copied.clear();
        self.saved.copied.extend_from_slice(value);
        (self.goal, self.stands) = (Direction::Backward, None);
        (self.place, self.walk, self.has_value, self.steps) = (Place::After, Walk::Versions, true, 1);
        (self.needs_fold, self.expires_ms) = (false, None);
        let step = table.prev();
        if table.valid() {
            if table.key().user_key != &self.anchor[..] {
                return Some(self.end_of_key().map(|step| step.unwrap_or(Step::Done)));
            }
            return Some(self.settle_backward());
        }
        Some(match self.merge.finish_alone(step) {
            Ok(Step::Done) => self.settle_backward(),
            blocked => blocked,
        })
    }

    /// From where the merge stands back to the first key with a value. The merge then stands before
    /// all its versions.
    pub(super) fn settle_backward(&mut self) -> Result<Step> {
        loop {
            let step = match self.walk {
                Walk::Key => {
                    let Some((key, _)) = self
                        .merge
                        .entry()
                        .filter(|(key, _)| !self.range.as_ref().is_some_and(|range| range.is_below(key)))
                    else {
                        self.place = Place::Start;
                        self.end_of_dead_back();
                        return Ok(Step::Done);
                    };
                    let is_covered = self.hides.as_mut().is_some_and(|hides| hides.number(key).is_some());
                    self.anchor.clear();
                    self.anchor.extend_from_slice(key);
                    if is_covered && let Some(step) = self.pass_hidden() {
                        self.place = Place::After;
                        if step? == Step::Blocked {
                            return Ok(Step::Blocked);
                        }
                        continue;
                    }
                    // Until its versions are known, the cursor stands between this key and the one
                    // from which it came.
                    (self.place, self.walk, self.has_value, self.steps) =
                        (Place::After, Walk::Versions, false, 0);
                    (self.refused, self.needs_fold) = (None, false);
                    Ok(Step::Done)
                }
                Walk::Versions => match self.version_of_anchor() {
                    Some(trailer) if !Moment(self.sequence).sees(trailer) => {
                        // All that follow are newer still.
                        self.walk = Walk::Leave;
                        if self.needs_fold {
                            self.fold_backward()
                        } else if self.steps < STEPS_MAX {
                            Ok(Step::Done)
                        } else {
                            self.merge.try_seek_before(&self.anchor, Trailer::FIRST)
                        }
                    }
                    Some(_) if self.steps >= STEPS_MAX => {
                        self.walk = Walk::Newest;
                        self.merge.try_seek(&self.anchor, Trailer::seek(self.sequence))
                    }
                    Some(trailer) => {
                        self.save(trailer);
                        self.steps += 1;
                        self.merge.try_prev()
                    }
                    None if self.needs_fold => self.fold_backward(),
                    None => match self.end_of_key()? {
                        Some(step) => return Ok(step),
                        None => continue,
                    },
                },
                Walk::Newest => {
                    if let Some(trailer) = self.version_of_anchor() {
                        self.save(trailer);
                    }
                    if self.needs_fold {
                        self.fold_backward()
                    } else {
                        self.walk = Walk::Leave;
                        self.merge.try_seek_before(&self.anchor, Trailer::FIRST)
                    }
                }
                Walk::Fold => {
                    if self.go_on_folding()? == Step::Blocked {
                        return Ok(Step::Blocked);
                    }
                    self.end_fold()?;
                    // Until the merge has left the key, the cursor stands after it.
                    self.place = Place::After;
                    self.walk = Walk::Leave;
                    self.merge.try_seek_before(&self.anchor, Trailer::FIRST)
                }
                Walk::Leave if self.version_of_anchor().is_some() => {
                    self.steps += 1;
                    if self.steps == STEPS_MAX {
                        self.merge.try_seek_before(&self.anchor, Trailer::FIRST)
                    } else {
                        self.merge.try_prev()
                    }
                }
                Walk::Leave => match self.end_of_key()? {
                    Some(step) => return Ok(step),
                    None => continue,
                },
            };
            if step? == Step::Blocked {
                return Ok(Step::Blocked);
            }
        }
    }

    /// Has the merge walk forward over the versions of `anchor` that are seen.
    fn fold_backward(&mut self) -> Result<Step> {
        (self.walk, self.needs_fold, self.fold) = (Walk::Fold, false, Some(Fold::default()));
        self.merge.try_seek(&self.anchor, Trailer::seek(self.sequence))
    }

    /// The version at which the merge stands, if it is one of the anchor's.
    #[inline]
    fn version_of_anchor(&self) -> Option<Trailer> {
        self.merge.entry().filter(|(key, _)| *key == &self.anchor[..]).map(|(_, trailer)| trailer)
    }

    /// All versions of the anchor were seen: stands at it if it has a value, once that has come;
    /// `None`: it has none, and the walk stands before it.
    fn end_of_key(&mut self) -> Result<Option<Step>> {
        if self.has_value {
            if let Some(apart) = self.saved_apart().cloned()
                && !self.take_apart(apart)?
            {
                return Ok(Some(Step::Blocked));
            }
            self.place = Place::Entry;
            self.stands = Some(Stand::Backward);
            self.end_of_dead_back();
            return Ok(Some(Step::Done));
        }
        if let Some(error) = self.refused.take() {
            return Err(error);
        }
        (self.place, self.walk) = (Place::Before, Walk::Key);
        let passed = self.pass_dead_back().transpose()?;
        Ok(passed.filter(|step| *step == Step::Blocked))
    }

    /// Sets aside what the version at which the merge stands says of its key.
    fn save(&mut self, trailer: Trailer) {
        let says = says(trailer);
        let is_hidden = self.hides.as_mut().is_some_and(|hides| hides.hides(&self.anchor, trailer));
        if let Some(values) = &mut self.apart {
            values.forget_saved();
        }
        self.has_value = says == Ok(Says::Value) && !is_hidden;
        (self.needs_fold, self.expires_ms) = (says == Ok(Says::Operand) && !is_hidden, None);
        if is_hidden {
            self.refused = None;
        } else if says == Ok(Says::Separated) {
            match self.referred() {
                Ok(apart) => self.save_apart(apart),
                Err(error) => self.refused = Some(error),
            }
            self.has_value = self.saved_apart().is_some();
        } else if !self.has_value {
            // Only the newest version that is seen counts, and that one comes last.
            self.refused = says.err().map(|unresolved| self.unresolved(unresolved));
        }
        self.saved.shared = None;
        self.saved.copied.clear();
        if self.has_value
            && self.saved_apart().is_none()
            && let Some(source) = self.merge.source()
        {
            let value = source.value();
            if value.len() < SHARE_BYTES_MIN {
                self.saved.copied.extend_from_slice(value);
            } else {
                self.saved.shared = Some(source.value_bytes());
            }
        }
    }
}
