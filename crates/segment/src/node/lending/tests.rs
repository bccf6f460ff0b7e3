//! What a node answers when a writer cannot be kept from its memory; and, with a card, that it can.

#[cfg(feature = "rdma")]
mod card;

use tombolo_format::log_frame::SegmentIdentity;
use tombolo_format::segment_record::{encode_header, first_digest};
use tombolo_storage::{Error, ErrorKind, Result};

use super::*;

const LIFE: NodeIncarnation = NodeIncarnation(1);
const REGION: RegionId = RegionId(7);
const OWNER: Epoch = Epoch(3);
const LATER: Epoch = Epoch(4);
const SEGMENT: SegmentIdentity = SegmentIdentity { incarnation: 1, epoch: 3, lane: 0, segment: 0 };
const BYTES_MAX: u32 = 1 << 16;

/// Memory of a card that takes no orders, in which one record lies.
#[derive(Debug)]
struct Stuck(Vec<u8>);

impl Lent for Stuck {
    fn bytes_max(&self) -> u32 {
        BYTES_MAX
    }

    fn end(&mut self, _why: End) -> Result<()> {
        Err(Error::new(ErrorKind::Corrupt, "the card is stuck"))
    }

    fn copy(&self, offset: u32, buffer: &mut [u8]) -> bool {
        let from = offset as usize;
        buffer.copy_from_slice(&self.0[from..from + buffer.len()]);
        true
    }
}

fn request(epoch: Epoch, body: Body) -> Request {
    Request { incarnation: LIFE, region: REGION, epoch, body }
}

/// Lent memory is taken twice, and given back twice.
#[test]
fn no_more_is_wanted_back_than_is_needed() {
    let world = tombolo_env::simulated::World::new(1);
    let env = world.process("node").env();
    let directory = PathBuf::from("/shm");
    env.files().create_directories(&directory).expect("it can");
    let (mut regions, mut lending) = (Regions::new(LIFE, 1 << 20), Lending::new(&env, Some(directory)));
    let ask = |number, epoch, body| Request { incarnation: LIFE, region: RegionId(number), epoch, body };
    for number in 0..5 {
        regions.handle(ask(
            number,
            OWNER,
            Body::Create { database: 9, segment: SEGMENT, bytes_max: BYTES_MAX },
        ));
        assert!(lending.share(&mut regions, LIFE, RegionId(number), OWNER).is_some());
    }
    let wanted_back = |regions: &mut Regions| {
        regions.lend(regions.occupancy().bytes_taken / 2);
        let wanted: Vec<RegionId> = regions.wanted_back().collect();
        regions.lend(1 << 20);
        wanted
    };
    assert_eq!(wanted_back(&mut regions).len(), 3);
    // A seal leaves one of the two: that region is the last to give anything back.
    let seal = ask(4, LATER, Body::Seal);
    assert_eq!(lending.prepare(&mut regions, &seal), None);
    regions.handle(seal);
    lending.forget_ended(&mut regions);
    assert_eq!(regions.occupancy().bytes_taken, 9 * u64::from(BYTES_MAX));
    let wanted = wanted_back(&mut regions);
    assert!(wanted.len() == 3 && !wanted.contains(&RegionId(4)), "{wanted:?}");
}

#[test]
fn a_writer_that_cannot_be_stopped_leaves_no_answer() {
    for is_sealed in [true, false] {
        let env = tombolo_env::simulated::World::new(1).process("node").env();
        let (mut regions, mut lending) = (Regions::new(LIFE, 1 << 20), Lending::new(&env, None));
        let create = Body::Create { database: 9, segment: SEGMENT, bytes_max: BYTES_MAX };
        regions.handle(request(OWNER, create.clone()));
        assert!(regions.reserve(REGION, BYTES_MAX.into()));
        let (header, _) = encode_header(first_digest(9, &SEGMENT), 0, 0, b"a record");
        let mut memory = [&header[..], b"a record"].concat();
        let length = u32::try_from(memory.len()).expect("short");
        memory.resize(BYTES_MAX as usize, 0);
        lending.lent.insert(REGION, Loan { memory: Box::new(Stuck(memory)), line: Some(5) });
        let mut ask = |regions: &mut Regions, epoch, body: Body| {
            let request = request(epoch, body);
            lending.prepare(regions, &request).unwrap_or_else(|| regions.handle(request))
        };
        let read = Body::Read { from: 0, bytes_max: 1000 };
        assert!(matches!(
            ask(&mut regions, Epoch::NONE, read.clone()),
            Answer::Bytes(bytes) if bytes.len() == length as usize
        ));
        if is_sealed {
            ask(&mut regions, LATER, Body::Seal);
        } else {
            lending.end_line(&mut regions, 5);
        }
        let mut ask = |regions: &mut Regions, epoch, body: Body| {
            let request = request(epoch, body);
            lending.prepare(regions, &request).unwrap_or_else(|| regions.handle(request))
        };
        let damaged = Answer::Refused(Refusal::Damaged { sound: length, recorded: BYTES_MAX });
        for (epoch, body) in [(LATER, Body::Seal), (LATER, read), (OWNER, create)] {
            assert_eq!(ask(&mut regions, epoch, body), damaged, "sealed: {is_sealed}");
        }
        assert_eq!(ask(&mut regions, LATER, Body::Free), Answer::Freed);
        assert_eq!(
            regions.occupancy().bytes_taken,
            u64::from(BYTES_MAX),
            "the card's memory is nobody's any more"
        );
    }
}
