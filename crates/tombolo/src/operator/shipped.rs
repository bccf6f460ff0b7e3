//! The operators that every database has: see [`Operator`].

use std::collections::BTreeMap;

use super::{AssociativeOperator, FullOperator, Operator, OperatorError, OperatorName};

type Done<T> = Result<T, OperatorError>;

/// All of them, of version 1.
pub(super) fn all() -> BTreeMap<OperatorName, Operator> {
    let all = [
        ("add_u64", Operator::associative(AddU64)),
        ("add_i64", Operator::associative(AddI64)),
        ("add_f64", Operator::full(AddF64)),
        ("max", Operator::associative(Max)),
        ("min", Operator::associative(Min)),
        ("append", Operator::append(b"")),
        ("append_comma", Operator::append(b",")),
        ("append_line", Operator::append(b"\n")),
        ("bit_or", Operator::associative(BitOr)),
        ("set_union", Operator::associative(SetUnion)),
        ("weights", Operator::associative(Weights)),
    ];
    all.into_iter()
        .map(|(name, operator)| (OperatorName { name: name.to_owned(), version: 1 }, operator))
        .collect()
}

#[inline]
fn eight(bytes: &[u8]) -> Done<[u8; 8]> {
    bytes.try_into().map_err(|_| format!("a number of 8 bytes is expected, {} are there", bytes.len()).into())
}

/// Adds modulo 2^64, which is the same for numbers with and without sign. It wraps, as processors
/// and RocksDB's operator do; a sum that failed instead would depend on the order.
#[inline]
fn add(older: &mut [u8], newer: &[u8]) -> Done<()> {
    let sum = u64::from_le_bytes(eight(older)?).wrapping_add(u64::from_le_bytes(eight(newer)?));
    older.copy_from_slice(&sum.to_le_bytes());
    Ok(())
}

/// Adds u64, little-endian, modulo 2^64. RocksDB's `uint64add` reads and writes the same bytes.
#[derive(Clone, Copy, Debug)]
struct AddU64;

impl AssociativeOperator for AddU64 {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Done<()> {
        add(older, newer)
    }

    fn check(&self, operand: &[u8]) -> Done<()> {
        eight(operand).map(drop)
    }
}

/// Adds i64, little-endian, modulo 2^64.
#[derive(Clone, Copy, Debug)]
struct AddI64;

impl AssociativeOperator for AddI64 {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Done<()> {
        add(older, newer)
    }

    fn check(&self, operand: &[u8]) -> Done<()> {
        eight(operand).map(drop)
    }
}

/// Adds i64, little-endian, modulo 2^64. A key whose sum is zero is absent, and takes no space.
#[derive(Clone, Copy, Debug)]
struct Weights;

impl AssociativeOperator for Weights {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Done<()> {
        add(older, newer)
    }

    fn is_nothing(&self, value: &[u8]) -> bool {
        value == [0; 8]
    }

    fn check(&self, operand: &[u8]) -> Done<()> {
        eight(operand).map(drop)
    }
}

/// Adds f64, little-endian, oldest first. A full operator: sums of such numbers depend on their
/// order, and a read must give the same before and after a compaction.
#[derive(Clone, Copy, Debug)]
struct AddF64;

impl FullOperator for AddF64 {
    fn fold(&self, _key: &[u8], base: Option<&[u8]>, operands: &[&[u8]], value: &mut Vec<u8>) -> Done<bool> {
        let mut numbers = base.iter().chain(operands);
        let Some(first) = numbers.next() else { return Ok(false) };
        let mut sum = f64::from_le_bytes(eight(first)?);
        for number in numbers {
            sum += f64::from_le_bytes(eight(number)?);
        }
        value.extend_from_slice(&sum.to_le_bytes());
        Ok(true)
    }

    fn check(&self, operand: &[u8]) -> Done<()> {
        eight(operand).map(drop)
    }
}

fn replace(older: &mut Vec<u8>, newer: &[u8]) {
    older.clear();
    older.extend_from_slice(newer);
}

/// Keeps the greatest, compared as keys are: numbers big-endian.
#[derive(Clone, Copy, Debug)]
struct Max;

impl AssociativeOperator for Max {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Done<()> {
        if newer > &older[..] {
            replace(older, newer);
        }
        Ok(())
    }
}

/// Keeps the least, compared as keys are: numbers big-endian.
#[derive(Clone, Copy, Debug)]
struct Min;

impl AssociativeOperator for Min {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Done<()> {
        if newer < &older[..] {
            replace(older, newer);
        }
        Ok(())
    }
}

/// Puts all behind each other.
#[derive(Clone, Debug)]
pub(super) struct Append {
    separator: Vec<u8>,
}

impl Append {
    /// With `separator` between each two.
    pub(super) fn new(separator: &[u8]) -> Append {
        Append { separator: separator.to_vec() }
    }
}

impl AssociativeOperator for Append {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Done<()> {
        older.extend_from_slice(&self.separator);
        older.extend_from_slice(newer);
        Ok(())
    }
}

/// Keeps the bits of all; a shorter one counts as ending in zeros.
#[derive(Clone, Copy, Debug)]
struct BitOr;

impl AssociativeOperator for BitOr {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Done<()> {
        if older.len() < newer.len() {
            older.resize(newer.len(), 0);
        }
        older.iter_mut().zip(newer).for_each(|(older, newer)| *older |= newer);
        Ok(())
    }
}

/// Keeps the elements of all: see [`encode_set`].
#[derive(Clone, Copy, Debug)]
struct SetUnion;

impl AssociativeOperator for SetUnion {
    fn join(&self, _key: &[u8], older: &mut Vec<u8>, newer: &[u8]) -> Done<()> {
        let joined = {
            let (mut ours, mut theirs) = (Elements(older).peekable(), Elements(newer).peekable());
            let mut joined = Vec::with_capacity(older.len() + newer.len());
            loop {
                let element = match (ours.peek(), theirs.peek()) {
                    (Some(Err(())) | None, Some(Err(()))) | (Some(Err(())), _) | (_, Some(Err(()))) => {
                        return Err(NO_SET.into());
                    }
                    (Some(Ok(one)), Some(Ok(other))) => match one.cmp(other) {
                        std::cmp::Ordering::Less => ours.next(),
                        std::cmp::Ordering::Greater => theirs.next(),
                        std::cmp::Ordering::Equal => {
                            ours.next();
                            theirs.next()
                        }
                    },
                    (Some(_), None) => ours.next(),
                    (None, Some(_)) => theirs.next(),
                    (None, None) => break,
                };
                if let Some(Ok(element)) = element {
                    put_element(&mut joined, element);
                }
            }
            joined
        };
        *older = joined;
        Ok(())
    }

    fn check(&self, operand: &[u8]) -> Done<()> {
        set_elements(operand).map(drop).ok_or_else(|| NO_SET.into())
    }
}

const NO_SET: &str = "a set is expected: elements ascending, each with its length (u32) before it";

#[allow(clippy::cast_possible_truncation, reason = "values are far smaller")]
fn put_element(out: &mut Vec<u8>, element: &[u8]) {
    out.extend_from_slice(&(element.len() as u32).to_le_bytes());
    out.extend_from_slice(element);
}

/// The elements of a set, ascending, each behind its length as a u32, little-endian: an operand of
/// `set_union`, and its value.
///
/// ```
/// use tombolo::{encode_set, set_elements};
///
/// let set = encode_set(["pear", "apple", "pear"]);
/// assert_eq!(set_elements(&set).unwrap(), [&b"apple"[..], b"pear"]);
/// ```
pub fn encode_set<E: AsRef<[u8]>>(elements: impl IntoIterator<Item = E>) -> Vec<u8> {
    let mut elements: Vec<E> = elements.into_iter().collect();
    elements.sort_by(|one, other| one.as_ref().cmp(other.as_ref()));
    elements.dedup_by(|one, other| one.as_ref() == other.as_ref());
    let mut set = Vec::new();
    elements.iter().for_each(|element| put_element(&mut set, element.as_ref()));
    set
}

/// The elements of a set, ascending; `None` when the bytes are no set.
pub fn set_elements(set: &[u8]) -> Option<Vec<&[u8]>> {
    Elements(set)
        .collect::<Result<_, ()>>()
        .ok()
        .filter(|elements: &Vec<&[u8]>| elements.is_sorted_by(|one, other| one < other))
}

/// Walks a set. After an error it ends.
struct Elements<'a>(&'a [u8]);

impl<'a> Iterator for Elements<'a> {
    type Item = Result<&'a [u8], ()>;

    fn next(&mut self) -> Option<Result<&'a [u8], ()>> {
        if self.0.is_empty() {
            return None;
        }
        let read = |bytes: &'a [u8]| {
            let (length, rest) = bytes.split_first_chunk::<4>()?;
            rest.split_at_checked(u32::from_le_bytes(*length) as usize)
        };
        match read(self.0) {
            Some((element, rest)) => {
                self.0 = rest;
                Some(Ok(element))
            }
            None => {
                self.0 = &[];
                Some(Err(()))
            }
        }
    }
}
