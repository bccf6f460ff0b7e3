use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::files::list_atomically;
use crate::{Env, Task, TaskClass, completion};

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
    for class in [TaskClass::Foreground, TaskClass::Flush, TaskClass::Background, TaskClass::Network] {
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

/// What root makes in another user's directory is that user's; what others make is their own.
#[test]
fn what_is_made_in_a_directory_belongs_to_its_owner() {
    use std::os::unix::fs::{MetadataExt, chown};
    let folder = tempfile::tempdir().unwrap();
    let of_another = folder.path().join("of another");
    std::fs::create_dir(&of_another).unwrap();
    let me = std::fs::metadata(&of_another).unwrap().uid();
    if me == 0 {
        chown(&of_another, Some(12345), Some(54321)).unwrap();
    }
    let env = Env::real();
    let (directory, mine) = (of_another.join("a/b"), folder.path().join("mine"));
    env.files().create_directories(&directory).unwrap();
    drop(env.files().create_new(&directory.join("file")).unwrap());
    env.files().create_directories(&mine).unwrap();
    let owner = if me == 0 { (12345, 54321) } else { (me, std::fs::metadata(&mine).unwrap().gid()) };
    for path in [of_another.join("a"), directory.clone(), directory.join("file")] {
        let is = std::fs::metadata(&path).unwrap();
        assert_eq!((is.uid(), is.gid()), owner, "{}", path.display());
    }
    assert_eq!(std::fs::metadata(&mine).unwrap().uid(), me);
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

/// Answers each byte with the next, on every connection, until its end.
fn echo(env: &Env) -> (String, Task) {
    let mut listener = env.block_on(env.network().listen("127.0.0.1:0")).expect("a port");
    let address = listener.local_address().expect("an address");
    let world = env.clone();
    let serving = env.spawn(TaskClass::Network, "echo", async move {
        while let Ok(mut connection) = listener.accept().await {
            let serve = async move {
                let mut buffer = [0; 64];
                while let Ok(count @ 1..) = connection.read(&mut buffer).await {
                    buffer[..count].iter_mut().for_each(|byte| *byte = byte.wrapping_add(1));
                    connection.write_all(&buffer[..count]).await.expect("it reads");
                }
            };
            world.spawn(TaskClass::Network, "echo to one", serve).detach();
        }
    });
    (address, serving)
}

#[test]
fn threads_that_wait_for_sockets_take_turns_at_them() {
    let env = Env::real();
    let (address, _serving) = echo(&env);
    std::thread::scope(|scope| {
        for thread in 0..6_u8 {
            let (env, address) = (env.clone(), address.clone());
            scope.spawn(move || {
                let mut connection = env.block_on(env.network().connect(&address)).expect("it listens");
                for round in 0..400_u16 {
                    let sent = [thread, round.to_le_bytes()[0]];
                    let mut got = [0; 64];
                    let count = env.block_on(async {
                        connection.write_all(&sent).await.expect("it reads");
                        connection.read(&mut got).await.expect("it writes")
                    });
                    assert_eq!(
                        got[..count],
                        sent.map(|byte| byte.wrapping_add(1)),
                        "two bytes come together"
                    );
                    if round % 50 == 0 {
                        // Others wait meanwhile, and the pool's thread takes its place again.
                        env.block_on(env.sleep(Duration::from_millis(u64::from(thread))));
                    }
                }
            });
        }
    });
}

#[test]
fn a_task_of_another_pool_may_wait_for_sockets_alone() {
    let env = Env::real();
    let mut listener = env.block_on(env.network().listen("127.0.0.1:0")).expect("a port");
    let address = listener.local_address().expect("an address");
    let other = Env::real();
    let world = other.clone();
    let connecting = other.spawn(TaskClass::Foreground, "connects", async move {
        let mut connection = world.network().connect(&address).await.expect("it listens");
        assert_eq!(connection.read(&mut [0; 8]).await.expect("an end"), 0);
    });
    // It waits before anything comes.
    std::thread::yield_now();
    let accepted = env.block_on(listener.accept()).expect("somebody connects");
    drop(accepted);
    // Nobody drives the other world's sockets but its own thread.
    while !connecting.is_finished() {
        std::thread::yield_now();
    }
}

#[test]
fn an_end_that_comes_with_the_last_bytes_is_seen() {
    let env = Env::real();
    let mut listener = env.block_on(env.network().listen("127.0.0.1:0")).expect("a port");
    let address = listener.local_address().expect("an address");
    for _ in 0..50 {
        let (mut one, mut other) = env.block_on(async {
            let one = env.network().connect(&address).await.expect("it listens");
            (one, listener.accept().await.expect("somebody connects"))
        });
        env.block_on(async {
            one.write_all(b"last").await.expect("it reads");
            drop(one);
            let mut buffer = [0; 64];
            assert_eq!(other.read(&mut buffer).await.expect("some bytes"), 4);
            assert_eq!(other.read(&mut buffer).await.expect("an end"), 0);
        });
    }
}

#[test]
fn more_than_a_socket_holds_goes_and_a_refused_connection_is_an_error() {
    let env = Env::real();
    let mut listener = env.block_on(env.network().listen("127.0.0.1:0")).expect("a port");
    let address = listener.local_address().expect("an address");
    let bytes: Vec<u8> = (0..16 << 20).map(|at: u32| at.to_le_bytes()[1]).collect();
    let expected = bytes.clone();
    let world = env.clone();
    let reading = env.spawn(TaskClass::Network, "reading", async move {
        let (mut all, mut buffer) = (Vec::new(), vec![0; 100_000]);
        let mut connection = listener.accept().await.expect("somebody connects");
        while let Ok(count @ 1..) = connection.read(&mut buffer).await {
            all.extend_from_slice(&buffer[..count]);
        }
        assert!(all == expected);
        drop((listener, world));
    });
    env.block_on(async {
        let (_read, mut write) = env.network().connect(&address).await.expect("it listens").split();
        let begun = write.try_write(&bytes).expect("it listens");
        write.write_all(&bytes[begun..]).await.expect("it reads");
    });
    assert_eq!(env.block_on(reading), Some(()));
    let refused = env.block_on(env.network().connect(&address)).expect_err("nobody listens any more");
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn a_task_of_the_network_that_panics_ends_alone_on_whichever_thread() {
    let env = Env::real();
    let (address, _serving) = echo(&env);
    let mut connection = env.block_on(env.network().connect(&address)).expect("it listens");
    for round in 0..50_u8 {
        let panics = env.spawn(TaskClass::Network, "panics", async { panic!("on purpose") });
        let mut got = [0];
        env.block_on(async {
            connection.write_all(&[round]).await.expect("it reads");
            connection.read(&mut got).await.expect("it writes");
        });
        assert_eq!((got[0], env.block_on(panics)), (round + 1, None));
    }
}

#[test]
fn a_process_that_has_ended_is_told_from_one_that_lives() {
    let env = Env::real();
    let own = env.process_facts();
    assert_eq!(own.process, std::process::id());
    assert!(!own.host.is_empty() && !own.program.is_empty() && own.namespace != 0 && own.start != 0);
    assert_eq!(env.process_lives(own.process, own.start), Some(true));
    assert_eq!(env.process_lives(own.process, own.start + 1), Some(false), "the number was used again");
    let mut child = std::process::Command::new("cat")
        .stdin(std::process::Stdio::piped())
        .spawn()
        .expect("a command that waits for its input");
    let start = super::facts::stat(child.id()).map(|(_, start)| start).expect("it runs");
    assert_eq!(env.process_lives(child.id(), start), Some(true));
    child.kill().expect("it is ours");
    // Nobody has waited for it yet.
    while env.process_lives(child.id(), start) == Some(true) {
        std::thread::yield_now();
    }
    assert_eq!(env.process_lives(child.id(), start), Some(false));
    child.wait().expect("it is ours");
    assert_eq!(env.process_lives(child.id(), start), Some(false));
}

#[test]
fn a_bell_wakes_whoever_waits_for_it_and_nobody_else() {
    let env = Env::real();
    let own = env.process_facts();
    let (this, other) = (env.rung(1 << 70), env.rung(2));
    env.ring(own.process, own.start, 3).expect("this process listens");
    env.ring(own.process, own.start, 1 << 70).expect("this process listens");
    assert_eq!(env.block_on(this), Some(()));
    assert!(env.block_on(crate::within(&env, Duration::ZERO, other)).is_none(), "it was not rung");
    assert!(env.ring(own.process, own.start + 1, 1).is_err(), "no such process");
    // What was rung before is over.
    let again = env.rung(1 << 70);
    assert!(env.block_on(crate::within(&env, Duration::ZERO, again)).is_none());
}
