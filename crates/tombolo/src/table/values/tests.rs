use tombolo_env::simulated::World;
use tombolo_format::value_object::RECORD_OVERHEAD_BYTES;
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::trace::{TraceObjectStore, Tracer};

use super::*;

const NAME: TableName = TableName { epoch: 1, random: 0xab };
const IDENTITY: u64 = 0x1dea;

struct Fixture {
    world: World,
    tracer: Tracer,
    store: Arc<dyn ObjectStore>,
}

fn name() -> ObjectName {
    ObjectName::new("0000000000000001/table/0000000000000001-00000000000000ab").unwrap()
}

fn request() -> Request {
    Request::new(Purpose::Flush, Epoch(1))
}

fn value(number: u8) -> Vec<u8> {
    vec![number; 1000 + usize::from(number)]
}

/// References by key.
type Written = (TableDescription, Vec<(Reference, [u8; 1])>);

impl Fixture {
    fn new() -> Fixture {
        let world = World::new(7);
        let env = world.process("test").env();
        let tracer = Tracer::new(&env);
        let inner: Arc<dyn ObjectStore> = Arc::new(MemoryObjectStore::unnamed(&env));
        let store = Arc::new(TraceObjectStore::new(inner, tracer.clone()));
        Fixture { world, tracer, store }
    }

    fn run<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        self.world.run_until(future)
    }

    /// Writes values of these numbers, each under its number.
    fn write(&self, numbers: &[u8]) -> Written {
        let new = NewValueObject {
            name: NAME,
            object: name(),
            identity: IDENTITY,
            keyspace: 3,
            compression: Compression::None,
            oldest_unix_seconds: 5,
        };
        self.run(async {
            let mut writer = ValueWriter::new(new, 1 << 6);
            let mut references = Vec::new();
            for number in numbers {
                let sequence = SequenceNumber(u64::from(*number) + 1);
                references.push((writer.add(&[*number], sequence, &value(*number)).unwrap(), [*number]));
                writer.flush(&*self.store, request()).await.unwrap();
            }
            (writer.finish(&*self.store, request()).await.unwrap(), references)
        })
    }

    fn open(&self, description: &TableDescription) -> Arc<ValueObject> {
        let (store, cache) = (Arc::clone(&self.store), BlockCache::new(1 << 20));
        Arc::new(ValueObject::new(description.clone(), name(), store, cache, None, Epoch(1)))
    }

    fn reads(&self) -> u64 {
        let of = |kind| self.tracer.of_kind(kind).requests;
        let reads = of(RequestKind::Read) + of(RequestKind::ReadRanges);
        self.tracer.reset();
        reads
    }
}

#[test]
fn values_are_fetched_once_and_then_in_memory() {
    let fixture = Fixture::new();
    let (description, references) = fixture.write(&[1, 2, 3]);
    assert_eq!((description.entries, description.level), (3, LEVEL_VALUES));
    assert_eq!((&description.first_key[..], &description.last_key[..]), (&[1][..], &[3][..]));
    let object = fixture.open(&description);
    fixture.reads();
    for (reference, key) in &references {
        assert_eq!(object.try_get(Purpose::Get, reference, key, 1).unwrap(), None);
        let read = fixture.run(object.get(Purpose::Get, reference, key, 16)).unwrap();
        assert_eq!(read, value(key[0]));
        assert_eq!(fixture.reads(), 1);
        assert_eq!(object.try_get(Purpose::Get, reference, key, 1).unwrap(), Some(read));
    }
    fixture.run(object.verify()).unwrap();
}

/// Near records come with one request, whatever the order in which they are asked for; those in
/// memory are not asked for again.
#[test]
fn several_values_share_requests() {
    let fixture = Fixture::new();
    let (description, references) = fixture.write(&[1, 2, 3, 4, 5]);
    let object = fixture.open(&description);
    fixture.run(object.get(Purpose::Get, &references[2].0, &[3], 1)).unwrap();
    fixture.reads();
    let wanted: Vec<_> = references.iter().rev().map(|(reference, key)| (*reference, &key[..])).collect();
    let read = fixture.run(object.get_several(Purpose::Get, &wanted, 1)).unwrap();
    assert_eq!(read, [5, 4, 3, 2, 1].map(value));
    assert_eq!(fixture.reads(), 1);
    let far = |offset: u64| Reference { offset, ..references[0].0 };
    let (ranges, places) = together(&[far(40), far(2000), far(90_000), far(5_000_000)]);
    let end = |offset: u64| offset + u64::from(references[0].0.record_bytes);
    assert_eq!(ranges, [40..end(2000), 90_000..end(90_000), 5_000_000..end(5_000_000)]);
    assert_eq!(places, [0, 0, 1, 2]);
}

/// What the store has in the place of an object is not taken for it: not another write of the same
/// keys, not a shorter one, and not nothing.
#[test]
fn an_object_in_the_place_of_another_is_found() {
    let fixture = Fixture::new();
    let (description, references) = fixture.write(&[1, 2]);
    let (stale, key) = (references[0].0, [1]);
    let object = fixture.open(&description);
    fixture.run(fixture.store.delete(request(), &name())).unwrap();
    let missing = fixture.run(object.get(Purpose::Get, &stale, &key, 1)).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Corrupt);
    // The same identity, place and length, and a right checksum: only the reference tells.
    let mut builder = ValueObjectBuilder::new(3, IDENTITY, Compression::None);
    builder.add(&[1], &vec![9; 1001]).unwrap();
    builder.add(&[2], &vec![9; 1002]).unwrap();
    let bytes = builder.finish().0;
    let placement = Placement::new(ObjectKind::Table, Life::Short);
    fixture.run(fixture.store.put_if_absent(request(), &name(), placement, bytes)).unwrap();
    let error = fixture.run(object.get(Purpose::Get, &stale, &key, 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    assert_eq!(error.object_name(), Some(name().as_str()));
    let wanted: Vec<_> = references.iter().map(|(reference, key)| (*reference, &key[..])).collect();
    assert!(fixture.run(object.get_several(Purpose::Get, &wanted, 1)).is_err());
    // Beyond the object, of another object.
    for wrong in [Reference { offset: 1 << 40, ..stale }, Reference { object: 7, ..stale }] {
        let error = fixture.run(object.get(Purpose::Get, &wrong, &key, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
    }
}

#[cfg(feature = "mutants")]
#[test]
fn a_reference_that_is_not_checked_is_noticed() {
    let _out = tombolo_storage::mutant::enable(Mutant::ValueReferenceUnchecked);
    assert!(std::panic::catch_unwind(an_object_in_the_place_of_another_is_found).is_err());
}

#[test]
fn verification_finds_what_is_damaged() {
    let fixture = Fixture::new();
    let (description, references) = fixture.write(&[1, 2, 3]);
    let bytes = fixture.run(fixture.store.read(request(), &name(), 0..u64::MAX)).unwrap();
    let second = usize::try_from(references[1].0.offset).unwrap() + RECORD_OVERHEAD_BYTES + 7;
    for (at, length) in [(second, bytes.len()), (3, bytes.len()), (0, bytes.len() - 1)] {
        let mut changed = bytes[..length].to_vec();
        changed[at] ^= u8::from(at > 0);
        fixture.run(fixture.store.delete(request(), &name())).unwrap();
        let placement = Placement::new(ObjectKind::Table, Life::Short);
        fixture.run(fixture.store.put_if_absent(request(), &name(), placement, changed.into())).unwrap();
        let error = fixture.run(fixture.open(&description).verify()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "byte {at} of {length}: {error}");
    }
}
