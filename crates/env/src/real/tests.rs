use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::files::list_atomically;
use crate::{Env, TaskClass, completion};

#[test]
fn block_on_parks_until_a_task_completes() {
    let env = Env::real();
    let (completer, result) = completion();
    env.spawn(TaskClass::Foreground, "answer", async move { completer.complete(42) }).detach();
    assert_eq!(env.block_on(result), Some(42));
}

#[test]
fn block_on_until_gives_up() {
    let env = Env::real();
    let (_completer, result) = completion::<()>();
    assert_eq!(env.block_on_until(result, env.now() + Duration::from_millis(1)), None);
    assert_eq!(env.block_on_until(async { 7 }, env.now()), Some(7));
}

#[test]
fn waits_nest_outside_tasks() {
    let env = Env::real();
    let inner = env.clone();
    let sum = env.block_on(async move {
        let first = inner.block_on(async {
            inner.sleep(Duration::from_micros(50)).await;
            1
        });
        inner.sleep(Duration::from_micros(50)).await;
        first + 1
    });
    assert_eq!(sum, 2);
}

#[test]
fn waiting_inside_a_task_panics_and_the_pool_lives() {
    let env = Env::real();
    for class in [TaskClass::Foreground, TaskClass::Flush, TaskClass::Background] {
        for _ in 0..20 {
            let inner = env.clone();
            let task = env.spawn(class, "waits", async move { inner.block_on(async {}) });
            assert_eq!(env.block_on(task), None);
        }
        assert_eq!(env.block_on(env.spawn(class, "fine", async {})), Some(()));
    }
}

#[test]
fn many_tasks_wake_each_other() {
    let env = Env::real();
    let done = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..200)
        .map(|index| {
            let (done, env) = (Arc::clone(&done), env.clone());
            let class = [TaskClass::Foreground, TaskClass::Flush, TaskClass::Background][index % 3];
            let (completer, half) = completion();
            let other = env.clone();
            let helper = env.spawn(TaskClass::Foreground, "helper", async move {
                other.sleep(Duration::from_micros(index as u64)).await;
                completer.complete(1);
            });
            env.spawn(class, "sum", async move {
                done.fetch_add(half.await.unwrap_or(0), Ordering::Relaxed);
                helper.await;
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(env.block_on(task), Some(()));
    }
    assert_eq!(done.load(Ordering::Relaxed), 200);
}

#[test]
fn dropping_a_task_cancels_it() {
    let env = Env::real();
    let (completer, result) = completion::<()>();
    drop(env.spawn(TaskClass::Background, "endless", async move {
        std::future::pending::<()>().await;
        completer.complete(());
    }));
    assert_eq!(env.block_on(result), None);
}

#[test]
fn the_last_handle_may_go_inside_a_task() {
    let (completer, result) = completion();
    let env = Env::real();
    let (inner, waiter) = (env.clone(), Env::real());
    env.spawn(TaskClass::Foreground, "last", async move {
        inner.sleep(Duration::from_micros(200)).await;
        drop(inner);
        completer.complete(());
    })
    .detach();
    drop(env);
    assert_eq!(waiter.block_on(result), Some(()));
}

#[test]
fn random_numbers_and_boot_identity() {
    let env = Env::real();
    let mut drawn: Vec<u64> = (0..1000).map(|_| env.random_u64()).collect();
    drawn.sort_unstable();
    drawn.dedup();
    assert_eq!(drawn.len(), 1000);
    assert_eq!(env.boot_id(), Env::real().boot_id());
    assert_ne!(env.boot_id(), 0);
    assert!(env.unix_time() > Duration::from_secs(1_600_000_000));
}

#[test]
fn a_list_that_does_not_fit_begins_again() {
    let directory = tempfile::tempdir().unwrap();
    let mut names: Vec<String> = (0..500).map(|index| format!("name-{index:0100}")).collect();
    for name in &names {
        std::fs::write(directory.path().join(name), b"").unwrap();
    }
    names.sort();
    for buffer_bytes in [64, 512, 4096, 1 << 20] {
        let listed = list_atomically(directory.path(), buffer_bytes).unwrap();
        let mut listed: Vec<String> = listed.into_iter().map(|entry| entry.name).collect();
        listed.sort();
        assert_eq!(listed, names);
    }
}

#[test]
fn device_and_space_are_told() {
    let env = Env::real();
    let path = std::path::Path::new("/");
    let space = env.files().space(path).unwrap();
    assert!(space.total > 0 && space.available <= space.total);
    assert!(env.files().kind(path).is_ok());
    let _ = env.files().device_bytes_written(path);
}
