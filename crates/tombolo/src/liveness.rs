//! Who writes, and who would: told by empty objects whose names are all they say.
//!
//! A standby puts its record, with how often it asks for a sign of life. The writer looks for such
//! records once a minute, and while there are some puts a sign, numbered upwards, as often as the
//! most demanding of them asks. All of this is for liveness only: nothing is safe because of it,
//! and nothing is lost when it lies. What decides is the claim.
//!
//! An idle database for which nobody stands by makes one request a minute.

pub(crate) mod asking;
pub(crate) mod presence;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::{Either, Instant};
use tombolo_storage::{ErrorKind, Incarnation, Life, ObjectKind, ObjectName, Purpose, Result};

use crate::collection::lease::{LeaseWatch, Seen};
use crate::engine::Background;
use crate::manifest::chain::PutAnswer;
use crate::manifest::driver::io::{Io, either};
use crate::manifest::names::{self, Sign, StandbyRecord};

/// How often the writer looks for those who stand by, while there is nobody; more often at first,
/// as those of its predecessor may come back.
pub(crate) const LOOK_IDLE: Duration = Duration::from_secs(60);
const LOOK_FIRST: Duration = Duration::from_secs(1);
/// As above, while there is somebody.
const LOOK_WATCHED: Duration = Duration::from_secs(10);
/// However often its bell is rung, it looks no more often.
const LOOK_RUNG: Duration = Duration::from_millis(500);
/// As above, while there are only some who ask: somebody at the prompt waits.
const LOOK_ASKED: Duration = Duration::from_secs(2);
/// A standby renews its record so often.
pub(crate) const RENEW: Duration = Duration::from_secs(10);
/// A record that stood still for so long, as the writer saw it, is of one who died.
pub(crate) const RECORD_LEASE: Duration = Duration::from_secs(40);

/// A writer that has never given a sign may not have looked for those who stand by yet.
pub(crate) const UNSEEN_MAX: Duration = LOOK_IDLE.saturating_add(Duration::from_secs(15));

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
    shortest: Option<Duration>,
    /// As above, of all who ask, and would not take over.
    period: Option<Duration>,
    /// Questions that have no answer yet, of those who live.
    asked: BTreeSet<u128>,
    /// Questions and answers of which nobody was found who asks.
    orphans: BTreeSet<u128>,
}

impl Watched {
    /// Looks for those who stand by, and deletes the records of the dead. One list.
    async fn look(&mut self, io: &Io, incarnation: Incarnation) -> Result<()> {
        let began = io.env.now();
        let listed = io.list_all(&names::standby_prefix(incarnation)).await?;
        let ended = io.env.now();
        let mut newest: BTreeMap<u128, StandbyRecord> = BTreeMap::new();
        for record in listed.iter().filter_map(|object| names::parse_standby(incarnation, object)) {
            let known = newest.entry(record.id).or_insert(record);
            *known = (*known).max(record);
        }
        let seen: Vec<Seen> = newest
            .values()
            .map(|record| Seen { id: record.id, lease: Some(RECORD_LEASE), beat: record.beat })
            .collect();
        let dead = self.leases.observe(began, ended, Duration::ZERO, &seen);
        let period = |record: &StandbyRecord| Duration::from_millis(record.period_ms);
        let alive = newest.values().filter(|record| !dead.contains(&record.id));
        self.period = alive.clone().map(period).min();
        self.shortest = alive.filter(|record| !record.only_asks).map(period).min();
        let standbys = newest.values().filter(|record| !record.only_asks);
        self.renewals = standbys.clone().map(|record| (record.id, record.beat)).collect();
        self.longest = standbys.map(period).max().unwrap_or_default();
        let questions = || listed.iter().filter_map(|object| names::parse_question(incarnation, object));
        let lives = |id: &u128| newest.contains_key(id) && !dead.contains(id);
        let mut orphans: BTreeSet<u128> = questions().map(|(id, _)| id).filter(|id| !lives(id)).collect();
        // A list that is a walk may miss a record that is renewed meanwhile: twice it does not.
        let gone: BTreeSet<u128> =
            orphans.iter().filter(|id| dead.contains(id) || self.orphans.contains(id)).copied().collect();
        orphans.retain(|id| !gone.contains(id));
        self.orphans = orphans;
        self.asked =
            questions().filter(|(id, is_answer)| !is_answer && lives(id)).map(|(id, _)| id).collect();
        for (id, _) in questions().filter(|(_, is_answer)| *is_answer) {
            self.asked.remove(&id);
        }
        for object in &listed {
            if names::parse_question(incarnation, object).is_some_and(|(id, _)| gone.contains(&id)) {
                io.delete(object).await?;
            }
            if names::parse_standby(incarnation, object).is_some_and(|record| dead.contains(&record.id)) {
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
pub(crate) async fn beat(background: &Background) {
    let io = Io { purpose: Purpose::Manifest, ..background.manifest.io().clone() };
    let (incarnation, epoch) = (background.context.incarnation, background.context.epoch.0);
    let mut watched = Watched::default();
    let (mut beat, mut pause) = (0, LOOK_FIRST);
    // Questions that are being answered: each is done once.
    let mut taken = BTreeSet::new();
    let (mut next_look, mut next_beat) = (io.env.now(), None::<Instant>);
    let mut looked = io.env.now();
    let bell = bell(background.context.database, epoch);
    loop {
        // Both before anything is looked at: what comes meanwhile is not missed.
        let (stop, rung) = (background.work.subscribe(), io.env.rung(bell));
        if background.is_stopping() {
            return;
        }
        let now = io.env.now();
        if now >= next_look {
            let before = watched.period;
            looked = now;
            if let Err(error) = watched.look(&io, incarnation).await {
                tracing::debug!(%error, "looking for those who stand by failed; it is tried again");
            }
            taken.retain(|id| watched.asked.contains(id));
            for id in &watched.asked {
                if !taken.contains(id) && background.questions.found(*id) {
                    taken.insert(*id);
                }
            }
            if before.is_none() && watched.period.is_some() {
                forget_older(&io, incarnation, epoch).await;
            }
            next_look = now
                + match (watched.shortest, watched.period) {
                    (Some(_), _) => LOOK_WATCHED,
                    (None, Some(_)) => LOOK_ASKED,
                    (None, None) => pause,
                };
            // Who has asked may ask again in a moment.
            pause = if watched.period.is_some() { LOOK_FIRST } else { (pause * 2).min(LOOK_IDLE) };
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
        let next = next_beat.map_or(next_look, |next| next.min(next_look));
        if let Either::First(_) = tombolo_env::either(rung, either(stop, io.env.sleep_until(next))).await {
            next_look = next_look.min(looked + LOOK_RUNG);
        }
    }
}

/// The bell that somebody on the writer's host rings who has asked it something.
pub(crate) fn bell(database: u64, epoch: u64) -> u128 {
    u128::from(database) << 64 | u128::from(epoch)
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
    let Watched { shortest, longest, renewals, .. } = watched;
    Ok(shortest.map(|shortest| Standing { shortest, longest, renewals }))
}

/// What the newest writer last told: its epoch and the sign. One list.
pub(crate) async fn newest_sign(io: &Io, incarnation: Incarnation) -> Result<Option<(u64, Sign)>> {
    let listed = io.list_all(&names::alive_prefix(incarnation)).await?;
    Ok(listed.iter().filter_map(|object| names::parse_alive(incarnation, object)).max())
}
