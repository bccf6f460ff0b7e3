use super::*;

#[test]
fn whatever_is_left_is_served_once_by_whoever_is_in_the_section() {
    let desk = Desk::default();
    let section = Mutex::new(Vec::new());
    let serve = |served: &mut Vec<u64>| {
        desk.serve(|posted| {
            assert!(posted.committed.is_none(), "served once");
            served.push(u64::from_le_bytes(posted.bytes[..].try_into().unwrap()));
            posted.committed = Some(Ok(Committed { end: None, accepted: None, delay: Duration::ZERO, rotated: false }));
        });
    };
    let count = if cfg!(miri) { 50 } else { 20_000 };
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
