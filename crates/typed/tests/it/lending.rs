//! What a read lends lies in the cache: no copy, no allocation.

use tombolo::Db;
use tombolo_typed::{Key, TypedKeyspace};

use crate::allocator::allocations;

#[derive(Key, Clone, Debug, PartialEq)]
struct Place {
    region: String,
    number: u64,
}

fn place(number: u64) -> Place {
    Place { region: format!("region-{}", number % 7), number }
}

/// Reads each key once to bring its block into memory, and counts the second time.
fn allocations_of_reads<V: tombolo_typed::Value>(
    keys: &TypedKeyspace<Place, V>,
    read: impl Fn(tombolo_typed::View<'_, V>) -> u64,
) -> u64 {
    let all: Vec<_> = (0..1000).map(place).collect();
    let sum =
        || -> u64 { all.iter().map(|place| keys.read(place, &read).unwrap().expect("it was put")).sum() };
    let once = sum();
    let before = allocations();
    assert_eq!(sum(), once);
    allocations() - before
}

#[test]
fn a_read_of_a_text_allocates_nothing() {
    let db = Db::builder("mem://lending-text").open().wait().unwrap();
    let keys = TypedKeyspace::<Place, String>::open(&db, "texts").wait().unwrap();
    for number in 0..1000 {
        keys.put(&place(number), &format!("{number:0100}")).wait().unwrap();
    }
    let read = |text: &str| text.len() as u64;
    assert_eq!(allocations_of_reads(&keys, read), 0, "in a memtable");
    db.flush().wait().unwrap();
    assert_eq!(allocations_of_reads(&keys, read), 0, "in a table");
}

#[cfg(feature = "rkyv")]
mod of_rkyv {
    use super::*;
    use tombolo_typed::Value;

    #[derive(rkyv::Archive, rkyv::Serialize, Value)]
    #[value(rkyv)]
    struct Order {
        customer: u64,
        lines: Vec<String>,
    }

    #[test]
    fn a_read_of_an_archive_with_strings_allocates_nothing() {
        let db = Db::builder("mem://lending-archive").open().wait().unwrap();
        let keys = TypedKeyspace::<Place, Order>::open(&db, "orders").wait().unwrap();
        for number in 0..1000 {
            let lines = vec![format!("a lamp {number}, of brass"), "a chair of oak".to_owned()];
            keys.put(&place(number), &Order { customer: number, lines }).wait().unwrap();
        }
        db.flush().wait().unwrap();
        let read = |order: &rkyv::Archived<Order>| {
            order.customer.to_native() + order.lines.iter().map(|line| line.len() as u64).sum::<u64>()
        };
        assert_eq!(allocations_of_reads(&keys, read), 0);
    }
}

#[cfg(feature = "zerocopy")]
mod of_zerocopy {
    use super::*;
    use tombolo_typed::Value;
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    #[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Value)]
    #[value(zerocopy)]
    #[repr(C)]
    struct Bid {
        bidder: u64,
        price: u64,
        rest: [u8; 32],
    }

    #[test]
    fn a_read_of_a_structure_lies_in_the_block_and_allocates_nothing() {
        let db = Db::builder("mem://lending-bids").open().wait().unwrap();
        let keys = TypedKeyspace::<Place, Bid>::open(&db, "bids").wait().unwrap();
        for number in 0..1000 {
            keys.put(&place(number), &Bid { bidder: number, price: 3, rest: [7; 32] }).wait().unwrap();
        }
        db.flush().wait().unwrap();
        let read = |bid: &Bid| bid.bidder * bid.price;
        assert_eq!(allocations_of_reads(&keys, read), 0);
        // Two reads of a value see the same memory.
        let place = place(500);
        let at = || keys.read(&place, |bid| std::ptr::from_ref(bid).addr()).unwrap().unwrap();
        assert_eq!(at(), at());
        // A cursor lends as well.
        let mut cursor = keys.all();
        let mut count = 0;
        while cursor.next().unwrap() {
            assert_eq!(cursor.value().unwrap().price, 3);
            count += 1;
        }
        assert_eq!(count, 1000);
    }

    #[test]
    fn an_alignment_made_smaller_is_said() {
        let db = Db::builder("mem://lending-aligned").open().wait().unwrap();
        let keys = TypedKeyspace::<Place, Bid>::open(&db, "bids").wait().unwrap();
        keys.keyspace().set_options([("value_alignment", "1")]).wait().unwrap();
        let error = TypedKeyspace::<Place, Bid>::of(keys.keyspace().clone()).unwrap_err();
        assert_eq!(error.kind(), tombolo::ErrorKind::Invalid);
        assert!(error.to_string().contains("value_alignment"), "{error}");
    }
}
