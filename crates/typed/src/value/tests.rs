use tombolo_format::aligned;

use super::*;

fn written<V: Value>(value: &V) -> Vec<u8> {
    V::Form::write(value, <[u8]>::to_vec).unwrap()
}

fn lent<V: Value>(bytes: &[u8]) -> Result<Lent<V>, ValueError> {
    Lent::new(aligned::copy(bytes, 16).into(), Check::each_read())
}

#[test]
fn plain_values_are_read_back() {
    assert_eq!(written(&0x1234_u32), [0x34, 0x12, 0, 0]);
    assert_eq!(lent::<i64>(&written(&-7_i64)).unwrap().view(), -7);
    assert_eq!(lent::<String>(&written(&"é".to_owned())).unwrap().view(), "é");
    assert_eq!(lent::<Vec<u8>>(b"abc").unwrap().view(), b"abc");
    lent::<()>(b"").unwrap().view();
}

#[test]
fn what_is_no_value_is_refused() {
    assert!(lent::<u64>(&[0; 7]).is_err());
    assert!(lent::<String>(&[0xC3]).is_err());
    assert!(lent::<()>(&[0]).is_err());
}

/// Text of capitals, of which a view that trusts looks at nothing.
struct Capitals;

impl Describe for Capitals {
    fn describe(shape: &mut crate::Shape) {
        shape.text("capitals");
    }
}

struct Trusting;

impl Form<Capitals> for Trusting {
    type View<'a> = &'a [u8];

    const ALIGNMENT: usize = 1;

    fn write<R>(_: &Capitals, take: impl FnOnce(&[u8]) -> R) -> Result<R, ValueError> {
        Ok(take(b"CAPITALS"))
    }

    fn view(bytes: &[u8]) -> Result<&[u8], ValueError> {
        let is_sound = !bytes.is_empty() && bytes.iter().all(u8::is_ascii_uppercase);
        if is_sound { Ok(bytes) } else { Err(ValueError::new("no capitals")) }
    }

    unsafe fn view_again(bytes: &[u8]) -> Result<&[u8], ValueError> {
        Ok(bytes)
    }
}

impl Value for Capitals {
    type Form = Trusting;
}

#[test]
fn a_cursor_trusts_nothing_but_entries_of_its_keyspace() {
    let db = tombolo::Db::builder("mem://trusting").open().wait().unwrap();
    let capitals = crate::TypedKeyspace::<u64, Capitals>::open(&db, "capitals").wait().unwrap();
    let others = crate::TypedKeyspace::<u64, String>::open(&db, "others").wait().unwrap();
    capitals.put(&1, &Capitals).wait().unwrap();
    others.put(&1, "others").wait().unwrap();
    // SAFETY: all that is written to the keyspace are such values.
    let capitals = capitals.checking(unsafe { Check::once_a_block() });
    let mut cursor = capitals.all();
    assert_eq!(cursor.value().unwrap_err().kind(), tombolo::ErrorKind::Invalid, "before all entries");
    assert!(cursor.next().unwrap());
    assert_eq!(cursor.value().unwrap(), b"CAPITALS");
    assert!(!cursor.next().unwrap());
    assert_eq!(cursor.value().unwrap_err().kind(), tombolo::ErrorKind::Invalid, "after all entries");
    *cursor.cursor() = others.keyspace().cursor::<&[u8]>(..);
    assert!(cursor.next().unwrap());
    assert_eq!(cursor.value().unwrap_err().kind(), tombolo::ErrorKind::Corrupt, "of another keyspace");
}

#[cfg(feature = "zerocopy")]
mod of_zerocopy {
    use ::zerocopy::{Immutable, IntoBytes, KnownLayout, TryFromBytes};

    use super::*;

    #[derive(TryFromBytes, IntoBytes, Immutable, KnownLayout, Debug, PartialEq)]
    #[repr(C)]
    struct Bid {
        bidder: u64,
        price: u64,
        is_last: bool,
        rest: [u8; 7],
    }

    impl Describe for Bid {
        fn describe(shape: &mut crate::Shape) {
            shape.text("bid");
        }
    }

    impl Value for Bid {
        type Form = Zerocopy;
    }

    #[test]
    fn a_structure_is_its_bytes() {
        let bid = Bid { bidder: 1, price: 2, is_last: true, rest: [0; 7] };
        let mut bytes = written(&bid);
        let found = lent::<Bid>(&bytes).unwrap();
        assert_eq!(found.view(), &bid);
        assert_eq!(found.view().price, 2);
        assert!(lent::<Bid>(&bytes[1..]).is_err());
        bytes[16] = 2;
        assert!(lent::<Bid>(&bytes).is_err(), "no truth");
    }

    #[test]
    fn a_misaligned_value_is_refused() {
        let bytes = written(&Bid { bidder: 1, price: 2, is_last: true, rest: [0; 7] });
        let mut shifted = vec![0];
        shifted.extend_from_slice(&bytes);
        let shifted = aligned::copy(&shifted, 16);
        let error = Check::<Bid>::each_read().view(&shifted[1..]).unwrap_err();
        assert!(error.is_misaligned, "{error}");
        // SAFETY: the bytes are a value; that they lie wrongly is looked at all the same.
        let check = unsafe { Check::<Bid>::once_a_block() };
        assert!(check.view(&shifted[1..]).unwrap_err().is_misaligned);
    }
}

#[cfg(feature = "rkyv")]
mod of_rkyv {
    use super::*;

    #[derive(::rkyv::Archive, ::rkyv::Serialize)]
    struct Order {
        customer: u64,
        lines: Vec<(String, u128)>,
    }

    impl Describe for Order {
        fn describe(shape: &mut crate::Shape) {
            shape.text("order");
        }
    }

    impl Value for Order {
        type Form = Rkyv;
    }

    #[test]
    fn an_archive_is_read_where_it_lies() {
        let order = Order { customer: 7, lines: vec![("a lamp of brass".to_owned(), 3)] };
        let bytes = written(&order);
        let found = lent::<Order>(&bytes).unwrap();
        assert_eq!(found.view().customer, 7);
        assert_eq!(found.view().lines[0].0.as_str(), "a lamp of brass");
        let within = found.bytes().as_ptr_range();
        let text = std::ptr::from_ref(found.view().lines[0].0.as_bytes()).cast::<u8>();
        assert!(within.contains(&text), "the text lies in the value");
        // SAFETY: it was written as a value of the type just now.
        let check = unsafe { Check::<Order>::once_a_block() };
        let again = aligned::copy(&bytes, 16);
        assert_eq!(check.view(&again).unwrap().lines[0].1, 3);
    }

    #[test]
    fn damaged_archives_are_refused() {
        let order = Order { customer: 7, lines: vec![("a lamp of brass".to_owned(), 3); 3] };
        let bytes = written(&order);
        assert!(lent::<Order>(&bytes[..bytes.len() - 1]).is_err());
        assert!(lent::<Order>(b"").is_err());
        // A list that reaches beyond the value.
        let mut damaged = bytes.clone();
        let length = damaged.len() - 8;
        damaged[length..].fill(0x7F);
        assert!(lent::<Order>(&damaged).is_err());
    }
}
