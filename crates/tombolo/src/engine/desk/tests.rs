use super::*;

fn committed() -> Committed {
    Committed { end: None, lane: 0, accepted: None, delay: Duration::ZERO, rotated: false, stall_changed: false }
}

#[test]
fn whatever_is_left_is_served_once_by_whoever_is_in_the_section() {
    let desk = Desk::default();
    let section = Mutex::new(Vec::new());
    let serve = |served: &mut Vec<u64>| {
        desk.serve(|posted| {
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
            let (desk, section, serve) = (&desk, &section, &serve);
            scope.spawn(move || {
                for number in 0..count {
                    let index = loop {
                        match desk.post(|posted| posted.bytes.extend_from_slice(&(thread << 32 | number).to_le_bytes())) {
                            Some(index) => break index,
                            None => serve(&mut section.lock()),
                        }
                    };
                    if number % 3 == 0 {
                        serve(&mut section.lock());
                    }
                    while !desk.is_served(index) {
                        serve(&mut section.lock());
                    }
                    desk.take(index).unwrap();
                }
            });
        }
    });
    let served = section.into_inner();
    assert_eq!(served.len() as u64, 4 * count);
    for thread in 0..4 {
        let own: Vec<u64> = served.iter().filter(|number| **number >> 32 == thread).map(|number| number & 0xffff_ffff).collect();
        assert_eq!(own, (0..count).collect::<Vec<_>>(), "in the order of the thread's calls");
    }
}

#[test]
fn a_panic_at_one_write_hangs_nobody() {
    let desk = Desk::default();
    let places: Vec<usize> = (0..3u8).map(|number| desk.post(|posted| posted.bytes.push(number)).unwrap()).collect();
    let round = std::panic::AssertUnwindSafe(|| {
        desk.serve(|posted| {
            for posted in posted {
                assert!(posted.bytes[0] != 1, "as if its commit had panicked");
                posted.committed = Some(Ok(committed()));
            }
        });
    });
    assert!(std::panic::catch_unwind(round).is_err());
    desk.serve(|posted| panic!("{} are served twice", posted.len()));
    assert!(places.iter().all(|place| desk.is_served(*place)));
    assert!(desk.take(places[0]).is_ok(), "what was committed before it");
    for place in &places[1..] {
        assert_eq!(desk.take(*place).unwrap_err().kind(), ErrorKind::Bug);
    }
    assert!((0..PLACES).all(|_| desk.post(|_| ()).is_some()), "all places are free again");
}
