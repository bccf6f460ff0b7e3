//! What a simulated disk may show after a power loss, checked against a model of everything that
//! was ever written.

use std::collections::BTreeMap;
use std::path::Path;

use proptest::prelude::*;
use tombolo_env::Access;
use tombolo_env::simulated::{OperationKind, World};

const SECTOR: usize = 512;
const SECTORS: usize = 6;

/// A step of a history on one file of six sectors; each write fills one sector with one byte.
#[derive(Clone, Copy, Debug)]
enum Step {
    Write(usize),
    Store(usize),
    Sync,
    FailedSync,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..SECTORS).prop_map(Step::Write),
        4 => (0..SECTORS).prop_map(Step::Store),
        2 => Just(Step::Sync),
        1 => Just(Step::FailedSync),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// A sector holds its last synced content or any later one; never an earlier one, never a
    /// mixture.
    #[test]
    fn a_sector_holds_what_was_synced_or_later(
        seed in any::<u64>(),
        steps in prop::collection::vec(step(), 0..40)
    ) {
        let world = World::new(seed);
        let process = world.process("writer");
        let file = process.files().create_new(Path::new("/a")).unwrap();
        file.set_length((SECTORS * SECTOR) as u64).unwrap();
        file.sync_data().unwrap();
        process.files().sync_directory(Path::new("/")).unwrap();
        let mapping = file.map(SECTORS * SECTOR).unwrap();
        // Per sector: what it may hold after a loss, the newest last; and whether the newest was
        // given up by a failed sync.
        let mut allowed: BTreeMap<usize, Vec<u8>> = (0..SECTORS).map(|sector| (sector, vec![0])).collect();
        let mut given_up = [false; SECTORS];
        for (number, step) in (1u8..).zip(steps) {
            match step {
                Step::Write(sector) | Step::Store(sector) => {
                    if let Step::Write(_) = step {
                        file.write_all_at(&[number; SECTOR], (sector * SECTOR) as u64).unwrap();
                    } else {
                        mapping.write(sector * SECTOR, &[number; SECTOR]);
                        mapping.full_fence();
                    }
                    given_up[sector] = false;
                    allowed.get_mut(&sector).unwrap().push(number);
                }
                Step::Sync => {
                    file.sync_data().unwrap();
                    for (sector, values) in &mut allowed {
                        if !given_up[*sector] {
                            values.drain(..values.len() - 1);
                        }
                    }
                }
                Step::FailedSync => {
                    process.fail_next(OperationKind::Sync, std::io::ErrorKind::Other, 1);
                    file.sync_data().unwrap_err();
                    for (sector, values) in &allowed {
                        given_up[*sector] = values.len() > 1;
                    }
                }
            }
        }
        world.host(0).power_loss();
        let content = world.host(0).content("/a").unwrap();
        prop_assert_eq!(content.len(), SECTORS * SECTOR);
        for (sector, values) in allowed {
            let bytes = &content[sector * SECTOR..(sector + 1) * SECTOR];
            prop_assert!(bytes.iter().all(|byte| *byte == bytes[0]), "sector {} is torn inside", sector);
            prop_assert!(values.contains(&bytes[0]), "sector {} holds {}, allowed \
                {:?}", sector, bytes[0], values);
        }
    }

    /// Lengths and names: synced ones are there; a file that grows and shrinks has one of its
    /// lengths or one in between.
    #[test]
    fn lengths_and_names_are_those_synced_or_later(
        seed in any::<u64>(),
        lengths in prop::collection::vec((0u64..3000, any::<bool>()), 1..12),
        synced_names in 0usize..6,
    ) {
        let world = World::new(seed);
        let process = world.process("writer");
        let files = process.files();
        files.create_directories(Path::new("/d")).unwrap();
        let file = files.create_new(Path::new("/d/grows")).unwrap();
        for number in 0..6 {
            if number == synced_names {
                files.sync_directory(Path::new("/d")).unwrap();
            }
            files.hard_link(Path::new("/d/grows"), Path::new(&format!("/d/{number}"))).unwrap();
        }
        files.rename(Path::new("/d/grows"), Path::new("/d/renamed")).unwrap();
        let (mut low, mut high) = (0, 0);
        for (length, sync) in lengths {
            file.set_length(length).unwrap();
            (low, high) = (length.min(low), length.max(high));
            if sync {
                file.sync_data().unwrap();
                (low, high) = (length, length);
            }
        }
        world.host(0).power_loss();
        let host = world.host(0);
        for number in 0..synced_names {
            prop_assert!(host.content(format!("/d/{number}")).is_ok(), "synced name {} is gone", number);
        }
        let (old, new) = (host.content("/d/grows").is_ok(), host.content("/d/renamed").is_ok());
        prop_assert!(!(old && new), "a rename took place by half");
        if synced_names > 0 {
            prop_assert!(old || new, "a rename lost its file");
        }
        for (path, length) in host.all_files() {
            prop_assert!((low..=high).contains(&length), "{} has {} bytes, not {} to \
                {}", path.display(), length, low, high);
        }
    }
}

#[test]
fn a_cut_that_did_not_arrive_leaves_what_lay_behind_it() {
    let mut undone = 0;
    for seed in 0..200 {
        let world = World::new(seed);
        world.set_write_back_probability(0.5);
        let process = world.process("writer");
        let file = process.files().create_new(Path::new("/a")).unwrap();
        file.write_all_at(&[1; 3000], 0).unwrap();
        file.sync_data().unwrap();
        process.files().sync_directory(Path::new("/")).unwrap();
        file.set_length(100).unwrap();
        for _ in 0..10 {
            file.length().unwrap();
        }
        world.host(0).power_loss();
        let content = world.host(0).content("/a").unwrap();
        assert!(content.len() == 100 || content.len() == 3000, "{}", content.len());
        assert!(content.iter().all(|byte| *byte == 1));
        undone += u32::from(content.len() == 3000);
    }
    assert!((20..180).contains(&undone), "{undone}");
}

#[test]
fn changes_of_one_name_arrive_in_their_order() {
    for seed in 0..200 {
        let world = World::new(seed);
        world.set_write_back_probability(0.7);
        let process = world.process("writer");
        let files = process.files();
        for number in 0..4 {
            let own = format!("/own-{number}");
            files.create_new(Path::new(&own)).unwrap().write_all_at(&[number], 0).unwrap();
            files.open(Path::new(&own), Access::Read).unwrap().sync_data().unwrap();
            files.hard_link(Path::new(&own), Path::new("/name")).unwrap();
            if number < 3 {
                files.remove_file(Path::new("/name")).unwrap();
            }
        }
        files.sync_directory(Path::new("/")).unwrap();
        world.host(0).power_loss();
        assert_eq!(world.host(0).content("/name").unwrap(), [3], "the newest synced change is the last");
    }
}
