use super::*;

fn committed() -> Committed {
    Committed {
        end: None,
        lane: 0,
        accepted: None,
        delay: Duration::ZERO,
        rotated: false,
        stall_changed: false,
        wants_time: false,
    }
}

#[test]
fn whatever_is_left_is_served_once_by_whoever_is_in_the_section() {
    for are_together in [false, true] {
        serve_from_several_threads(are_together);
    }
}

fn serve_from_several_threads(are_together: bool) {
    let commit_queue = CommitQueue::default();
    let section = Mutex::new(Vec::new());
    let serve = |served: &mut Vec<u64>| {
        commit_queue.serve(are_together, |posted| {
            assert!(are_together || posted.len() == 1);
            for posted in posted {
                assert!(posted.committed.is_none(), "served once");
                served.push(u64::from_le_bytes(posted.bytes[..].try_into().unwrap()));
                posted.committed = Some(Ok(committed()));
            }
        });
    };
    let count = if cfg!(miri) { 10 } else { 20_000 };
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (commit_queue, section, serve) = (&commit_queue, &section, &serve);
            scope.spawn(move || {
                for number in 0..count {
                    let index = loop {
                        match commit_queue.post(|posted| {
                            posted.bytes.extend_from_slice(&(thread << 32 | number).to_le_bytes());
                        }) {
                            Some(index) => break index,
                            None => serve(&mut section.lock()),
                        }
                    };
                    if number % 3 == 0 {
                        serve(&mut section.lock());
                    }
                    while !commit_queue.is_served(index) {
                        serve(&mut section.lock());
                    }
                    commit_queue.take(index).unwrap();
                }
            });
        }
    });
    let served = section.into_inner();
    assert_eq!(served.len() as u64, 4 * count);
    for thread in 0..4 {
        let own: Vec<u64> = served
            .iter()
            .filter(|number| **number >> 32 == thread)
            .map(|number| number & 0xffff_ffff)
            .collect();
        assert_eq!(own, (0..count).collect::<Vec<_>>(), "in the order of the thread's calls");
    }
}

#[test]
fn a_panic_at_one_write_hangs_nobody() {
    for are_together in [false, true] {
        let commit_queue = CommitQueue::default();
        let places: Vec<usize> =
            (0..3u8).map(|number| commit_queue.post(|posted| posted.bytes.push(number)).unwrap()).collect();
        let served = |panics: bool| {
            let mut served = Vec::new();
            let round = std::panic::AssertUnwindSafe(|| {
                commit_queue.serve(are_together, |posted| {
                    for posted in posted {
                        assert!(!panics || posted.bytes[0] != 1, "as if its commit had panicked");
                        served.push(posted.bytes[0]);
                        posted.committed = Some(Ok(committed()));
                    }
                });
            });
            assert_eq!(std::panic::catch_unwind(round).is_err(), panics);
            served
        };
        assert_eq!(served(true), [0]);
        assert!(commit_queue.is_served(places[0]) && commit_queue.is_served(places[1]));
        assert_eq!(commit_queue.is_served(places[2]), are_together);
        let left: &[u8] = if are_together { &[] } else { &[2] };
        assert_eq!(
            served(false),
            left,
            "what the panic kept from being served is served by the next, and nothing twice"
        );
        assert!(commit_queue.take(places[0]).is_ok());
        assert_eq!(commit_queue.take(places[1]).unwrap_err().kind(), ErrorKind::Bug);
        assert_eq!(
            commit_queue.take(places[2]).err().map(|error| error.kind()),
            are_together.then_some(ErrorKind::Bug)
        );
        assert!((0..PLACES).all(|_| commit_queue.post(|_| ()).is_some()), "all places are free again");
    }
}
