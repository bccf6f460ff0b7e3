use tombolo_env::simulated::World;
use tombolo_format::key::{EntryKind, SequenceNumber, Trailer};

use super::*;
use crate::memtable::{Memtable, MemtableWriter};
use crate::version::Version;

fn view() -> Arc<View> {
    let (active, mut writer) = Memtable::create(&MemoryBudget::of_any_size(64 << 20), 1 << 20);
    writer.reserve(MemtableWriter::entry_bytes(3, 5), 1).unwrap();
    writer.insert(0, b"key", Trailer::new(SequenceNumber(1), EntryKind::Put), b"value");
    Arc::new(View {
        active,
        waiting: Vec::new(),
        version: Arc::new(Version::default()),
        kept_by: None,
        generation: 0,
    })
}

#[test]
fn the_age_of_a_reader_begins_when_its_view_is_replaced() {
    let world = World::new(1);
    let env = world.process("reader").env();
    let readers = Readers::new(&MemoryBudget::of_any_size(64 << 20));
    let (first, second, third) = (view(), view(), view());
    let start = env.now();
    let after = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(readers.behind(&first, after(1)), Behind::default());
    readers.replaced(&first, after(10));
    let expected =
        Behind { views: 1, oldest_nanos: 5_000_000_000, memtable_bytes: first.active.memory_bytes() };
    assert_eq!(readers.behind(&second, after(15)), expected);
    assert!(expected.memtable_bytes > 0);
    readers.replaced(&second, after(20));
    assert_eq!(readers.behind(&third, after(30)).views, 2);
    drop(first);
    let left = readers.behind(&third, after(30));
    assert_eq!((left.views, left.oldest_nanos), (1, 10_000_000_000));
    drop(second);
    assert_eq!(readers.behind(&third, after(30)), Behind::default());
    // What nobody reads is forgotten, however many views come and go.
    (0..100).for_each(|second| readers.replaced(&view(), after(40 + second)));
    assert_eq!(readers.replaced.lock().len(), 1);
}

#[test]
fn what_cursors_pin_is_charged_and_given_back() {
    let budget = MemoryBudget::of_any_size(64 << 20);
    let readers = Readers::new(&budget);
    let open: Vec<_> = (0..1000).map(|_| readers.pin(3)).collect();
    let used = budget.used(Category::Scans);
    let step = budget.bytes() / STEP_SHARE;
    assert!((3000 * PINNED_BYTES..3000 * PINNED_BYTES + step).contains(&used), "{used}");
    open.into_iter().for_each(|bytes| readers.unpin(bytes));
    assert!(budget.used(Category::Scans) <= step);
}

#[test]
fn what_is_kept_for_cursors_to_come_follows_the_budget() {
    let budget = MemoryBudget::new(64 << 20).unwrap();
    let members: Vec<_> = (0..100).map(|_| budget.join(4096).unwrap()).collect();
    let all: Vec<_> = members.iter().map(|_| Readers::new(&budget)).collect();
    all.iter().for_each(|readers| readers.unpin(readers.pin(8)));
    assert!(budget.used(Category::Scans) <= 100 * 2 * STEP_BYTES_MIN, "{}", budget.used(Category::Scans));
    drop(members);
    all[1..].iter().for_each(Readers::settle);
    assert!(budget.used(Category::Scans) <= 2 * STEP_BYTES_MIN);
}
