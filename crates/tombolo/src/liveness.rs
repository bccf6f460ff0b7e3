//! Who writes, and who would: told by empty objects whose names are all they say.
//!
//! Whoever stands by puts its record, with how often it asks for a sign of life. The writer looks
//! for such records once a minute, and while there are some puts a sign, numbered upwards, as often
//! as the most demanding of them asks. All of this is for liveness only: nothing is safe because of
//! it, and nothing is lost when it lies. What decides is the claim.
//!
//! An idle database for which nobody stands by makes one request a minute.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::Instant;
use tombolo_storage::{ErrorKind, Incarnation, Life, ObjectKind, ObjectName, Purpose, Result};

use crate::collection::lease::{LeaseWatch, Seen};
use crate::engine::Engine;
use crate::manifest::chain::PutAnswer;
use crate::manifest::driver::io::{Io, either};
use crate::manifest::names::{self, Sign};

/// How often the writer looks for those who stand by, while there is nobody; more often at first,
/// as those of its predecessor may come back.
pub(crate) const LOOK_IDLE: Duration = Duration::from_secs(60);
const LOOK_FIRST: Duration = Duration::from_secs(1);
/// As above, while there is somebody.
const LOOK_WATCHED: Duration = Duration::from_secs(10);
/// Whoever stands by renews its record so often.
pub(crate) const RENEW: Duration = Duration::from_secs(10);
/// A record that stood still for so long, as the writer saw it, is of one who died.
pub(crate) const RECORD_LEASE: Duration = Duration::from_secs(40);

/// Those who stand by, each with how often it has renewed its record.
pub(crate) type Renewals = BTreeMap<u128, u64>;

/// Whom the writer found standing by.
#[derive(Debug, Default)]
struct Watched {
    leases: LeaseWatch,
    /// How often each has renewed its record.
    renewals: Renewals,
    /// How often the one asks for a sign that asks least often.
    longest: Duration,
    /// How often they ask for a sign; `None` when nobody stands by.
    period: Option<Duration>,
}

impl Watched {
    /// Looks for those who stand by, and deletes the records of the dead. One list.
    async fn look(&mut self, io: &Io, incarnation: Incarnation) -> Result<()> {
        let began = io.env.now();
        let listed = io.list_all(&names::standby_prefix(incarnation)).await?;
        let ended = io.env.now();
        let mut newest: BTreeMap<u128, (u64, u64)> = BTreeMap::new();
        for (id, period_ms, beat) in
            listed.iter().filter_map(|object| names::parse_standby(incarnation, object))
        {
            let known = newest.entry(id).or_insert((beat, period_ms));
            *known = (*known).max((beat, period_ms));
        }
        let seen: Vec<Seen> = newest
            .iter()
            .map(|(id, (beat, _))| Seen { id: *id, lease: Some(RECORD_LEASE), beat: *beat })
            .collect();
        let dead = self.leases.observe(began, ended, Duration::ZERO, &seen);
        let alive = newest.iter().filter(|(id, _)| !dead.contains(id));
        self.renewals = newest.iter().map(|(id, (beat, _))| (*id, *beat)).collect();
        self.longest =
            newest.values().map(|(_, period_ms)| Duration::from_millis(*period_ms)).max().unwrap_or_default();
        self.period = alive.map(|(_, (_, period_ms))| Duration::from_millis(*period_ms)).min();
        for object in &listed {
            if names::parse_standby(incarnation, object).is_some_and(|(id, ..)| dead.contains(&id)) {
                io.delete(object).await?;
            }
        }
        Ok(())
    }
}

/// Puts a sign that no one else puts.
pub(crate) async fn put_sign(io: &Io, name: &ObjectName) -> Result<()> {
    match io.put(name, ObjectKind::Pin, Life::Short, Bytes::new()).await {
        // Of unknown outcome: the next one follows soon.
        PutAnswer::Created | PutAnswer::Exists | PutAnswer::Unknown => Ok(()),
        PutAnswer::Refused(error) => Err(error),
    }
}

/// Whether a sign is there. The length of one object, which costs what a read does.
pub(crate) async fn is_there(io: &Io, name: &ObjectName) -> Result<bool> {
    match io.store.length(io.request(), name).await {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// The writer's task: gives signs of life while somebody stands by.
pub(crate) async fn beat(engine: Arc<Engine>) {
    let io = Io { purpose: Purpose::Manifest, ..engine.manifest.io().clone() };
    let (incarnation, epoch) = (engine.context.incarnation, engine.context.epoch.0);
    let mut watched = Watched::default();
    let (mut beat, mut pause) = (0, LOOK_FIRST);
    let (mut next_look, mut next_beat) = (io.env.now(), None::<Instant>);
    loop {
        let stop = engine.work.subscribe();
        if engine.is_stopping() {
            return;
        }
        let now = io.env.now();
        if now >= next_look {
            let before = watched.period;
            if let Err(error) = watched.look(&io, incarnation).await {
                tracing::debug!(%error, "looking for those who stand by failed; it is tried again");
            }
            if before.is_none() && watched.period.is_some() {
                forget_older(&io, incarnation, epoch).await;
            }
            next_look = now + if watched.period.is_some() { LOOK_WATCHED } else { pause };
            pause = (pause * 2).min(LOOK_IDLE);
            next_beat = watched.period.map(|period| next_beat.unwrap_or(now).min(now + period));
        }
        if let Some(period) = watched.period.filter(|_| next_beat.is_none_or(|next| now >= next)) {
            beat += 1;
            let put = put_sign(&io, &names::alive(incarnation, epoch, Sign::Beat(beat))).await;
            if let Err(error) = put {
                tracing::debug!(%error, "a sign of life failed; it is tried again");
            } else if beat > 1
                && let Err(error) = io.delete(&names::alive(incarnation, epoch, Sign::Beat(beat - 1))).await
            {
                tracing::debug!(%error, "an old sign of life stays for now");
            }
            next_beat = Some(now + period);
        }
        either(stop, io.env.sleep_until(next_beat.map_or(next_look, |next| next.min(next_look)))).await;
    }
}

/// Deletes what the writers of older epochs told, as far as that goes.
async fn forget_older(io: &Io, incarnation: Incarnation, epoch: u64) {
    let Ok(listed) = io.list_all(&names::alive_prefix(incarnation)).await else { return };
    for object in listed {
        if names::parse_alive(incarnation, &object).is_some_and(|(of, _)| of < epoch)
            && let Err(error) = io.delete(&object).await
            && error.kind() != ErrorKind::NotFound
        {
            tracing::debug!(%error, "an older writer's sign of life stays for now");
        }
    }
}

/// Those who have a record of standing by, alive or not.
#[derive(Debug)]
pub(crate) struct Standing {
    /// How often the one asks for a sign of life that asks most often, and the one that asks least
    /// often.
    pub(crate) shortest: Duration,
    pub(crate) longest: Duration,
    pub(crate) renewals: Renewals,
}

/// Who stands by; `None` when there is nobody. One list.
pub(crate) async fn who_stands_by(io: &Io, incarnation: Incarnation) -> Result<Option<Standing>> {
    let mut watched = Watched::default();
    watched.look(io, incarnation).await?;
    let Watched { period, longest, renewals, .. } = watched;
    Ok(period.map(|shortest| Standing { shortest, longest, renewals }))
}

/// What the newest writer last told: its epoch and the sign. One list.
pub(crate) async fn newest_sign(io: &Io, incarnation: Incarnation) -> Result<Option<(u64, Sign)>> {
    let listed = io.list_all(&names::alive_prefix(incarnation)).await?;
    Ok(listed.iter().filter_map(|object| names::parse_alive(incarnation, object)).max())
}
