//! Typed keyspaces: a keyspace whose keys and values are of a program's own types.
//!
//! - [`Key`]: types whose encoding has the order of their values, by derive. So an engine that
//!   compares bytes compares keys, and nothing is decoded for it.
//! - [`Value`]: types that are read where they lie. A read lends the value out of the cache:
//!   without a copy, without an allocation.
//! - [`TypedKeyspace`]: get, put, merge, scan, batch and snapshot by these types.
//! - [`TypedCursor`] for joins and windows: groups, look-ups of many sorted keys in one pass;
//!   [`WeightMerge`], [`Changes`] and [`Timers`] over them.
//!
//! A keyspace keeps the types that it was made with, and is refused under others.
//!
//! ```
//! use tombolo::Db;
//! use tombolo_typed::{Key, TypedKeyspace};
//!
//! #[derive(Key, Clone, Debug, PartialEq)]
//! #[key(prefix(OfCustomer(customer)))]
//! struct OrderKey {
//!     customer: u64,
//!     day: u32,
//!     number: u32,
//! }
//!
//! # fn main() -> tombolo::Result<()> {
//! let db = Db::builder("mem://orders").open().wait()?;
//! let orders = TypedKeyspace::<OrderKey, String>::open(&db, "orders").wait()?;
//! orders.put(&OrderKey { customer: 7, day: 20_000, number: 1 }, "a lamp").wait()?;
//! orders.put(&OrderKey { customer: 8, day: 20_000, number: 2 }, "a chair").wait()?;
//!
//! let mut cursor = orders.prefix(&OfCustomer { customer: 7 });
//! while cursor.next()? {
//!     println!("{:?}: {}", cursor.key()?, cursor.value()?);
//! }
//! # Ok(())
//! # }
//! ```

// What the macros make names this crate.
#[cfg(test)]
extern crate self as tombolo_typed;

mod changes;
mod cursor;
mod describe;
mod key;
mod keyspace;
mod op;
mod prefix;
mod sorted;
mod spread;
mod timers;
mod value;
mod weights;

pub use changes::{Change, Changes};
pub use cursor::TypedCursor;
pub use describe::{Describe, Shape};
pub use key::{Key, NullsLast};
pub use keyspace::{TypedKeyspace, TypedSnapshot, Written};
pub use op::TypedOp;
pub use prefix::{PrefixOf, StartsWith};
pub use timers::Timers;
pub use tombolo_derive::{Describe, Key, Value};
pub use tombolo_format::typed_key::{KeyDecoder, KeyEncoder, KeyError};
#[cfg(feature = "rkyv")]
pub use value::Rkyv;
#[cfg(feature = "zerocopy")]
pub use value::Zerocopy;
pub use value::{Check, Form, Lent, Plain, Value, ValueError, View};
pub use weights::WeightMerge;
