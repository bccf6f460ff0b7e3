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

/// Says what it was given.
struct Given(Vec<(Asked, usize)>);

impl Subject for Given {
    fn perform(&mut self, event: &Event<'_>, value: &[u8]) -> Result<(Found, u32), String> {
        self.0.push((event.asked, value.len()));
        Ok((Found::Unknown, 0))
    }
}

#[test]
fn values_are_made_for_writes_alone() {
    let (mut given, mut filler, mut replayed) = (Given(Vec::new()), Filler::default(), Replayed::new());
    for asked in [Asked::Get, Asked::Put, Asked::Scan, Asked::Merge] {
        let event = Event { value_bytes: 1 << 20, ..Event::new(0, asked, 1, b"a") };
        let now = || Duration::ZERO;
        perform(&mut given, &event, &mut filler, Timing::Closed, &now, &mut replayed).unwrap();
    }
    assert_eq!(given.0, [(Asked::Get, 0), (Asked::Put, 1 << 20), (Asked::Scan, 0), (Asked::Merge, 1 << 20)]);
}

#[test]
fn any_time_of_a_trace_has_a_beginning() {
    for speed in [f64::MIN_POSITIVE, 1e-9, 1.0, f64::INFINITY] {
        for time_ns in [0, 1, u64::MAX] {
            assert!(Timing::Open(speed).begin(time_ns).is_some());
        }
    }
    assert_eq!(Timing::Open(2.0).begin(60_000_000), Some(Duration::from_millis(30)));
}
