//! A lane's configuration, as the manifest keeps it and as the machines know it.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_format::FormatError;
use tombolo_format::near_log::{NEAR_LANE_MAGIC, NearLane, NearRegion};
use tombolo_segment::call::Member;
use tombolo_segment::message::{NodeIncarnation, RegionId};
use tombolo_storage::{Error, ErrorKind, LogRecord, Result};

pub(crate) fn regions(members: &[Member]) -> Vec<NearRegion> {
    let region = |member: &Member| NearRegion {
        incarnation: member.incarnation.0,
        region: member.region.0,
        address: member.node.as_ref().to_owned(),
    };
    members.iter().map(region).collect()
}

pub(crate) fn members(regions: &[NearRegion]) -> Vec<Member> {
    let member = |region: &NearRegion| Member {
        node: Arc::from(region.address.as_str()),
        incarnation: NodeIncarnation(region.incarnation),
        region: RegionId(region.region),
    };
    regions.iter().map(member).collect()
}

pub(crate) fn encode(lane: &NearLane) -> Result<Bytes> {
    lane.encode().map(Bytes::from).map_err(|error| Error::format("a near-compute log", 0, error))
}

/// What the manifest says of a log.
pub(crate) fn decode(log: &LogRecord) -> Result<NearLane> {
    let place = format!("the log of epoch {} lane {}", log.id.epoch, log.id.lane);
    NearLane::decode(&log.configuration).map_err(|error| match error {
        FormatError::Damaged { .. } if !log.configuration.starts_with(&NEAR_LANE_MAGIC) => {
            Error::new(ErrorKind::Corrupt, "the manifest names a log of another store")
                .object(place)
                .expected("the configuration of a near-compute log")
                .found(format!("{} other bytes", log.configuration.len()))
                .advice("open the database with the log that it was created with")
        }
        error => Error::format(place, 0, error),
    })
}
