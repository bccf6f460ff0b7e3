use std::cell::Cell;

use super::*;

fn subject(name: &str) -> (Db, TomboloSubject) {
    let db = Db::builder(format!("mem://lab-{name}")).open().wait().unwrap();
    let names = BTreeMap::from([(1, "orders".to_owned())]);
    (db.clone(), TomboloSubject::new(db, names, Durability::Accepted, 10))
}

#[test]
fn everything_that_was_asked_is_done() {
    let (db, mut subject) = subject("done");
    let (mut filler, mut replayed) = (Filler::default(), Replayed::new());
    let clock = Cell::new(0);
    let now = || {
        clock.set(clock.get() + 1000);
        Duration::from_nanos(clock.get())
    };
    let event = |asked, key: &'static [u8]| Event::new(0, asked, 1, key);
    let all = [
        Event { value_bytes: 20, ..event(Asked::Put, b"a") },
        Event { value: b"whole", value_bytes: 5, ..event(Asked::Put, b"b") },
        Event { value_bytes: 3, ..event(Asked::Merge, b"c") },
        Event { value_bytes: 3, ..event(Asked::Merge, b"c") },
        Event { value_bytes: 3, ..event(Asked::Put, b"d") },
        Event { found: Found::Yes, ..event(Asked::Get, b"a") },
        Event { found: Found::Yes, ..event(Asked::Get, b"nothing") },
        Event { entries: 3, ..event(Asked::Scan, b"a") },
        Event { end: b"c", ..event(Asked::Scan, b"") },
        Event { end: b"b", ..event(Asked::ScanBack, b"") },
        event(Asked::Delete, b"a"),
        Event { end: b"e", ..event(Asked::RangeDelete, b"d") },
        event(Asked::Block, b"block"),
    ];
    for event in &all {
        perform(&mut subject, event, &mut filler, Timing::Closed, &now, &mut replayed).unwrap();
    }
    let orders = db.keyspace("orders").unwrap();
    let get = |key: &str| orders.get(key).wait().unwrap().map(|value| value.len());
    assert_eq!((get("a"), get("b"), get("c"), get("d")), (None, Some(5), Some(6), None));
    assert_eq!((replayed.events, replayed.passed_over, replayed.found_otherwise), (12, 1, 1));
    assert_eq!((replayed.entries, replayed.of(Asked::Merge).count()), (3 + 2 + 3, 2));
}

#[test]
fn latency_counts_from_the_intended_start() {
    let (_db, mut subject) = subject("late");
    let (mut filler, mut replayed) = (Filler::default(), Replayed::new());
    let now = || Duration::from_millis(50);
    let event = Event::new(60_000_000, Asked::Get, 1, b"a");
    perform(&mut subject, &event, &mut filler, Timing::Open(2.0), &now, &mut replayed).unwrap();
    let latency = replayed.of(Asked::Get).percentile(50.0);
    assert!(latency.abs_diff(Duration::from_millis(20)) < Duration::from_micros(100), "{latency:?}");
    assert_eq!(replayed.late, 1);
}

#[test]
fn a_key_stays_with_its_thread() {
    let threads: Vec<_> = (0..100_u8)
        .map(|number| {
            let key = [number];
            let [put, get] =
                [Asked::Put, Asked::Get].map(|asked| thread_of(&Event::new(0, asked, 1, &key), 4));
            assert_eq!(put, get);
            put
        })
        .collect();
    assert!((0..4).all(|thread| threads.contains(&thread)));
}
