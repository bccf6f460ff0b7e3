//! `put` and `delete` that take effect only if something holds.

use std::ffi::OsString;

use clap::Args;
use serde_json::{Value, json};
use tombolo::{Condition, Decision, Keyspace, Versioned};

use super::Common;
use crate::failure::{Failure, Result};
use crate::text::Form;

/// What must hold of the key.
#[derive(Args)]
#[group(id = "condition", multiple = false)]
#[command(next_help_heading = "Conditions")]
pub struct ConditionArguments {
    /// Only if the key has no value; exit code 10 otherwise, which says what it has.
    #[arg(long)]
    if_absent: bool,
    /// Only if the key has a value.
    #[arg(long)]
    if_present: bool,
    /// Only if the key has this value.
    #[arg(long, value_name = "VALUE")]
    if_equal: Option<OsString>,
    /// Only if this is the number of the key's newest version: `get --json` shows it. 0: only if it
    /// has none.
    #[arg(long, value_name = "NUMBER")]
    if_version: Option<u64>,
}

impl ConditionArguments {
    /// The condition, if one was given.
    pub fn condition(&self, form: Form) -> Result<Option<Condition>> {
        Ok(match (&self.if_equal, self.if_version) {
            (Some(value), _) => Some(Condition::Equal(form.parse(value)?)),
            (None, Some(number)) => Some(Condition::Unchanged((number != 0).then_some(number))),
            (None, None) if self.if_absent => Some(Condition::Absent),
            (None, None) => self.if_present.then_some(Condition::Present),
        })
    }
}

/// The number that a write with a condition got.
///
/// # Errors
/// That of the write, or the failure that says what was found instead.
pub fn met(
    decided: tombolo::Result<Decision>,
    key: &[u8],
    keyspace: &Keyspace,
    common: &Common,
) -> Result<u64> {
    let decision = decided?;
    if let Some(sequence) = decision.sequence {
        return Ok(sequence);
    }
    let form = common.form();
    let found = decision.found.into_iter().next().flatten();
    Err(Failure::NotMet {
        key: form.show(key),
        found: found.as_ref().map_or_else(
            || "has no value".to_owned(),
            |found| format!("has version {}: {}", found.sequence, form.show(&found.value)),
        ),
        json: json!({
            "key": form.to_json(key),
            "keyspace": keyspace.name(),
            "found": found.as_ref().map(|found| json_of(found, form)),
        }),
    })
}

/// A version, for machines.
fn json_of(found: &Versioned, form: Form) -> Value {
    json!({ "value": form.to_json(&found.value), "version": found.sequence })
}
