use super::*;

/// A cache that gives back all that it must.
struct Cache {
    budget: Arc<MemoryBudget>,
    bytes: AtomicU64,
}

impl GiveWay for Cache {
    fn give_way(&self) {
        let beyond = self.bytes.load(Ordering::Relaxed).saturating_sub(self.budget.cache_bytes_max());
        self.bytes.fetch_sub(beyond, Ordering::Relaxed);
        self.budget.subtract_cached(beyond);
    }
}

fn with_full_cache(bytes: u64) -> (Arc<MemoryBudget>, Arc<Cache>) {
    let budget = MemoryBudget::new(bytes).unwrap();
    let cache = budget.cache_or(|| Arc::new(Cache { budget: Arc::clone(&budget), bytes: AtomicU64::new(0) }));
    let room = budget.cache_bytes_max();
    budget.add_cached(room);
    cache.bytes.store(room, Ordering::Relaxed);
    (budget, cache)
}

#[test]
fn charges_count_by_category_and_are_given_back() {
    let budget = MemoryBudget::new(1 << 20).unwrap();
    let mut memtable = budget.charge(Category::Memtables, 1000);
    let scan = budget.charge(Category::Scans, 500);
    memtable.grow(24);
    assert_eq!(
        (budget.used(Category::Memtables), budget.used(Category::Scans), budget.used_bytes()),
        (1024, 500, 1524)
    );
    memtable.set(100);
    memtable.set(200);
    assert_eq!((memtable.bytes(), budget.used_bytes()), (200, 700));
    memtable.shrink(1000);
    drop(scan);
    assert_eq!((budget.used_bytes(), budget.peak_bytes()), (0, 1524));
    assert!(Category::ALL.iter().enumerate().all(|(index, category)| *category as usize == index));
}

#[test]
fn the_cache_gives_way_to_all_others() {
    let (budget, cache) = with_full_cache(1 << 20);
    let full = budget.used(Category::Cache);
    let memtable = budget.charge(Category::Memtables, 300_000);
    assert_eq!(cache.bytes.load(Ordering::Relaxed), full - 300_000);
    assert!(budget.used_bytes() <= budget.bytes());
    let scan = budget.try_charge(Category::Scans, 600_000).unwrap();
    assert_eq!(budget.used(Category::Cache), full - 900_000);
    assert!(budget.is_short());
    drop((memtable, scan));
    assert!(!budget.is_short());
    assert_eq!(budget.cache_bytes_max(), full);
}

#[test]
fn who_can_wait_is_told_that_there_is_no_room() {
    let (budget, _cache) = with_full_cache(1 << 20);
    let held = budget.try_charge(Category::Compactions, 700_000).unwrap();
    let refused = budget.try_charge(Category::Scans, 400_000).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Busy);
    assert_eq!(budget.used(Category::Scans), 0);
    assert_eq!(budget.try_charge(Category::Scans, 1 << 20).unwrap_err().kind(), ErrorKind::Invalid);
    // What must go on does.
    let forced = budget.charge(Category::Compactions, 400_000);
    assert!(budget.used_bytes() > budget.bytes());
    drop(forced);
    drop(held);
    assert!(budget.try_charge(Category::Scans, 400_000).is_ok());
}

#[test]
fn members_that_need_more_than_there_is_are_refused() {
    assert_eq!(MemoryBudget::new(BUDGET_BYTES_MIN - 1).unwrap_err().kind(), ErrorKind::Invalid);
    let budget = MemoryBudget::new(1 << 20).unwrap();
    let members: Vec<_> = (0..2).map(|_| budget.join(50_000).unwrap()).collect();
    let refused = budget.join(50_000).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Invalid);
    let text = format!("{refused:?}");
    assert!(
        text.contains(&(3 * (100_000 + WORKING_BYTES)).to_string()) && text.contains("3 databases"),
        "{text}"
    );
    assert_eq!(budget.members(), 2);
    drop(members);
    assert_eq!(budget.members(), 0);
    assert!(budget.join(300_000).is_ok());
}

#[test]
fn a_budget_has_one_cache_while_somebody_holds_it() {
    let (budget, cache) = with_full_cache(1 << 20);
    let again = budget.cache_or(|| -> Arc<Cache> { unreachable!("the cache is still held") });
    assert!(Arc::ptr_eq(&cache, &again));
    drop((cache, again));
    let fresh = budget.cache_or(|| Arc::new(Cache { budget: Arc::clone(&budget), bytes: AtomicU64::new(7) }));
    assert_eq!(fresh.bytes.load(Ordering::Relaxed), 7);
}

#[test]
fn the_cache_gives_way_before_a_charge_counts() {
    let (budget, _cache) = with_full_cache(1 << 20);
    let full = budget.used_bytes();
    let mut held = budget.charge(Category::Memtables, 100_000);
    held.grow(200_000);
    let _more = budget.try_charge(Category::Scans, 300_000).unwrap();
    assert_eq!(budget.peak_bytes(), full, "at no time more was in use");
}

#[test]
fn memtables_are_promised_what_others_cannot_take() {
    let budget = MemoryBudget::new(1 << 20).unwrap();
    let member = budget.join(100_000).unwrap();
    // Three quarters hold 786,432 bytes: five memtables beside the two.
    let rooms: Vec<_> = std::iter::from_fn(|| budget.room(100_000)).collect();
    assert_eq!(rooms.len(), 5);
    assert_eq!(budget.try_charge(Category::Scans, 300_000).unwrap_err().kind(), ErrorKind::Busy);
    // Using the promised memory changes nothing.
    let memtables = budget.charge(Category::Memtables, 600_000);
    assert!(budget.try_charge(Category::Scans, 250_000).is_ok() && budget.room(100_000).is_none());
    drop((rooms, memtables));
    let scan = budget.try_charge(Category::Scans, 700_000).unwrap();
    assert!(budget.room(1).is_none(), "two memtables are still promised");
    member.change(40_000, 1 << 20).unwrap();
    assert!(budget.room(1).is_some());
    drop((scan, member));
    assert_eq!((budget.firm_bytes(), budget.spoken_for_bytes()), (0, 0));
}

fn chunk() -> Region {
    Region::new(SPARE_BYTES).unwrap()
}

#[test]
fn chunks_are_kept_up_to_what_memtables_are_promised() {
    let bytes = SPARE_BYTES as u64;
    let budget = MemoryBudget::new(32 * bytes).unwrap();
    budget.keep_spare(chunk());
    assert_eq!(budget.used(Category::Spare), 0, "nobody is promised anything");
    let member = budget.join(2 * bytes).unwrap();
    let memtables = budget.charge(Category::Memtables, bytes);
    for _ in 0..8 {
        budget.keep_spare(chunk());
    }
    assert_eq!((budget.used(Category::Spare), budget.firm_bytes()), (3 * bytes, bytes));
    let (taken, charge) = budget.take_spare().unwrap();
    assert_eq!(
        (taken.length(), budget.used(Category::Spare)),
        (SPARE_BYTES, 3 * bytes),
        "counted until it is charged otherwise"
    );
    drop(charge);
    assert_eq!(budget.used(Category::Spare), 2 * bytes);
    budget.keep_spare(Region::new(SPARE_BYTES / 2).unwrap());
    assert_eq!(budget.used(Category::Spare), 2 * bytes, "smaller ones are not kept");
    member.change(bytes, 32 * bytes).unwrap();
    assert_eq!(budget.used(Category::Spare), bytes, "less is promised now");
    drop((member, memtables));
    assert_eq!((budget.used(Category::Spare), budget.used_bytes()), (0, 0));
    assert!(budget.take_spare().is_none());
}

#[test]
fn kept_chunks_give_way_before_the_cache_does() {
    let bytes = SPARE_BYTES as u64;
    let budget = MemoryBudget::new(16 * bytes).unwrap();
    let _member = budget.join(4 * bytes).unwrap();
    for _ in 0..4 {
        budget.keep_spare(chunk());
    }
    let cache = budget.cache_or(|| Arc::new(Cache { budget: Arc::clone(&budget), bytes: AtomicU64::new(0) }));
    let cached = budget.cache_bytes_max() - 4 * bytes;
    budget.add_cached(cached);
    cache.bytes.store(cached, Ordering::Relaxed);
    let scan = budget.charge(Category::Scans, 3 * bytes);
    assert_eq!((budget.used(Category::Spare), cache.bytes.load(Ordering::Relaxed)), (bytes, cached));
    budget.keep_spare(chunk());
    assert_eq!(budget.used(Category::Spare), bytes, "the cache has all the room");
    let more = budget.charge(Category::Scans, 2 * bytes);
    assert_eq!((budget.used(Category::Spare), cache.bytes.load(Ordering::Relaxed)), (0, cached - bytes));
    assert!(budget.used_bytes() <= budget.bytes());
    drop((scan, more));
}

/// A cache whose entries are all held.
struct Held;

impl GiveWay for Held {
    fn give_way(&self) {}
}

#[test]
fn who_can_do_with_less_gets_nothing_that_a_held_cache_does_not_give_up() {
    let budget = MemoryBudget::new(16 << 20).unwrap();
    let _cache = budget.cache_or(|| Arc::new(Held));
    let room = budget.cache_bytes_max();
    budget.add_cached(room);
    let error = budget.try_charge(Category::Scans, 2 << 20).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!((budget.used(Category::Scans), budget.firm_bytes()), (0, 0));
    assert!(budget.try_charge(Category::Scans, 512 << 10).is_ok(), "the sixteenth that is kept back");
    budget.subtract_cached(room);
    assert!(budget.try_charge(Category::Scans, 2 << 20).is_ok());
}
