//! Z-sets: sets whose members have weights, of which all but zero count. State is one in a typed
//! keyspace with the operator `weights`; what a step changes is one in memory.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Bound;

use tombolo::{Db, KeyspaceOptions, OperatorName, Result, SortedBatch};
use tombolo_typed::{Key, TypedKeyspace};

/// State: what came of all steps before.
pub type State<K> = TypedKeyspace<K, i64>;

/// Opens a state, or makes it.
pub fn open<K: Key>(db: &Db, name: &str) -> Result<State<K>> {
    let operator = Some(OperatorName::parse("weights")?);
    State::open_with(db, name, KeyspaceOptions { operator, ..KeyspaceOptions::default() }).wait()
}

/// What a step changes.
#[derive(Clone, Debug)]
pub struct Delta<K>(pub BTreeMap<K, i64>);

/// What there was before a step, and what the step changes.
pub type Side<'a, K> = (&'a State<K>, &'a Delta<K>);

impl<K> Default for Delta<K> {
    fn default() -> Delta<K> {
        Delta(BTreeMap::new())
    }
}

impl<K: Key + Ord + Clone> Delta<K> {
    pub fn add(&mut self, key: K, weight: i64) {
        let sum = self.0.entry(key);
        match sum {
            std::collections::btree_map::Entry::Vacant(new) if weight != 0 => drop(new.insert(weight)),
            std::collections::btree_map::Entry::Vacant(_) => {}
            std::collections::btree_map::Entry::Occupied(mut known) => {
                *known.get_mut() += weight;
                if *known.get() == 0 {
                    known.remove();
                }
            }
        }
    }

    /// Adds it to the state, with all else that the batch holds.
    pub fn write(&self, state: &State<K>, batch: &mut SortedBatch) -> Result<()> {
        for (key, weight) in &self.0 {
            state.merge_sorted(batch, key, weight).wait()?;
        }
        Ok(())
    }
}

/// Joins two Z-sets by the first part of their keys. Of a step only what changes is looked at:
/// `Δ(L ⋈ R) = ΔL ⋈ R + L ⋈ ΔR + ΔL ⋈ ΔR`. One walk over each side, whose targets rise.
pub fn join<J, L, R>(
    (left, left_delta): Side<'_, (J, L)>,
    (right, right_delta): Side<'_, (J, R)>,
    mut each: impl FnMut(&J, &L, &R, i64),
) -> Result<()>
where
    J: Key + Ord + Clone,
    L: Key + Ord + Clone,
    R: Key + Ord + Clone,
{
    let mut old = right.all();
    for ((group, member), weight) in &left_delta.0 {
        // Several of a group go back to its beginning.
        let mut found = old.seek(&(group.clone(),))?;
        while found && old.key_prefix::<(J,)>()?.0 == *group {
            each(group, member, &old.key()?.1, weight * old.value()?);
            found = old.next()?;
        }
        for ((_, other), more) in group_of(right_delta, group) {
            each(group, member, other, weight * more);
        }
    }
    let mut old = left.all();
    for ((group, member), weight) in &right_delta.0 {
        let mut found = old.seek(&(group.clone(),))?;
        while found && old.key_prefix::<(J,)>()?.0 == *group {
            each(group, &old.key()?.1, member, weight * old.value()?);
            found = old.next()?;
        }
    }
    Ok(())
}

fn group_of<'a, J: Ord + Clone, R: Ord + Clone>(
    delta: &'a Delta<(J, R)>,
    group: &'a J,
) -> impl Iterator<Item = (&'a (J, R), i64)> {
    let from_there = delta.0.iter().skip_while(move |((other, _), _)| other < group);
    from_there.take_while(move |((other, _), _)| other == group).map(|(key, weight)| (key, *weight))
}

/// The greatest of each group that a step changes: `each` is told the one before and the one after,
/// where they differ. Keys have the greatest first, so that a look ends after few.
pub fn greatest<G, T>(
    (state, delta): Side<'_, (G, Reverse<u64>, T)>,
    mut each: impl FnMut(&G, Option<(u64, T)>, Option<(u64, T)>),
) -> Result<()>
where
    G: Key + Ord + Clone,
    T: Key + Ord + Clone,
{
    let mut cursor = state.all();
    let mut rest = delta.0.iter().peekable();
    while let Some(((group, ..), _)) = rest.peek().copied() {
        let mut changed = BTreeMap::new();
        while let Some(((_, price, member), weight)) = rest.next_if(|((other, ..), _)| other == group) {
            changed.insert((*price, member.clone()), *weight);
        }
        let (mut before, mut after) = (None, None);
        let mut found = cursor.advance_to(&(group.clone(),))?;
        let mut reached = Bound::Unbounded;
        while found && after.is_none() && cursor.key_prefix::<(G,)>()?.0 == *group {
            let ((_, price, member), weight) = (cursor.key()?, cursor.value()?);
            let key = (price, member);
            // A new one that is greater.
            let newer =
                changed.range((reached, Bound::Excluded(key.clone()))).find(|(_, weight)| **weight > 0);
            after = newer.map(|(key, _)| key.clone());
            let sum = weight + changed.get(&key).copied().unwrap_or(0);
            if after.is_none() && sum > 0 {
                after = Some(key.clone());
            }
            if weight > 0 {
                before.get_or_insert_with(|| key.clone());
            }
            reached = Bound::Excluded(key);
            found = cursor.next()?;
        }
        if after.is_none() {
            let newer = changed.range((reached, Bound::Unbounded)).find(|(_, weight)| **weight > 0);
            after = newer.map(|(key, _)| key.clone());
        }
        if before != after {
            let shown =
                |best: Option<(Reverse<u64>, T)>| best.map(|(Reverse(price), member)| (price, member));
            each(group, shown(before), shown(after));
        }
    }
    Ok(())
}

/// Which members begin or cease to be there, whatever their weights: with 1 or -1. All are looked
/// up in one walk.
pub fn distinct<K: Key + Ord + Clone>(
    (state, delta): Side<'_, K>,
    mut each: impl FnMut(&K, i64),
) -> Result<()> {
    let members: Vec<(&K, &i64)> = delta.0.iter().collect();
    let mut before = vec![0; members.len()];
    state.all().look_up(delta.0.keys(), |number, weight| before[number] = weight.unwrap_or(0))?;
    for ((member, weight), before) in members.into_iter().zip(before) {
        match (before > 0, before + weight > 0) {
            (false, true) => each(member, 1),
            (true, false) => each(member, -1),
            _ => {}
        }
    }
    Ok(())
}
