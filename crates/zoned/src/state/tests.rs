use super::*;

const GEOMETRY: ZoneGeometry =
    ZoneGeometry { block_bytes: 4096, zone_bytes: 1 << 20, zones: 20, open_max: 0, active_max: 0 };

fn extent(zone: u32, block: u32, bytes: u64) -> Extent {
    Extent { zone, block, bytes, hash: 0 }
}

fn body(body: u64, length: u64, extents: &[Extent]) -> ZoneRecord {
    let extents = extents.to_vec();
    ZoneRecord::Body { body, length, kind: 0, level: 1, life: 2, age_seconds: 0, born: 10, extents }
}

fn named(name: &str, body: u64) -> ZoneRecord {
    ZoneRecord::Name { name: name.into(), body }
}

fn gone(name: &str) -> ZoneRecord {
    ZoneRecord::NameGone { name: name.into() }
}

fn made(records: &[ZoneRecord]) -> std::result::Result<State, String> {
    let mut state = State::default();
    records.iter().try_for_each(|record| state.apply(record, &GEOMETRY, 3))?;
    Ok(state)
}

#[test]
fn a_state_comes_back_from_its_records() {
    let state = made(&[
        body(1, 5000, &[extent(3, 0, 5000)]),
        named("a", 1),
        named("b", 1),
        body(2, 9000, &[extent(3, 2, 4096), extent(4, 0, 4904)]),
        named("c", 2),
        gone("a"),
        ZoneRecord::LogZone { zone: 7, generation: 3 },
        ZoneRecord::LogZoneEnded { zone: 7, generation: 3, blocks: 9 },
        ZoneRecord::LogZone { zone: 8, generation: 4 },
        ZoneRecord::Lane { lane: 5, life: 1, epoch: 2, number: 0 },
        ZoneRecord::LaneSealed { lane: 5, end: 80 },
        body(6, 10, &[extent(5, 0, 10)]),
        named("d", 6),
        gone("d"),
    ])
    .expect("no contradiction");
    assert_eq!([3, 4, 5].map(|zone| state.live_of(zone)), [8192 + 4096, 8192, 0]);
    assert_eq!(state.learned[&(0, 1, 2)].samples, 1);
    let again = made(&state.records()).expect("no contradiction");
    let bytes: usize = again.records_bytes();
    assert_eq!(
        (again.names.clone(), again.bodies.clone(), again.live.clone()),
        (state.names, state.bodies, state.live)
    );
    assert_eq!((again.lanes, again.log_zones, again.next), (state.lanes, state.log_zones, 7));
    assert!(again.snapshot_bytes >= bytes as u64 && again.snapshot_bytes < bytes as u64 + 200);
}

impl State {
    fn records_bytes(&self) -> usize {
        self.records().iter().map(record_bytes).sum()
    }
}

#[test]
fn what_contradicts_is_refused() {
    let sound = [body(1, 10, &[extent(3, 0, 10)]), named("a", 1)];
    for (wrong, what) in [
        (body(1, 10, &[extent(3, 1, 10)]), "made twice"),
        (named("a", 1), "named twice"),
        (named("b", 2), "is not there"),
        (gone("b"), "names nothing"),
        (body(2, 11, &[extent(3, 1, 10)]), "extents of 10 bytes for a body of 11"),
        (body(2, 10, &[extent(2, 1, 10)]), "in no zone for data"),
        (body(2, 10, &[extent(20, 1, 10)]), "in no zone for data"),
        (body(2, 10, &[extent(3, 256, 10)]), "in no zone for data"),
        (ZoneRecord::LogZone { zone: 3, generation: 2 }, "none for it"),
        (ZoneRecord::LogZoneFree { zone: 9, generation: 2 }, "is free"),
        (ZoneRecord::LaneFree { lane: 9 }, "is not there"),
        (ZoneRecord::LaneSealed { lane: 9, end: 1 }, "ends at"),
        (ZoneRecord::Moved { body: 9, extents: Vec::new() }, "is not there"),
    ] {
        let records: Vec<ZoneRecord> = sound.iter().cloned().chain([wrong]).collect();
        let refused = made(&records).expect_err(what);
        assert!(refused.contains(what), "{refused}");
    }
}
