//! A node's disk after crashes at every operation, after damage of every kind of byte, and after
//! cleaning.

use std::path::PathBuf;
use std::time::Duration;

use bytes::Bytes;
use tombolo_env::simulated::{Crash, Process, World};
use tombolo_format::segment_record::{encode_header, first_digest};
use tombolo_storage::Epoch;

use super::*;
use crate::message::{Answer, Body, READ_BYTES_MAX, Refusal, RegionId};
use crate::node::{CONNECTIONS_MAX, Node, NodeDisk, NodeOptions, clean, copy_living, wake};
use crate::region::Regions;

const LATER: Epoch = Epoch(9);
const REGIONS: u128 = 5;

fn options(is_synced: bool) -> NodeOptions {
    NodeOptions {
        listen: "host-0:0".into(),
        bytes_max: 64 << 20,
        domain: String::new(),
        credentials: None,
        connections_max: CONNECTIONS_MAX,
        disk: Some(NodeDisk { directory: PathBuf::from("/node"), is_synced }),
        share: None,
        rdma: None,
    }
}

/// Requests to a life: regions made, grown, sealed, freed, and one sealed unseen. The last region
/// stays open.
fn script(incarnation: NodeIncarnation) -> Vec<Request> {
    let mut requests = Vec::new();
    for id in 1..REGIONS {
        let segment =
            SegmentIdentity { incarnation: 1, epoch: 3, lane: 0, segment: u32::try_from(id).expect("few") };
        let mut add = |epoch, body| requests.push(Request { incarnation, region: RegionId(id), epoch, body });
        add(Epoch(3), Body::Create { database: 9, segment, bytes_max: 1 << 20 });
        let (mut offset, mut predecessor) = (0, first_digest(9, &segment));
        for size in [100, 3, 40_000, 0] {
            let payload = vec![u8::try_from(id).expect("few"); size];
            let (header, digest) = encode_header(predecessor, offset, 0, &payload);
            let records = Bytes::from([&header[..], &payload].concat());
            let end = offset + u32::try_from(records.len()).expect("short");
            add(Epoch(3), Body::Append { offset, predecessor, records });
            (offset, predecessor) = (end, digest);
        }
        match id {
            1 => add(Epoch(4), Body::Seal),
            2 => add(Epoch(3), Body::Free),
            _ => {}
        }
    }
    requests.push(Request { incarnation, region: RegionId(REGIONS), epoch: Epoch(4), body: Body::Seal });
    requests
}

/// The answer of a recovered life to a successor.
fn answers(regions: &mut Regions) -> Vec<Answer> {
    let incarnation = regions.incarnation();
    let mut ask =
        |id, body| regions.handle(Request { incarnation, region: RegionId(id), epoch: LATER, body });
    (1..=REGIONS)
        .flat_map(|id| [ask(id, Body::Seal), ask(id, Body::Read { from: 0, bytes_max: READ_BYTES_MAX })])
        .collect()
}

fn model(requests: &[Request]) -> Regions {
    let mut regions = Regions::new(requests[0].incarnation, 64 << 20);
    for request in requests {
        regions.handle(request.clone());
    }
    regions.freeze(true);
    regions
}

/// Runs the script on a node's disk; says how much of it was acknowledged, and in which life.
fn run(process: &Process, is_synced: bool) -> (Option<NodeIncarnation>, usize) {
    let acknowledged = Arc::new(Mutex::new((None, 0)));
    let (env, noted) = (process.env(), Arc::clone(&acknowledged));
    process.run(async move {
        let (mut lives, _lock) = wake(&env, &options(is_synced))?;
        let incarnation = lives.current.regions.incarnation();
        for request in script(incarnation) {
            let (answer, wait) = lives.handle(request);
            assert!(!matches!(answer, Answer::Refused(_)), "{answer:?}");
            if let Some(wait) = wait {
                wait.done().await?;
            }
            env.yield_now().await;
            let mut noted = noted.lock();
            *noted = (Some(incarnation), noted.1 + 1);
        }
        Result::Ok(())
    });
    *acknowledged.lock()
}

/// What the next process finds of a life.
fn found(process: &Process, life: NodeIncarnation) -> Option<Vec<Answer>> {
    let (lives, _lock) = wake(process, &options(true)).expect("the disk works");
    lives
        .earlier
        .into_iter()
        .find(|found| found.regions.incarnation() == life)
        .map(|mut found| answers(&mut found.regions))
}

fn everything_acknowledged_is_found(crash: Crash) {
    let world = World::new(1);
    let process = world.process("node");
    assert_eq!(run(&process, true).1, script(NodeIncarnation(1)).len());
    let mutations = process.mutations();
    for number in 1..=mutations {
        let world = World::new(number);
        let process = world.process("node");
        process.crash_at_mutation(number, crash);
        let (life, acknowledged) = run(&process, true);
        let Some(life) = life else { continue };
        let requests = script(life);
        // Requests under way at the crash took effect, or not.
        let mut possible: Vec<Regions> = (acknowledged..=(acknowledged + 1).min(requests.len()))
            .map(|end| model(&requests[..end]))
            .collect();
        match found(&world.process("node again"), life) {
            None => assert!(possible.iter().any(|model| model.occupancy().regions == 0), "mutation {number}"),
            Some(found) => {
                assert!(possible.iter_mut().any(|model| answers(model) == found), "mutation {number}");
            }
        }
    }
}

fn after_power_loss() {
    everything_acknowledged_is_found(Crash::PowerLoss);
}

#[test]
fn what_was_acknowledged_is_found_after_power_loss_at_any_operation() {
    after_power_loss();
}

#[test]
fn what_was_acknowledged_is_found_after_a_kill_at_any_operation() {
    everything_acknowledged_is_found(Crash::Kill);
}

#[test]
fn a_copy_counts_after_a_clean_stop_only() {
    for is_stopped in [false, true] {
        let world = World::new(7);
        let process = world.process("node");
        let env = process.env();
        let life = process.run(async move {
            let node = Node::start(&env, options(false)).await.expect("it starts");
            let life = node.status().incarnation;
            for request in script(life) {
                node.shared.lives.lock().handle(request);
            }
            env.sleep(Duration::from_secs(1)).await;
            if is_stopped {
                node.stop().await.expect("it stops");
            }
            life
        });
        let life = life.expect("alive");
        process.kill();
        let found = found(&world.process("node again"), life);
        assert!(found == is_stopped.then(|| answers(&mut model(&script(life)))), "stopped: {is_stopped}");
    }
}

/// A node's disk after its script and a clean stop.
fn stopped(seed: u64) -> (World, NodeIncarnation) {
    let world = World::new(seed);
    let process = world.process("node");
    let env = process.env();
    let life = process.run(async move {
        let node = Node::start(&env, options(true)).await.expect("it starts");
        let life = node.status().incarnation;
        for request in script(life) {
            let (_, wait) = node.shared.lives.lock().handle(request);
            if let Some(wait) = wait {
                wait.done().await.expect("the disk works");
            }
        }
        node.stop().await.expect("it stops");
        life
    });
    process.kill();
    (world, life.expect("alive"))
}

fn damage_shortens_no_answer() {
    let (world, life) = stopped(3);
    let expected = answers(&mut model(&script(life)));
    let image = world.host(0).disk_image();
    let directory =
        recover::life_directory(std::path::Path::new("/node"), life, crate::message::NodeMedium::Disk);
    let places =
        (0..100).chain(500..530).chain((4096..128 << 10).step_by(977)).chain((4096..9000).step_by(61));
    let mut refused = 0;
    for (number, at) in [0, 1].into_iter().flat_map(|number| places.clone().map(move |at| (number, at))) {
        let host = world.host(0);
        host.set_disk(&image);
        let path = file_path(&directory, number);
        host.flip_bit(&path, at, u8::try_from(at % 8).expect("few")).expect("within the file");
        let process = host.process("node again");
        let Some(found) = found(&process, life) else { continue };
        for (found, expected) in found.iter().zip(&expected) {
            let is_refused = matches!(found, Answer::Refused(Refusal::Damaged { .. }));
            refused += u32::from(is_refused);
            assert!(is_refused || found == expected, "file {number}, byte {at}: another answer");
        }
        process.kill();
    }
    assert!(refused > 0);
}

#[test]
fn after_a_clean_stop_no_damage_shortens_an_answer() {
    damage_shortens_no_answer();
}

#[test]
fn a_missing_file_is_damage() {
    let (world, life) = stopped(4);
    let process = world.process("somebody");
    let directory =
        recover::life_directory(std::path::Path::new("/node"), life, crate::message::NodeMedium::Disk);
    let expected = answers(&mut model(&script(life)));
    process.files().remove_file(&file_path(&directory, 1)).expect("it is there");
    let found_then = found(&process, life).expect("the first file is there");
    let damaged = |answer: &Answer| matches!(answer, Answer::Refused(Refusal::Damaged { .. }));
    assert!(
        found_then.iter().zip(&expected).all(|(found, expected)| damaged(found) || found == expected),
        "another length than before"
    );
    assert!(found_then.iter().any(damaged));
    process.files().remove_file(&file_path(&directory, 0)).expect("it is there");
    process.kill();
    assert_eq!(found(&world.process("node again"), life), None);
}

#[test]
fn cleaning_keeps_all_that_lives_whenever_the_power_goes() {
    let cleaned = |seed, crash_at: Option<u64>| {
        let world = World::new(seed);
        let process = world.process("node");
        let env = process.env();
        let life = Arc::new(Mutex::new(None));
        let noted = Arc::clone(&life);
        if let Some(number) = crash_at {
            process.crash_at_mutation(number, Crash::PowerLoss);
        }
        process.run(async move {
            let node = Node::start(&env, options(true)).await?;
            let incarnation = node.status().incarnation;
            for request in script(incarnation) {
                let (_, wait) = node.shared.lives.lock().handle(request);
                if let Some(wait) = wait {
                    wait.done().await?;
                }
            }
            *noted.lock() = Some(incarnation);
            let journal = node.shared.lives.lock().current.journal.clone().expect("it has a disk");
            clean(&node.shared, &journal).await?;
            Result::Ok(())
        });
        let mutations = process.mutations();
        let life = *life.lock();
        process.kill();
        let host = world.host(0);
        (host.process("node again"), life, mutations)
    };
    let (process, life, mutations) = cleaned(1, None);
    let life = life.expect("it came to its end");
    let expected = answers(&mut model(&script(life)));
    let names: Vec<PathBuf> = process.host().all_files().into_iter().map(|(path, _)| path).collect();
    let is_old =
        |path: &PathBuf| ["journal-00000000", "journal-00000001"].iter().any(|old| path.ends_with(old));
    assert!(!names.iter().any(is_old), "{names:?}");
    assert!(found(&process, life) == Some(expected));
    // Of the data not made durable, this or that is there: of several files that are deleted at the
    // end, too.
    let attempts = |number| if number + 4 > mutations { 100 } else { 1 };
    for (number, attempt) in
        (1..=mutations).flat_map(|number| (0..attempts(number)).map(move |attempt| (number, attempt)))
    {
        let (process, life, _) = cleaned(number * 100 + attempt, Some(number));
        if let Some(life) = life {
            assert!(
                found(&process, life) == Some(answers(&mut model(&script(life)))),
                "mutation {number}, attempt {attempt}"
            );
        }
    }
}

#[test]
fn what_is_sealed_while_its_journal_is_cleaned_keeps_its_bytes() {
    let world = World::new(2);
    let process = world.process("node");
    let env = process.env();
    let seal =
        |incarnation, id| Request { incarnation, region: RegionId(id), epoch: Epoch(5), body: Body::Seal };
    let life = process.run(async move {
        let node = Node::start(&env, options(true)).await.expect("it starts");
        let life = node.status().incarnation;
        let handle = async |request| {
            let (_, wait) = node.shared.lives.lock().handle(request);
            wait.expect("it must be durable").done().await.expect("the disk works");
        };
        for request in script(life) {
            handle(request).await;
        }
        let journal = node.shared.lives.lock().current.journal.clone().expect("it has a disk");
        let number = journal.begin_cleaning().await.expect("the disk works");
        for id in [3, 4] {
            handle(seal(life, id)).await;
        }
        copy_living(&node.shared, &journal, number).await.expect("the disk works");
        life
    });
    let life = life.expect("alive");
    process.kill();
    let requests: Vec<Request> = script(life).into_iter().chain([3, 4].map(|id| seal(life, id))).collect();
    assert!(found(&world.process("node again"), life) == Some(answers(&mut model(&requests))));
}

/// Frees all that a life has; what the node's disk is to note about it is returned.
fn free_all(lives: &mut crate::node::lives::Lives, life: NodeIncarnation) {
    for id in [1, 3, 4] {
        let free = Request { incarnation: life, region: RegionId(id), epoch: LATER, body: Body::Free };
        assert_eq!(lives.handle(free).0, Answer::Freed);
    }
}

#[test]
fn an_earlier_life_is_forgotten_only_once_its_journal_says_so() {
    let (world, life) = stopped(10);
    let process = world.process("node again");
    let env = process.env();
    let forgotten = process.run(async move {
        let (mut lives, _lock) = wake(&env, &options(true)).expect("the disk works");
        free_all(&mut lives, life);
        let early = lives.take_empty().len();
        env.sleep(Duration::from_secs(1)).await;
        (early, lives.take_empty().len())
    });
    assert_eq!(forgotten, Some((0, 1)));
}

#[test]
fn of_a_life_that_is_over_nothing_is_left_whenever_the_power_goes() {
    let run = |crash_at: Option<u64>| {
        let (world, life) = stopped(11);
        let process = world.process("node again");
        if let Some(number) = crash_at {
            process.crash_at_mutation(number, Crash::PowerLoss);
        }
        let env = process.env();
        process.run(async move {
            let node = Node::start(&env, options(true)).await?;
            free_all(&mut node.shared.lives.lock(), life);
            env.sleep(Duration::from_secs(3)).await;
            Result::Ok(())
        });
        let mutations = process.mutations();
        process.kill();
        (world, life, mutations)
    };
    for number in 1..=run(None).2 {
        let (world, life, _) = run(Some(number));
        let found = found(&world.process("a third"), life);
        let damaged = |answer: &Answer| matches!(answer, Answer::Refused(Refusal::Damaged { .. }));
        assert!(!found.iter().flatten().any(damaged), "mutation {number}");
        let left = world
            .host(0)
            .all_files()
            .into_iter()
            .filter(|(path, _)| path.to_string_lossy().contains(&life.to_string()))
            .count();
        assert!(
            found.is_some() || left == 0,
            "mutation {number}: {left} files of a life that answers nothing"
        );
    }
}

#[test]
fn a_node_whose_disk_failed_ends_whichever_life_it_was() {
    for is_earlier in [false, true] {
        let (world, life) = stopped(12);
        let process = world.process("node again");
        let (env, faults) = (process.env(), process.clone());
        let error = process.run(async move {
            let node = Node::start(&env, options(false)).await.expect("it starts");
            let current = node.status().incarnation;
            faults.fail_next(tombolo_env::simulated::OperationKind::Sync, io::ErrorKind::Other, 1);
            if is_earlier {
                free_all(&mut node.shared.lives.lock(), life);
            } else {
                node.shared.lives.lock().handle(script(current).remove(0));
            }
            env.sleep(Duration::from_secs(1)).await;
            let line = crate::node::Line { client: 1, is_superseded: false.into() };
            let refused = node.shared.handle(&line, script(current).remove(1)).map(|(answer, _)| answer);
            assert_eq!(
                refused,
                Err(crate::wire::hello::Farewell::Ending),
                "what it carries out it could not keep"
            );
            assert!(node.drain(None).await.is_err(), "nobody waits for what cannot come");
            node.failure()
        });
        let told = error.flatten().expect("it failed").to_string();
        assert!(
            told.contains("the node ends") && told.contains("start a node on that directory again"),
            "{told}"
        );
    }
}

#[test]
fn an_earlier_life_goes_once_its_last_region_is_freed() {
    let (world, life) = stopped(6);
    let process = world.process("node again");
    let env = process.env();
    let (before, after) = process
        .run(async move {
            let node = Node::start(&env, options(true)).await.expect("it starts");
            let before = node.status();
            for id in [1, 3, 4] {
                let free =
                    Request { incarnation: life, region: RegionId(id), epoch: LATER, body: Body::Free };
                assert_eq!(node.shared.lives.lock().handle(free).0, Answer::Freed);
            }
            env.sleep(Duration::from_secs(3)).await;
            (before, node.status())
        })
        .expect("alive");
    assert_eq!((before.regions, before.bytes_taken, after.regions, after.bytes_taken), (3, 3 << 20, 0, 0));
    assert!(before.incarnation != life && after.bytes_free() == 64 << 20);
    let left = world
        .host(0)
        .all_files()
        .into_iter()
        .filter(|(path, _)| path.to_string_lossy().contains(&life.to_string()))
        .count();
    assert_eq!(left, 0);
}

#[test]
fn after_a_failed_sync_nothing_is_acknowledged_any_more() {
    let world = World::new(9);
    let process = world.process("node");
    let env = process.env();
    let faults = process.clone();
    let (before, after) = process
        .run(async move {
            let (mut lives, _lock) = wake(&env, &options(true)).expect("the disk works");
            let life = lives.current.regions.incarnation();
            let mut before = 0;
            let mut requests = script(life).into_iter();
            for request in requests.by_ref().take(3) {
                let (_, wait) = lives.handle(request);
                wait.expect("it must be durable").done().await.expect("the disk works");
                before += 1;
            }
            faults.fail_next(tombolo_env::simulated::OperationKind::Sync, io::ErrorKind::Other, 1);
            let mut after = 0;
            for request in requests {
                let (_, wait) = lives.handle(request);
                after += usize::from(wait.expect("it must be durable").done().await.is_ok());
            }
            assert!(lives.current.journal.as_ref().and_then(|journal| journal.failure()).is_some());
            (before, after)
        })
        .expect("alive");
    assert_eq!((before, after), (3, 0));
}

#[test]
fn one_node_has_a_directory() {
    let world = World::new(8);
    let (one, other) = (world.process("one"), world.process("other"));
    let _held = wake(&one, &options(true)).expect("it is free");
    let error = wake(&other, &options(true)).err().expect("it is taken");
    assert_eq!(error.kind(), ErrorKind::Busy);
}

#[cfg(feature = "mutants")]
#[test]
fn mutants_are_noticed() {
    use tombolo_storage::mutant::notices;
    notices(Mutant::NodeAnswersBeforeSync, after_power_loss);
    notices(Mutant::NodeTrustsDamagedDisk, damage_shortens_no_answer);
    notices(Mutant::NodeTrustsUncleanCopy, a_copy_counts_after_a_clean_stop_only);
}
