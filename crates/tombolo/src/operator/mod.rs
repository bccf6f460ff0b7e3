//! Merge operators: what a program may do to a value without reading it.
//!
//! A keyspace names its operator in its settings, with a version: the meaning of its operands is
//! part of its data. A database is opened with operators by name and version
//! ([`crate::Builder::operator`]); those of [`shipped`] are always there.
//!
//! Invariants:
//! 1. An operator that panics fails like one that returns an error, and harms nothing else.
//! 2. Operators are called with operands oldest first. One that is associative may be called with
//!    any operands that follow each other; a full one with what a read would give to it.

mod shipped;

use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

use tombolo_format::key::VALUE_BYTES_MAX;
use tombolo_storage::{Error, ErrorKind, Result};

pub use shipped::{encode_set, set_elements};

/// Why an operator cannot do what it is asked.
pub type OperatorError = Box<dyn std::error::Error + Send + Sync>;

/// A merge operator that is one function of two: it joins a value with an operand, and an operand
/// with the next, and it does not matter which two of several it joins first. Such operands are
/// joined wherever they meet, so that chains of them stay short.
///
/// A pure function: the same input gives the same output, on every machine and for ever.
///
/// ```
/// use tombolo::{AssociativeOperator, OperatorError};
///
/// /// Keeps the longest.
/// struct Longest;
///
/// impl AssociativeOperator for Longest {
///     fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Result<(), OperatorError> {
///         if newer.len() > older.len() {
///             older.clear();
///             older.extend_from_slice(newer);
///         }
///         Ok(())
///     }
/// }
/// ```
pub trait AssociativeOperator: Send + Sync + 'static {
    /// Makes of `older`, a value or an operand, what it and the next operand come to.
    ///
    /// # Errors
    /// Of operands or values that it cannot read. What `older` is then does not matter.
    fn join(&self, key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> std::result::Result<(), OperatorError>;

    /// Whether a key with this value has none: it is then absent, and takes no space.
    fn is_nothing(&self, value: &[u8]) -> bool {
        let _ = value;
        false
    }

    /// Whether it can read an operand: asked when one is written.
    ///
    /// # Errors
    /// Why it cannot: the write is refused.
    fn check(&self, operand: &[u8]) -> std::result::Result<(), OperatorError> {
        let _ = operand;
        Ok(())
    }
}

/// A merge operator that sees the value and all operands at once.
///
/// A pure function: the same input gives the same output, on every machine and for ever. What it
/// makes of a value and some operands may be the value under the operands after them.
pub trait FullOperator: Send + Sync + 'static {
    /// What a key has with `base` below `operands`, which come oldest first. Put it into `value`,
    /// which is empty, and answer `true`; `false` says that the key has no value.
    ///
    /// # Errors
    /// Of operands or values that it cannot read.
    fn fold(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        value: &mut Vec<u8>,
    ) -> std::result::Result<bool, OperatorError>;

    /// As [`AssociativeOperator::check`].
    ///
    /// # Errors
    /// As [`AssociativeOperator::check`].
    fn check(&self, operand: &[u8]) -> std::result::Result<(), OperatorError> {
        let _ = operand;
        Ok(())
    }
}

/// A merge operator of either kind, for [`crate::Builder::operator`].
///
/// These are always there, of version 1:
///
/// | name | operands and values | comes to |
/// |---|---|---|
/// | `add_u64` | u64, little-endian | their sum, modulo 2^64; reads and writes what RocksDB's `uint64add` does |
/// | `add_i64` | i64, little-endian | their sum, modulo 2^64 |
/// | `add_f64` | f64, little-endian | their sum, added oldest first |
/// | `max`, `min` | bytes | the greatest or least, compared as keys are |
/// | `append`, `append_comma`, `append_line` | bytes | all in their order, with nothing, a comma or a line's end between |
/// | `bit_or` | bytes | the bits of all; a shorter one counts as ending in zeros |
/// | `set_union` | sets: see [`encode_set`] | the elements of all |
/// | `weights` | i64, little-endian | their sum, modulo 2^64; a key whose sum is zero is absent |
#[derive(Clone)]
pub enum Operator {
    /// One function of two.
    Associative(Arc<dyn AssociativeOperator>),
    /// A fold over value and operands.
    Full(Arc<dyn FullOperator>),
}

impl fmt::Debug for Operator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Operator::Associative(_) => "Associative",
            Operator::Full(_) => "Full",
        })
    }
}

impl Operator {
    /// An associative one.
    pub fn associative(operator: impl AssociativeOperator) -> Operator {
        Operator::Associative(Arc::new(operator))
    }

    /// A full one.
    pub fn full(operator: impl FullOperator) -> Operator {
        Operator::Full(Arc::new(operator))
    }

    /// Puts all operands behind each other, in their order, with `separator` between each two.
    pub fn append(separator: &[u8]) -> Operator {
        Operator::associative(shipped::Append::new(separator))
    }
}

/// The name and version of an operator, as settings have them: `add_u64@1`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OperatorName {
    /// Letters, digits, `_`, `-`, `.`; 1 to 64.
    pub name: String,
    /// Changes when the same operands come to another value.
    pub version: u32,
}

impl fmt::Display for OperatorName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}@{}", self.name, self.version)
    }
}

impl OperatorName {
    /// A name with its version.
    ///
    /// # Errors
    /// `Invalid` for a name of other characters, or too long a one.
    pub fn new(name: impl Into<String>, version: u32) -> Result<OperatorName> {
        let name = name.into();
        let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
        if name.is_empty() || name.len() > 64 || !name.bytes().all(is_fine) {
            let error = Error::new(ErrorKind::Invalid, "this is no name of a merge operator");
            return Err(error
                .expected("1 to 64 letters, digits, '_', '-' or '.'")
                .found(format!("{name:?}")));
        }
        Ok(OperatorName { name, version })
    }

    /// Of a text such as `add_u64@1`; without a version it is 1.
    ///
    /// # Errors
    /// `Invalid`.
    pub fn parse(text: &str) -> Result<OperatorName> {
        let Some((name, version)) = text.split_once('@') else { return OperatorName::new(text, 1) };
        let version = version.parse().map_err(|_| {
            Error::new(ErrorKind::Invalid, "this is no version of a merge operator")
                .expected("a number, as in add_u64@1")
                .found(format!("{version:?}"))
        })?;
        OperatorName::new(name, version)
    }
}

/// The operators that a database was opened with.
#[derive(Clone, Debug)]
pub(crate) struct Operators(BTreeMap<OperatorName, Operator>);

impl Default for Operators {
    fn default() -> Operators {
        static SHIPPED: LazyLock<BTreeMap<OperatorName, Operator>> = LazyLock::new(shipped::all);
        Operators(SHIPPED.clone())
    }
}

impl Operators {
    /// Adds one, or puts it in the place of another.
    pub(crate) fn insert(&mut self, name: OperatorName, operator: Operator) {
        self.0.insert(name, operator);
    }

    /// Their names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &OperatorName> {
        self.0.keys()
    }

    /// The operator of a keyspace, as far as it is there.
    pub(crate) fn named(&self, name: &OperatorName) -> Named {
        // Those that were meant, most likely: other versions of it, or else all.
        let others = || {
            let of_the_name = |other: &&OperatorName| other.name == name.name;
            let named = self.0.keys().filter(of_the_name).map(ToString::to_string).collect::<Vec<_>>();
            let all = || self.0.keys().map(ToString::to_string).collect();
            if named.is_empty() { all() } else { named }.join(", ")
        };
        let operator = self.0.get(name).cloned();
        let others = if operator.is_none() { others() } else { String::new() };
        Named { name: name.clone(), operator, others }
    }
}

/// The operator that a keyspace names.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    name: OperatorName,
    operator: Option<Operator>,
    /// Those that are there where it is not.
    others: String,
}

impl Named {
    /// The operator.
    ///
    /// # Errors
    /// `Unsupported`, with its name, when the database was opened without.
    pub(crate) fn get(&self) -> Result<&Operator> {
        self.operator.as_ref().ok_or_else(|| self.missing())
    }

    #[cold]
    fn missing(&self) -> Error {
        let OperatorName { name, version } = &self.name;
        let message = format!("merge operator {name:?} of version {version} is not there");
        Error::new(ErrorKind::Unsupported, message).found(&self.others).advice(
            "name one that is there, or open the database with Builder::operator, with that name and version",
        )
    }

    /// The error of an operator that failed.
    #[cold]
    fn failed(&self, why: &str) -> Error {
        let message = format!("merge operator {} cannot merge: {why}", self.name);
        Error::new(ErrorKind::Unsupported, message)
            .advice("put or delete the key, or use an operator that reads its operands")
    }

    #[cold]
    fn panicked(&self) -> Error {
        let message = format!("merge operator {} panicked", self.name);
        Error::new(ErrorKind::Unsupported, message).advice("mend the operator: the operands are kept")
    }

    #[cold]
    fn too_large(&self, bytes: usize) -> Error {
        let message = format!("merge operator {} makes a value that is too large", self.name);
        Error::new(ErrorKind::Unsupported, message)
            .expected(format!("at most {VALUE_BYTES_MAX} bytes"))
            .found(format!("{bytes} bytes"))
            .advice("put or delete the key, or write less into one key")
    }

    /// Runs code of the operator's.
    fn run<T>(&self, work: impl FnOnce() -> std::result::Result<T, OperatorError>) -> Result<T> {
        self.foreign(work)?.map_err(|why| self.failed(&why))
    }

    /// Runs code of the operator's; says what its error says, which is such code as well.
    fn foreign<T>(
        &self,
        work: impl FnOnce() -> std::result::Result<T, OperatorError>,
    ) -> Result<std::result::Result<T, String>> {
        let said = || work().map_err(|why| why.to_string());
        catch_unwind(AssertUnwindSafe(said)).map_err(|_| self.panicked())
    }

    fn within_limit(&self, bytes: usize) -> Result<()> {
        if bytes > VALUE_BYTES_MAX { Err(self.too_large(bytes)) } else { Ok(()) }
    }

    /// # Errors
    /// `Invalid` when the operator cannot read an operand; `Unsupported` without the operator.
    pub(crate) fn check(&self, operand: &[u8]) -> Result<()> {
        let operator = self.get()?;
        let checked = self.foreign(|| match operator {
            Operator::Associative(operator) => operator.check(operand),
            Operator::Full(operator) => operator.check(operand),
        });
        checked?.map_err(|why| {
            let message = format!("merge operator {} cannot read the operand: {why}", self.name);
            Error::new(ErrorKind::Invalid, message).advice("write operands that it reads")
        })
    }

    /// What a key has with `base` below operands, which come oldest first.
    ///
    /// # Errors
    /// `Unsupported` when the operator fails, panics or makes too much, or is not there.
    pub(crate) fn fold<'a>(
        &self,
        key: &[u8],
        base: Option<&[u8]>,
        operands: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<Option<Vec<u8>>> {
        match self.get()? {
            Operator::Associative(operator) => {
                let value = self.joined(&**operator, key, base, operands)?;
                let is_nothing = self.run(|| Ok(operator.is_nothing(&value)))?;
                Ok((!is_nothing).then_some(value))
            }
            Operator::Full(operator) => {
                let operands: Vec<&[u8]> = operands.collect();
                let mut value = Vec::new();
                let has_value = self.run(|| operator.fold(key, base, &operands, &mut value))?;
                self.within_limit(value.len())?;
                Ok(has_value.then_some(value))
            }
        }
    }

    /// What operands that follow each other come to, oldest first; `None` of an operator that
    /// cannot say.
    ///
    /// # Errors
    /// As [`Named::fold`].
    pub(crate) fn join<'a>(
        &self,
        key: &[u8],
        operands: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> Result<Option<Vec<u8>>> {
        match self.get()? {
            Operator::Associative(operator) => self.joined(&**operator, key, None, operands).map(Some),
            Operator::Full(_) => Ok(None),
        }
    }

    #[inline]
    fn joined<'a>(
        &self,
        operator: &dyn AssociativeOperator,
        key: &[u8],
        base: Option<&[u8]>,
        mut operands: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Vec<u8>> {
        let Some(first) = base.or_else(|| operands.next()) else { return Ok(Vec::new()) };
        let mut value = Vec::with_capacity(first.len() + SPARE_BYTES);
        value.extend_from_slice(first);
        self.run(|| {
            for operand in operands {
                operator.join(key, &mut value, operand)?;
                if value.len() > VALUE_BYTES_MAX {
                    break;
                }
            }
            Ok(())
        })?;
        self.within_limit(value.len())?;
        Ok(value)
    }
}

/// Room for what a join adds.
const SPARE_BYTES: usize = 16;

#[cfg(test)]
mod tests;
