//! What the writers of a fight write, and how their entries are looked at: as in `crash`, and the
//! epoch under a key of its own.

use std::ops::Bound;

use tombolo::{Db, Snapshot};

use super::oracle::{Place, Sight};
use crate::crash::script::{self, KEYSPACES, Scripted, State, THREADS, Write};
use crate::failure::{Failure, Result};
use crate::text;

/// Keys of a thread in each keyspace: few, so that a look at all of them is short.
const KEYS: u32 = 150;

/// The key under which a thread says in which epoch it wrote last.
fn epoch_key(thread: u8) -> Vec<u8> {
    vec![thread, b'#']
}

/// A batch of a thread.
pub fn batch(seed: u64, thread: u8, place: Place) -> Scripted {
    let mut scripted = script::batch(KEYS, seed, place.epoch, thread, place.number);
    scripted.writes.push(Write {
        keyspace: 0,
        key: epoch_key(thread),
        value: Some(place.epoch.to_be_bytes().to_vec()),
    });
    scripted
}

/// What each thread's keys hold at a snapshot, read twice: by scans and by gets.
pub fn look(db: &Db, snapshot: &Snapshot) -> Result<Vec<Sight>> {
    (0..THREADS).map(|thread| look_at(db, snapshot, thread)).collect()
}

fn look_at(db: &Db, snapshot: &Snapshot, thread: u8) -> Result<Sight> {
    let (mut state, mut epoch) = (State::default(), 0);
    for (index, name) in KEYSPACES.iter().enumerate() {
        let Ok(keyspace) = db.keyspace(name) else { continue };
        for entry in snapshot
            .scan::<Vec<u8>>(&keyspace, (Bound::Included(vec![thread]), Bound::Excluded(vec![thread + 1])))
        {
            let (key, value) = entry?;
            let got = snapshot.get(&keyspace, &key).wait()?;
            if got.as_deref() != Some(&value[..]) {
                return Err(Failure::Check(format!(
                    "a get and a scan of {} differ in keyspace {name}",
                    text::shown(&key)
                )));
            }
            if key == epoch_key(thread) {
                epoch = <[u8; 8]>::try_from(&value[..]).map_or(u64::MAX, u64::from_be_bytes);
            }
            state.set(index, &key, Some(&value));
        }
    }
    Ok(Sight { place: Place { epoch, number: state.marker() }, digest: state.digest() })
}
