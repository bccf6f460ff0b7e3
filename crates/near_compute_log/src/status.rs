//! Who holds what: each region that a configuration names is asked what it has. Nothing is sealed,
//! nothing is changed.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::{BoxFuture, Env, all, within};
use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::first_digest;
use tombolo_segment::call::Member;
use tombolo_segment::message::{Answer, Body, Refusal, Request};
use tombolo_segment::peer::Peer;
use tombolo_segment::tcp::TcpPeer;
use tombolo_segment::wire::credentials::Credentials;
use tombolo_storage::{Incarnation, LogRecord, Result};

use crate::configuration::{decode, members};

/// How long a node may take to answer.
const TIME_MAX: Duration = Duration::from_secs(3);

/// Regions asked at once.
const CALLS_IN_FLIGHT: usize = 64;

/// What a region says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionState {
    /// It is appended to, and holds so many bytes, up to `committed` of which are known there to be
    /// acknowledged.
    Open {
        /// Bytes that it holds.
        length: u32,
        /// Bytes that it knows to be acknowledged.
        committed: u32,
    },
    /// It was sealed in the name of this epoch.
    Sealed(u64),
    /// It does not hold what it should, and why.
    Lost(String),
    /// Its node does not answer, and why.
    Silent(String),
}

/// A region of a segment.
#[derive(Clone, Debug)]
pub struct RegionStatus {
    /// Which, and on which node.
    pub member: Member,
    /// What it says.
    pub state: RegionState,
}

/// A segment of a log.
#[derive(Clone, Debug)]
pub struct SegmentStatus {
    /// Its number in the lane.
    pub number: u32,
    /// Its length, once that is settled.
    pub length: Option<u32>,
    /// Its regions; none: it is an object of the database's store.
    pub regions: Vec<RegionStatus>,
}

/// Asks all nodes that a log's record names.
///
/// # Errors
/// `Corrupt` when the record is that of another kind of log.
pub async fn log_status(
    env: &Env,
    credentials: Option<&Credentials>,
    incarnation: Incarnation,
    database: u64,
    log: &LogRecord,
) -> Result<Vec<SegmentStatus>> {
    let lane = decode(log)?;
    let mut found = Vec::new();
    for segment in lane.segments {
        let identity = SegmentIdentity {
            incarnation: incarnation.0,
            epoch: log.id.epoch.0,
            lane: log.id.lane,
            segment: segment.number,
        };
        let calls = members(&segment.regions).into_iter().map(|member| -> BoxFuture<'_, RegionStatus> {
            Box::pin(async move {
                let state = ask(env, credentials, &member, &identity, database, log).await;
                RegionStatus { member, state }
            })
        });
        let regions = all(calls.collect(), CALLS_IN_FLIGHT).await;
        found.push(SegmentStatus {
            number: segment.number,
            length: segment.settled.map(|(length, _)| length),
            regions,
        });
    }
    Ok(found)
}

/// An append of nothing changes nothing, and is answered with what the region holds.
async fn ask(
    env: &Env,
    credentials: Option<&Credentials>,
    member: &Member,
    identity: &SegmentIdentity,
    database: u64,
    log: &LogRecord,
) -> RegionState {
    let peer: Arc<dyn Peer> = Arc::new(TcpPeer::new(env, &member.node, credentials.cloned()));
    let body =
        Body::Append { offset: 0, predecessor: first_digest(database, identity), records: Bytes::new() };
    let mut epoch = log.id.epoch;
    loop {
        let request =
            Request { incarnation: member.incarnation, region: member.region, epoch, body: body.clone() };
        return match within(env, TIME_MAX, peer.call(request)).await.flatten() {
            None => RegionState::Silent("no answer in time".into()),
            Some(Err(error)) => RegionState::Silent(error.message().to_owned()),
            Some(Ok(Answer::Held(extent))) => {
                RegionState::Open { length: extent.length, committed: extent.committed }
            }
            Some(Ok(Answer::Refused(Refusal::Sealed(by)))) => RegionState::Sealed(by.0),
            // A takeover has made it, in its own name.
            Some(Ok(Answer::Refused(Refusal::OtherEpoch(owner)))) if owner > epoch => {
                epoch = owner;
                continue;
            }
            Some(Ok(Answer::Refused(refusal))) => RegionState::Lost(refusal.to_string()),
            Some(Ok(answer)) => RegionState::Lost(format!("it answers {answer:?}")),
        };
    }
}
