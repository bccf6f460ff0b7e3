//! The merge operators of the keyspaces: one that joins operands, and one that only folds them over
//! a value, oldest first. The first keyspace has none.

use tombolo::{FullOperator, Operator, OperatorError, OperatorName};

/// Its name in settings is `chain@1`.
const CHAIN: &str = "chain";

/// Whether a keyspace has the operator of [`chain`], and not the one that appends.
pub(super) fn chains(keyspace: &str) -> bool {
    keyspace == "users"
}

/// The name of a keyspace's operator.
pub(super) fn of(keyspace: &str) -> &'static str {
    if chains(keyspace) { CHAIN } else { "append" }
}

/// An operand over the value below it: the order counts, and so does each one of them.
pub(super) fn chain(base: &[u8], operand: &[u8]) -> Vec<u8> {
    let both = [base, b"<", operand].concat();
    [&xxhash_rust::xxh3::xxh3_64(&both).to_le_bytes()[..], operand].concat()
}

struct Chain;

impl FullOperator for Chain {
    fn fold(
        &self,
        _key: &[u8],
        base: Option<&[u8]>,
        operands: &[&[u8]],
        value: &mut Vec<u8>,
    ) -> Result<bool, OperatorError> {
        let base = base.unwrap_or_default().to_vec();
        *value = operands.iter().fold(base, |below, operand| chain(&below, operand));
        Ok(true)
    }
}

/// The operator that no database has by itself.
pub(super) fn own() -> tombolo::Result<(OperatorName, Operator)> {
    Ok((OperatorName::new(CHAIN, 1)?, Operator::full(Chain)))
}
