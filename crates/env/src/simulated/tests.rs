use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;

use super::{Action, Crash, Fault, OperationKind, World, is_crash};
use crate::{Access, Env, TaskClass, completion};

fn path(name: &str) -> &Path {
    Path::new(name)
}

/// Tasks of three processes that write, sleep and yield; what they observed, in order.
fn busy_history(seed: u64) -> (Vec<u64>, u64) {
    let world = World::new(seed);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..3u64)
        .map(|number| {
            let process = world.process("worker");
            let (env, seen) = (process.env(), Arc::clone(&seen));
            process.spawn(TaskClass::Background, "work", async move {
                let file = env.files().create_new(Path::new(&format!("/file-{number}"))).unwrap();
                for round in 0..20 {
                    file.write_all_at(&env.random_u64().to_le_bytes(), round * 8).unwrap();
                    if round % 3 == 0 {
                        env.sleep(Duration::from_micros(env.random_u64() % 50)).await;
                    }
                    env.yield_now().await;
                    seen.lock().push(number * 100 + round);
                }
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(world.run_until(task), Some(()));
    }
    let seen = seen.lock().clone();
    (seen, world.digest())
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..20 {
        assert_eq!(busy_history(seed), busy_history(seed));
    }
    assert_ne!(busy_history(1), busy_history(2));
}

#[test]
fn block_on_runs_the_queue_and_time_jumps() {
    let world = World::new(3);
    let env = world.process("main").env();
    let before = env.now();
    env.block_on(env.sleep(Duration::from_secs(3600)));
    assert!(env.now().since(before) >= Duration::from_secs(3600));
    let (completer, result) = completion();
    env.spawn(TaskClass::Foreground, "answer", async move { completer.complete(5) }).detach();
    assert_eq!(env.block_on(result), Some(5));
    let deadline = env.now() + Duration::from_millis(1);
    assert_eq!(env.block_on_until(std::future::pending::<()>(), deadline), None);
    assert!(env.now() >= deadline);
    assert_eq!(env.block_on_until(async { 1 }, before), Some(1));
}

#[test]
#[should_panic(expected = "waiting inside a simulated task")]
fn waiting_inside_a_task_panics() {
    let world = World::new(1);
    let process = world.process("main");
    let env = process.env();
    process.run(async move { env.block_on(async {}) });
}

#[test]
#[should_panic(expected = "nothing can run")]
fn waiting_for_nothing_panics() {
    World::new(1).run_until(std::future::pending::<()>());
}

#[test]
fn a_panic_may_end_only_its_task() {
    let world = World::new(1);
    world.set_panics_propagate(false);
    let process = world.process("main");
    assert_eq!(process.run(async { panic!("on purpose") }), None::<()>);
    assert_eq!(process.run(async { 1 }), Some(1));
}

#[test]
fn kill_drops_tasks_and_keeps_the_cache() {
    let world = World::new(1);
    let process = world.process("victim");
    let dropped = Arc::new(AtomicBool::new(false));
    struct OnDrop(Arc<AtomicBool>);
    impl Drop for OnDrop {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let guard = OnDrop(Arc::clone(&dropped));
    let task = process.spawn(TaskClass::Background, "endless", async move {
        std::future::pending::<()>().await;
        drop(guard);
    });
    let file = process.files().create_new(path("/a")).unwrap();
    file.set_length(4096).unwrap();
    let mapping = file.map(4096).unwrap();
    mapping.write(100, b"stays");
    world.run_until_idle();
    process.kill();
    assert!(dropped.load(Ordering::Relaxed));
    assert_eq!(world.run_until(task), None);
    mapping.write(200, b"ignored");
    mapping.store_u64(304, 7);
    assert!(is_crash(&file.write_all_at(b"x", 0).unwrap_err()));
    assert!(is_crash(&process.files().open(path("/a"), Access::Read).unwrap_err()));
    assert!(!is_crash(&ErrorKind::NotFound.into()));
    let mut expected = vec![0; 4096];
    expected[100..105].copy_from_slice(b"stays");
    assert_eq!(world.host(0).content("/a").unwrap(), expected);
}

#[test]
fn power_loss_keeps_what_was_synced_and_perhaps_more() {
    let (mut kept, mut lost, mut torn) = (0, 0, 0);
    for seed in 0..200 {
        let world = World::new(seed);
        let boot_id = world.host(0).boot_id();
        let process = world.process("writer");
        let files = process.files();
        let file = files.create_new(path("/a")).unwrap();
        file.write_all_at(&[1; 2048], 0).unwrap();
        file.sync_data().unwrap();
        files.sync_directory(path("/")).unwrap();
        file.write_all_at(&[2; 2048], 0).unwrap();
        world.host(0).power_loss();
        assert!(!process.is_alive());
        assert_ne!(world.host(0).boot_id(), boot_id);
        let content = world.host(0).content("/a").unwrap();
        assert_eq!(content.len(), 2048);
        let twos = content.chunks(512).filter(|sector| **sector == [2; 512]).count();
        let ones = content.chunks(512).filter(|sector| **sector == [1; 512]).count();
        assert_eq!(twos + ones, 4, "sectors are written whole");
        match twos {
            0 => lost += 1,
            4 => kept += 1,
            _ => torn += 1,
        }
    }
    assert!(kept > 20 && lost > 20 && torn > 20, "{kept} {lost} {torn}");
}

#[test]
fn the_kernel_writes_back_versions_in_between() {
    let mut seen = [0; 4];
    for seed in 0..300 {
        let world = World::new(seed);
        world.set_write_back_probability(0.5);
        let process = world.process("writer");
        let file = process.files().create_new(path("/a")).unwrap();
        file.write_all_at(&[0; 512], 0).unwrap();
        file.sync_data().unwrap();
        process.files().sync_directory(path("/")).unwrap();
        for version in 1..=3 {
            file.write_all_at(&[version; 512], 0).unwrap();
        }
        world.host(0).power_loss();
        seen[usize::from(world.host(0).content("/a").unwrap()[0])] += 1;
    }
    assert!(seen.iter().all(|count| *count > 10), "{seen:?}");
}

#[test]
fn names_are_durable_after_their_directory_was_synced() {
    let (mut kept, mut lost) = (0, 0);
    for seed in 0..100 {
        let world = World::new(seed);
        let files = world.process("writer").env();
        let files = files.files();
        files.create_directories(path("/d")).unwrap();
        let file = files.create_new(path("/d/temporary")).unwrap();
        file.write_all_at(b"content", 0).unwrap();
        file.sync_data().unwrap();
        files.hard_link(path("/d/temporary"), path("/d/name")).unwrap();
        if seed % 2 == 0 {
            files.sync_directory(path("/d")).unwrap();
        }
        world.host(0).power_loss();
        match world.host(0).content("/d/name") {
            Ok(content) => {
                assert_eq!(content, b"content");
                kept += 1;
            }
            Err(_) => {
                assert_eq!(seed % 2, 1, "a synced name is gone");
                lost += 1;
            }
        }
    }
    assert!(kept > 50 && lost > 10, "{kept} {lost}");
}

/// A rename into another directory, which is synced alone: the name that it took away is not made
/// again by the change that made it.
#[test]
fn changes_of_one_name_become_durable_in_their_order() {
    for seed in 0..50 {
        let world = World::new(seed);
        let process = world.process("main");
        let files = process.files();
        for directory in ["/a", "/b"] {
            files.create_directories(path(directory)).unwrap();
        }
        files.create_new(path("/a/x")).unwrap();
        files.rename(path("/a/x"), path("/b/x")).unwrap();
        files.sync_directory(path("/b")).unwrap();
        world.host(0).power_loss();
        let names: Vec<_> = world.host(0).all_files().into_iter().map(|(path, _)| path).collect();
        assert_eq!(names, [path("/b/x")], "seed {seed}");
    }
}

#[test]
fn a_failed_sync_loses_its_sectors_for_ever() {
    let mut gone = 0;
    for seed in 0..50 {
        let world = World::new(seed);
        world.set_write_back_probability(0.0);
        let process = world.process("writer");
        let file = process.files().create_new(path("/a")).unwrap();
        file.write_all_at(&[1; 1024], 0).unwrap();
        file.sync_data().unwrap();
        process.files().sync_directory(path("/")).unwrap();
        file.write_all_at(&[2; 1024], 0).unwrap();
        process.fail_next(OperationKind::Sync, ErrorKind::Other, 1);
        assert!(file.sync_data().is_err());
        let mut seen = [0; 1024];
        file.read_at(&mut seen, 0).unwrap();
        assert_eq!(seen, [2; 1024], "reads still see what was not persisted");
        file.sync_data().unwrap();
        world.host(0).power_loss();
        gone += u32::from(world.host(0).content("/a").unwrap() != [2; 1024]);
    }
    assert!(gone > 20, "{gone}");
}

#[test]
fn every_operation_can_be_the_last() {
    async fn work(env: Env) {
        env.files().create_directories(path("/d")).unwrap_or_default();
        for number in 0..3 {
            let name = format!("/d/{number}");
            let Ok(file) = env.files().create_new(path(&name)) else { return };
            if file.write_all_at(&[7; 1000], 0).is_err() || file.sync_data().is_err() {
                return;
            }
            env.yield_now().await;
        }
    }
    let world = World::new(0);
    let process = world.process("all");
    process.run(work(process.env())).unwrap();
    let operations = process.operations();
    assert_eq!(operations, 10);
    for number in 1..=operations {
        for crash in [Crash::Kill, Crash::PowerLoss] {
            let world = World::new(number);
            let process = world.process("all");
            process.crash_at(number, crash);
            assert_eq!(process.run(work(process.env())), None);
            assert_eq!(process.operations(), number);
        }
    }
}

#[test]
fn pause_stops_all_tasks_of_a_process() {
    let world = World::new(4);
    let process = world.process("paused");
    let count = Arc::new(AtomicU64::new(0));
    let (env, counted) = (process.env(), Arc::clone(&count));
    process
        .spawn(TaskClass::Background, "tick", async move {
            loop {
                counted.fetch_add(1, Ordering::Relaxed);
                env.sleep(Duration::from_millis(1)).await;
            }
        })
        .detach();
    world.run_for(Duration::from_millis(10));
    let before = count.load(Ordering::Relaxed);
    assert!(before >= 9);
    process.pause();
    world.run_for(Duration::from_secs(10));
    assert_eq!(count.load(Ordering::Relaxed), before);
    process.resume();
    world.run_for(Duration::from_millis(10));
    assert!(count.load(Ordering::Relaxed) > before);
}

#[test]
fn others_run_in_the_middle_of_a_poll() {
    let mut interleaved = 0;
    for seed in 0..50 {
        let world = World::new(seed);
        world.set_preemption_probability(0.5);
        let counter = Arc::new(AtomicU64::new(0));
        let other = world.process("other");
        let (env, counted) = (other.env(), Arc::clone(&counter));
        other
            .spawn(TaskClass::Background, "count", async move {
                for _ in 0..100 {
                    counted.fetch_add(1, Ordering::Relaxed);
                    env.yield_now().await;
                }
            })
            .detach();
        let process = world.process("main");
        let (own, alone) = (process.env(), Arc::new(AtomicBool::new(true)));
        let flag = Arc::clone(&alone);
        process
            .spawn(TaskClass::Background, "own", async move {
                flag.store(false, Ordering::Relaxed);
            })
            .detach();
        let before = counter.load(Ordering::Relaxed);
        own.preemption_point();
        interleaved += u32::from(counter.load(Ordering::Relaxed) > before);
        assert!(alone.load(Ordering::Relaxed), "a process runs on top of itself");
    }
    assert!(interleaved > 10, "{interleaved}");
}

#[test]
fn a_stalled_operation_lets_the_world_go_on() {
    let world = World::new(9);
    let (stalled, other) = (world.process("stalled"), world.process("other"));
    let env = other.env();
    let written = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&written);
    other
        .spawn(TaskClass::Background, "late", async move {
            env.sleep(Duration::from_secs(5)).await;
            env.files().create_new(path("/late")).unwrap();
            flag.store(true, Ordering::Relaxed);
        })
        .detach();
    stalled.stall_at(2, Duration::from_secs(10));
    let env = stalled.env();
    let found = stalled.run(async move {
        let early = env.files().metadata(path("/late")).is_ok();
        (early, env.files().metadata(path("/late")).is_ok())
    });
    assert_eq!(found, Some((false, true)));
    assert!(written.load(Ordering::Relaxed));
}

#[test]
fn a_hook_drives_the_world_and_may_kill() {
    let world = World::new(10);
    let process = world.process("victim");
    let (env, victim) = (process.env(), process.clone());
    process.call_at(2, move |world| {
        let helper = world.process("helper");
        let env = helper.env();
        helper.run(async move { env.files().create_new(path("/helper")).map(|_| ()) }).unwrap().unwrap();
        assert!(helper.block_on(async { true }));
        victim.kill();
    });
    let outcome = process.run(async move {
        env.files().create_new(path("/first")).unwrap();
        env.files().create_new(path("/second")).map(|_| ())
    });
    assert!(outcome.is_none());
    let names: Vec<_> = world.host(0).all_files().into_iter().map(|(path, _)| path).collect();
    assert_eq!(names, [path("/first"), path("/helper")]);
}

#[test]
fn faults_of_the_disk() {
    let world = World::new(11);
    let process = world.process("main");
    let (host, files) = (world.host(0), process.files());
    let file = files.create_new(path("/a")).unwrap();
    file.write_all_at(&[0; 100], 0).unwrap();
    host.set_capacity(Some(1000));
    assert_eq!(file.write_all_at(&[1; 2000], 0).unwrap_err().kind(), ErrorKind::StorageFull);
    assert_eq!(file.length().unwrap(), 1000);
    assert_eq!(files.space(path("/")).unwrap().available, 0);
    files.remove_file(path("/a")).unwrap();
    drop(file);
    files.sync_directory(path("/")).unwrap();
    assert_eq!(host.used(), 0);
    host.set_capacity(None);
    let file = files.create_new(path("/b")).unwrap();
    file.write_all_at(&[0; 100], 0).unwrap();
    host.flip_bit("/b", 50, 3).unwrap();
    let mut byte = [0];
    file.read_at(&mut byte, 50).unwrap();
    assert_eq!(byte, [8]);
    assert!(host.flip_bit("/b", 100, 0).is_err());
    host.truncate("/b", 10).unwrap();
    assert_eq!(file.length().unwrap(), 10);
    host.hide("/b");
    assert_eq!(files.open(path("/b"), Access::Read).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(files.list_atomically(path("/")).unwrap().is_empty());
    host.unhide("/b");
    assert_eq!(files.list_atomically(path("/")).unwrap().len(), 1);
    host.set_read_only(true);
    assert_eq!(file.write_all_at(b"x", 0).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    assert_eq!(files.create_new(path("/c")).unwrap_err().kind(), ErrorKind::ReadOnlyFilesystem);
    host.set_read_only(false);
    world.inject(
        Fault::new(Action::Fail(ErrorKind::TimedOut), |operation| operation.kind == OperationKind::Read)
            .after(1)
            .times(2),
    );
    let outcomes: Vec<bool> = (0..4).map(|_| file.read_at(&mut byte, 0).is_ok()).collect();
    assert_eq!(outcomes, [true, false, false, true]);
}

#[test]
fn images_move_between_worlds() {
    let world = World::new(12);
    let process = world.process("main");
    process.files().create_directories(path("/d")).unwrap();
    process.files().create_new(path("/d/a")).unwrap().write_all_at(b"abc", 0).unwrap();
    let image = world.host(0).disk_image();
    let other = World::new(13);
    other.host(0).set_disk(&image);
    other.host(0).power_loss();
    assert_eq!(other.host(0).content("/d/a").unwrap(), b"abc");
}

#[test]
fn the_wall_clock_jumps_alone() {
    let world = World::new(14);
    let process = world.process("main");
    let (now, wall) = (process.now(), process.unix_time());
    world.host(0).jump_unix_time(-3600);
    assert_eq!(process.now(), now);
    assert_eq!(process.unix_time() + Duration::from_secs(3600), wall);
}

#[test]
fn stores_are_seen_late_without_a_fence() {
    // Each process raises its flag by plain stores, then looks for the other's: with fences at
    // least one sees the other.
    let both_missed = |fenced: bool| {
        (0..300).any(|seed| {
            let world = World::new(seed);
            world.set_preemption_probability(0.5);
            let setup = world.process("setup");
            setup.files().create_new(path("/shared")).unwrap().set_length(4096).unwrap();
            let missed = Arc::new(AtomicU64::new(0));
            let tasks: Vec<_> = [0, 8]
                .map(|own| {
                    let process = world.process("peer");
                    let (env, missed) = (process.env(), Arc::clone(&missed));
                    process.spawn(TaskClass::Foreground, "flag", async move {
                        let mapping =
                            env.files().open(path("/shared"), Access::ReadWrite).unwrap().map(4096).unwrap();
                        mapping.write(own, &1u64.to_le_bytes());
                        if fenced {
                            mapping.full_fence();
                        }
                        if mapping.load_u64(8 - own) == 0 {
                            missed.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .into();
            for task in tasks {
                assert_eq!(world.run_until(task), Some(()));
            }
            missed.load(Ordering::Relaxed) == 2
        })
    };
    assert!(!both_missed(true));
    assert!(both_missed(false));
}

#[test]
fn stores_under_way_do_not_outlive_the_power() {
    let mut lost = 0;
    for seed in 0..100 {
        let world = World::new(seed);
        let process = world.process("main");
        let file = process.files().create_new(path("/a")).unwrap();
        file.set_length(512).unwrap();
        file.sync_data().unwrap();
        process.files().sync_directory(path("/")).unwrap();
        file.map(512).unwrap().write(0, &[1; 512]);
        world.host(0).power_loss();
        lost += u32::from(world.host(0).content("/a").unwrap() == [0; 512]);
    }
    assert!((20..100).contains(&lost), "{lost}");
}

#[test]
fn a_page_that_the_device_refuses_kills_the_process() {
    let world = World::new(1);
    let process = world.process("main");
    let file = process.files().create_new(path("/a")).unwrap();
    file.set_length(512).unwrap();
    let mapping = file.map(512).unwrap();
    process.fail_next(OperationKind::MapRead, ErrorKind::Other, 1);
    mapping.read(0, &mut [0; 8]);
    assert!(!process.is_alive());
}

#[test]
fn ending_the_world_ends_its_tasks() {
    let held = Arc::new(());
    let world = World::new(15);
    let process = world.process("main");
    let (env, inside) = (process.env(), Arc::clone(&held));
    process
        .spawn(TaskClass::Background, "sleeper", async move {
            env.sleep(Duration::from_secs(1)).await;
            drop(inside);
        })
        .detach();
    world.run_until_idle();
    drop((process, world));
    assert_eq!(Arc::strong_count(&held), 1);
}

#[test]
fn processes_of_one_host_tell_which_of_them_live() {
    let world = World::new(9);
    let host = world.add_host("there");
    let (one, two, far) = (host.process("one"), host.process("two"), world.process("far"));
    let facts = one.env().process_facts();
    assert_eq!((facts.host.as_str(), facts.program.as_str()), ("there", "one"));
    assert_eq!(two.env().process_lives(facts.process, facts.start), Some(true));
    assert_eq!(far.env().process_lives(facts.process, facts.start), Some(false), "not on that host");
    one.kill();
    assert_eq!(two.env().process_lives(facts.process, facts.start), Some(false));
    assert_eq!(one.env().process_token(), one.env().process_token());
    assert_ne!(one.env().process_token(), two.env().process_token());
}

#[test]
fn a_bell_is_heard_by_a_process_of_the_same_host() {
    let world = World::new(10);
    let host = world.add_host("there");
    let (one, two, far) = (host.process("one"), host.process("two"), world.process("far"));
    let facts = one.env().process_facts();
    let ring = |env: Env| env.ring(facts.process, facts.start, 5);
    let heard = one.env().rung(5);
    assert!(ring(far.env()).is_err(), "not on that host");
    ring(two.env()).unwrap();
    assert_eq!(world.run_until(heard), Some(()));
    one.kill();
    assert!(ring(two.env()).is_err());
}
