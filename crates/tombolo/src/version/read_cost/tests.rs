use super::*;

fn read_cost(price: u64, saved: u64) -> ReadCost {
    ReadCost { price, saved, salt: 0, paid: AtomicU64::new(0), work: Some(Arc::default()) }
}

#[test]
fn what_is_paid_reaches_the_price_once_and_wakes() {
    let read_cost = read_cost(1000, 2);
    let mut woken = read_cost.work.as_ref().unwrap().subscribe();
    read_cost.pay(999);
    assert!(!read_cost.is_paid());
    assert!(woken.try_take().is_none());
    read_cost.pay(1);
    assert!(read_cost.is_paid());
    assert!(woken.try_take().is_some());
    let mut again = read_cost.work.as_ref().unwrap().subscribe();
    read_cost.pay(1000);
    assert!(again.try_take().is_none(), "one merge is asked for once");
}

#[test]
fn only_what_a_merge_would_save_is_paid_for() {
    let read_cost = read_cost(1000, 1);
    assert_eq!([1, 2, 3].map(|runs| read_cost.extra(runs)), [0, 1, 1], "the sorted levels below stay");
    read_cost.looked_up(0, 1);
    assert_eq!(read_cost.paid.load(Ordering::Relaxed), 0);
    read_cost.looked_up(0, 3);
    assert_eq!(read_cost.paid.load(Ordering::Relaxed), PROBE_NANOS * SAMPLED_ONE_IN);
}

#[test]
fn samples_say_what_counting_everything_would() {
    let (sampled, keys) = (read_cost(u64::MAX, 2), 100_000);
    for key in 0..keys {
        sampled.looked_up(key_hash(format!("key {key}").as_bytes()), 3);
    }
    let (paid, all) = (sampled.paid.load(Ordering::Relaxed), keys * 2 * PROBE_NANOS);
    assert!(paid.abs_diff(all) < all / 20, "{paid} of {all}");
}

#[test]
fn a_cursor_pays_on_its_way_and_one_that_ends_early_by_chance() {
    let total = read_cost(u64::MAX, 2);
    let mut walk = Owed::default();
    while !walk.is_due() {
        walk.searched(2);
        walk.stepped();
    }
    walk.settle(&total, b"");
    assert!(total.paid.load(Ordering::Relaxed) >= Owed::PAID_FROM);
    let (total, seeks) = (read_cost(u64::MAX, 2), 100_000);
    for key in 0..seeks {
        let mut owed = Owed::default();
        owed.searched(2);
        owed.settle(&total, format!("key {key}").as_bytes());
    }
    let (paid, all) = (total.paid.load(Ordering::Relaxed), seeks * 2 * SEARCH_NANOS);
    assert!(paid.abs_diff(all) < all / 20, "{paid} of {all}");
}
