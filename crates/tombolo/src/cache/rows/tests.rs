use super::*;

fn name(number: u64) -> TableName {
    TableName { epoch: 3, random: number.wrapping_mul(0x9e37_79b9_7f4a_7c15) }
}

fn hash(user_key: &[u8]) -> u64 {
    tombolo_format::checksum::key_hash(user_key)
}

fn key(table: u64, user_key: &[u8]) -> RowKey<'_> {
    RowKey { table: name(table), user_key, hash: hash(user_key) }
}

fn trailer(sequence: u64) -> Trailer {
    Trailer::new(SequenceNumber(sequence), tombolo_format::key::EntryKind::Put)
}

const ALL: SequenceNumber = SequenceNumber::MAX;
const NO_BLOCKS: Blocks = Blocks { hits: 0, bytes: 1 << 20 };

/// Rows of a budget whose cache is full of other things, as far as the budget knows.
struct Fixture {
    budget: Arc<MemoryBudget>,
    rows: Rows,
    blocks_bytes: u64,
}

impl Fixture {
    fn new(bytes: u64) -> Fixture {
        let budget = MemoryBudget::of_any_size(bytes);
        let blocks_bytes = budget.cache_bytes_max() / 10 * 9;
        budget.add_cached(blocks_bytes);
        Fixture { rows: Rows::new(&budget), budget, blocks_bytes }
    }

    fn insert(&self, number: u64, value: &[u8]) {
        let user_key = number.to_be_bytes();
        self.rows.insert(&key(1, &user_key), trailer(number + 1), value, || NO_BLOCKS);
    }

    fn get(&self, number: u64) -> Option<Bytes> {
        self.rows.get(&key(1, &number.to_be_bytes()), ALL).map(|(found, value)| {
            assert_eq!(found, trailer(number + 1));
            value
        })
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.budget.subtract_cached(self.blocks_bytes);
    }
}

#[test]
fn a_row_is_found_by_table_key_and_snapshot_and_by_nothing_else() {
    let fixture = Fixture::new(16 << 20);
    fixture.rows.insert(&key(1, b"a"), trailer(7), b"one", || NO_BLOCKS);
    let get = |table, user_key: &[u8], snapshot| {
        fixture.rows.get(&key(table, user_key), SequenceNumber(snapshot)).map(|(_, value)| value)
    };
    assert_eq!(get(1, b"a", 7), Some(Bytes::from_static(b"one")));
    assert_eq!((get(1, b"a", 6), get(2, b"a", 7), get(1, b"b", 7)), (None, None, None));
    // Keys that share a hash are told apart.
    let other = RowKey { table: name(1), user_key: b"other", hash: hash(b"a") };
    assert_eq!(fixture.rows.get(&other, ALL), None);
    fixture.rows.insert(&other, trailer(9), b"two", || NO_BLOCKS);
    assert_eq!(fixture.rows.get(&other, ALL), Some((trailer(9), Bytes::from_static(b"two"))));
    assert_eq!(get(1, b"a", 7), None, "its place was taken");
    assert_eq!((fixture.rows.count(), fixture.rows.hits()), (1, 2));
    // Nor are tables mixed up whose keys come to the same.
    let (table, random) = (name(2), |number| name(number).random.rotate_left(23));
    let forged = RowKey { table, user_key: b"other", hash: hash(b"a") ^ random(1) ^ random(2) };
    assert_eq!((forged.mixed() == other.mixed(), fixture.rows.get(&forged, ALL)), (true, None));
    // Empty keys and values are rows, too.
    fixture.rows.insert(&key(1, b""), trailer(1), b"", || NO_BLOCKS);
    assert_eq!(get(1, b"", 1), Some(Bytes::new()));
}

#[test]
fn what_they_take_is_charged_and_bounded_and_given_back() {
    let fixture = Fixture::new(16 << 20);
    for number in 0..100_000u64 {
        fixture.insert(number, &[7; 300]);
        // An index doubles at once.
        assert!(
            fixture.rows.bytes() <= fixture.rows.bytes_max() / 8 * 9,
            "{} of {}",
            fixture.rows.bytes(),
            fixture.rows.bytes_max()
        );
    }
    assert_eq!(fixture.budget.used(Category::Cache), fixture.blocks_bytes + fixture.rows.bytes());
    let held: usize = fixture.rows.shards.iter().map(|shard| shard.lock().rows).sum();
    assert_eq!(held, fixture.rows.count());
    let found = (0..100_000).filter(|number| fixture.get(*number).is_some()).count();
    assert!(
        found == held && found as u64 * 300 > fixture.rows.bytes() / 2,
        "{found} of {held} in {} bytes",
        fixture.rows.bytes()
    );
    let _everything = fixture.budget.charge(Category::Memtables, fixture.budget.cache_bytes_max());
    while fixture.rows.give_way() {}
    assert_eq!((fixture.rows.bytes(), fixture.rows.count()), (0, 0));
    assert_eq!(fixture.budget.used(Category::Cache), fixture.blocks_bytes);
    assert_eq!(fixture.get(99_999), None);
}

#[test]
fn what_is_used_stays_and_what_comes_back_is_known() {
    let fixture = Fixture::new(16 << 20);
    let hot = 0..200u64;
    for round in 0..400u64 {
        // Each hot one is read now and then, among many that are read once.
        for number in hot.clone() {
            if fixture.get(number).is_none() {
                fixture.insert(number, &[1; 300]);
            }
        }
        for number in 0..500 {
            fixture.insert(1000 + round * 500 + number, &[2; 300]);
        }
    }
    let stayed = hot.filter(|number| fixture.get(*number).is_some()).count();
    assert!(stayed > 190, "{stayed} of 200");
}

#[test]
fn who_comes_back_goes_to_the_main_queue() {
    let fixture = Fixture::new(16 << 20);
    // Found again, they are in main.
    for number in 0..30_000 {
        fixture.insert(number, &[1; 300]);
        let _ = fixture.get(number);
    }
    let cold =
        |from: u64, count: u64| (from..from + count).for_each(|number| fixture.insert(number, &[2; 300]));
    cold(100_000, 12_000);
    let gone: Vec<u64> = (100_000..112_000).filter(|number| fixture.get(*number).is_none()).collect();
    assert!(gone.len() > 500, "{}", gone.len());
    let back = &gone[gone.len() - 50..];
    back.iter().for_each(|number| fixture.insert(*number, &[3; 300]));
    // More than young holds.
    cold(200_000, 8000);
    let stayed = back.iter().filter(|number| fixture.get(**number).is_some()).count();
    assert!(stayed > 40, "{stayed} of 50");
}

#[test]
fn nothing_is_taken_in_while_there_is_room_for_blocks_or_that_is_long() {
    let budget = MemoryBudget::of_any_size(16 << 20);
    let rows = Rows::new(&budget);
    rows.insert(&key(1, b"a"), trailer(7), b"one", || NO_BLOCKS);
    assert_eq!((rows.count(), rows.bytes()), (0, 0));
    let fixture = Fixture::new(16 << 20);
    fixture.insert(1, &[0; ROW_BYTES_MAX]);
    assert_eq!(fixture.rows.count(), 0);
    // Too little memory for rows: it is for blocks.
    let small = Fixture::new(64 << 10);
    (0..1000).for_each(|number| small.insert(number, &[0; 100]));
    assert_eq!(small.rows.count(), 0);
}

#[test]
fn the_share_goes_to_what_is_found_more_often_for_its_bytes() {
    for (blocks_per_read, expected) in [(0u64, SHARE_MAX), (1000, SHARE_MIN)] {
        let fixture = Fixture::new(16 << 20);
        let mut block_hits = 0;
        for number in 0..200_000u64 {
            block_hits += blocks_per_read;
            let blocks = Blocks { hits: block_hits, bytes: 8 << 20 };
            // Every third read is of a row that is there.
            let _found = fixture.get(number.saturating_sub(1) / 3 * 3);
            let user_key = number.to_be_bytes();
            fixture.rows.insert(&key(1, &user_key), trailer(number + 1), &[3; 300], || blocks);
        }
        assert_eq!(fixture.rows.share.load(Ordering::Relaxed), expected, "{blocks_per_read}");
    }
}
