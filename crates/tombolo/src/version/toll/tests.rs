use super::*;

fn toll(price: u64, saved: u64) -> Toll {
    Toll { price, saved, salt: 0, paid: AtomicU64::new(0), work: Some(Arc::default()) }
}

#[test]
fn what_is_paid_reaches_the_price_once_and_wakes() {
    let toll = toll(1000, 2);
    let mut woken = toll.work.as_ref().unwrap().subscribe();
    toll.pay(999);
    assert!(!toll.is_paid());
    assert!(woken.try_take().is_none());
    toll.pay(1);
    assert!(toll.is_paid());
    assert!(woken.try_take().is_some());
    let mut again = toll.work.as_ref().unwrap().subscribe();
    toll.pay(1000);
    assert!(again.try_take().is_none(), "one merge is asked for once");
}

#[test]
fn only_what_a_merge_would_save_is_paid_for() {
    let toll = toll(1000, 1);
    assert_eq!([1, 2, 3].map(|runs| toll.extra(runs)), [0, 1, 1], "the sorted levels below stay");
    toll.looked_up(0, 1);
    assert_eq!(toll.paid.load(Ordering::Relaxed), 0);
    toll.looked_up(0, 3);
    assert_eq!(toll.paid.load(Ordering::Relaxed), PROBE_NANOS * SAMPLED_ONE_IN);
}

#[test]
fn samples_say_what_counting_everything_would() {
    let (sampled, keys) = (toll(u64::MAX, 2), 100_000);
    for key in 0..keys {
        sampled.looked_up(key_hash(format!("key {key}").as_bytes()), 3);
    }
    let (paid, all) = (sampled.paid.load(Ordering::Relaxed), keys * 2 * PROBE_NANOS);
    assert!(paid.abs_diff(all) < all / 20, "{paid} of {all}");
}

#[test]
fn a_cursor_pays_on_its_way_and_one_that_ends_early_by_chance() {
    let total = toll(u64::MAX, 2);
    let mut walk = Owed::default();
    while !walk.is_due() {
        walk.searched(2);
        walk.stepped();
    }
    walk.settle(&total, b"");
    assert!(total.paid.load(Ordering::Relaxed) >= Owed::PAID_FROM);
    let (total, seeks) = (toll(u64::MAX, 2), 100_000);
    for key in 0..seeks {
        let mut owed = Owed::default();
        owed.searched(2);
        owed.settle(&total, format!("key {key}").as_bytes());
    }
    let (paid, all) = (total.paid.load(Ordering::Relaxed), seeks * 2 * SEARCH_NANOS);
    assert!(paid.abs_diff(all) < all / 20, "{paid} of {all}");
}
