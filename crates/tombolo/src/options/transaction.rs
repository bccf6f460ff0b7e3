//! How a transaction goes about its reads and writes.

use std::time::Duration;

use tombolo_storage::{Error, ErrorKind, Result};

use super::Durability;

/// Most bytes of a transaction's id.
const ID_BYTES_MAX: usize = 1024;

/// What a transaction may not see of others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// All reads see one state. What it writes, and what it reads for update, was written by nobody
    /// else since. Two transactions that read what the other one writes may both commit.
    #[default]
    Snapshot,
    /// As if transactions ran one after the other, in the order of their commits: nothing that it
    /// has read, ranges without keys included, was written by others since. Every read takes memory
    /// until the transaction ends.
    Serializable,
}

/// When others are kept away.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Locking {
    /// Never: the commit of the second of two that meet ends with `Conflict`.
    #[default]
    Optimistic,
    /// Writes and reads for update lock their keys until the transaction ends; others that want
    /// them wait. A lock that comes late moves the transaction forward to the newest state, as long
    /// as nothing that it has read was changed; so its reads take memory until it ends.
    Pessimistic,
}

/// How a transaction goes about its reads and writes.
///
/// ```
/// use tombolo::{Isolation, TransactionOptions};
///
/// let options = TransactionOptions { isolation: Isolation::Serializable, ..Default::default() };
/// assert_eq!(options.lock_wait.as_secs(), 10);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    /// What it may not see of others.
    pub isolation: Isolation,
    /// When others are kept away.
    pub locking: Locking,
    /// What a commit survives.
    pub durability: Durability,
    /// How long a pessimistic transaction waits for a lock. Default: 10 s.
    pub lock_wait: Duration,
    /// Most bytes that it takes in memory, what it has read included where that counts. Default: 64
    /// MiB.
    pub bytes_max: u64,
    /// A name of the caller's, 1 to 1,024 bytes, by which [`crate::Db::transaction_outcome`] says
    /// for a day whether it was committed, also after a crash. It costs a small entry. A commit
    /// under an id that was committed before writes nothing, and ends with `AlreadyExists`.
    pub id: Option<Vec<u8>>,
}

impl Default for TransactionOptions {
    fn default() -> TransactionOptions {
        TransactionOptions {
            isolation: Isolation::Snapshot,
            locking: Locking::Optimistic,
            durability: Durability::Durable,
            lock_wait: Duration::from_secs(10),
            bytes_max: 64 << 20,
            id: None,
        }
    }
}

impl TransactionOptions {
    /// The default of pessimistic transactions.
    pub fn pessimistic() -> TransactionOptions {
        TransactionOptions { locking: Locking::Pessimistic, ..TransactionOptions::default() }
    }

    /// The default of serializable transactions.
    pub fn serializable() -> TransactionOptions {
        TransactionOptions { isolation: Isolation::Serializable, ..TransactionOptions::default() }
    }

    /// Whether what it reads is kept until it ends.
    pub(crate) fn keeps_reads(&self) -> bool {
        self.isolation == Isolation::Serializable || self.locking == Locking::Pessimistic
    }
}

/// # Errors
/// `Invalid` for an id that is empty or too long.
pub(crate) fn check_transaction_id(id: &[u8]) -> Result<()> {
    if (1..=ID_BYTES_MAX).contains(&id.len()) {
        return Ok(());
    }
    let error = Error::new(ErrorKind::Invalid, "the id of a transaction");
    Err(error.expected(format!("1 to {ID_BYTES_MAX} bytes")).found(format!("{} bytes", id.len())))
}
