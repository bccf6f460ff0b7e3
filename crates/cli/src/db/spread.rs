//! `tombolo db count`, `splits` and `sample`: how the keys of a range are spread.

use clap::Args;
use serde_json::json;

use super::{Common, Keys, RangeArguments, entry_json};
use crate::database::LookArguments;
use crate::failure::Result;
use crate::output::Output;

/// Which keys, and of what.
#[derive(Args)]
struct Within {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    look: LookArguments,
    #[command(flatten)]
    keys: RangeArguments,
}

impl Within {
    fn range(&self) -> Result<Keys> {
        self.keys.parse(self.common.form())
    }
}

/// Arguments of `count`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db count file:///data/orders
  tombolo db count file:///data/orders --from 2026- --to 2027-

The count is exact. Where one table alone has something for a stretch of keys, it says how many; all other keys are walked over.")]
pub struct Count {
    #[command(flatten)]
    within: Within,
}

/// Runs `count`.
pub fn count(arguments: &Count, output: &Output) -> Result<()> {
    let within = &arguments.within;
    let range = within.range()?;
    let (keys, as_of) = within
        .common
        .look(&within.look, output, |keyspace| Ok(keyspace.count::<Vec<u8>>(range.clone()).wait()?))?;
    as_of.result(output, || json!({ "keys": keys }), || keys.to_string())
}

/// Arguments of `splits`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db splits file:///data/orders 8

Prints up to 7 keys: a part ends before each, and the next one begins at it. Reads the indexes of tables alone.")]
pub struct Splits {
    #[command(flatten)]
    within: Within,
    /// Into how many parts.
    #[arg(value_name = "PARTS")]
    parts: usize,
}

/// Runs `splits`.
pub fn splits(arguments: &Splits, output: &Output) -> Result<()> {
    let within = &arguments.within;
    let (form, range) = (within.common.form(), within.range()?);
    let (cuts, as_of) = within.common.look(&within.look, output, |keyspace| {
        Ok(keyspace.split_points::<Vec<u8>>(range.clone(), arguments.parts).wait()?)
    })?;
    for cut in cuts {
        output.result(|| json!({ "key": form.to_json(&cut) }), || form.show(&cut))?;
    }
    as_of.say(output)
}

/// Arguments of `sample`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db sample file:///data/orders 20

All keys are as likely as any other of up to 4,096 entries. Of more, blocks are drawn by what they hold.")]
pub struct Sample {
    #[command(flatten)]
    within: Within,
    /// How many.
    #[arg(value_name = "COUNT")]
    count: usize,
}

/// Runs `sample`.
pub fn sample(arguments: &Sample, output: &Output) -> Result<()> {
    let within = &arguments.within;
    let (form, range) = (within.common.form(), within.range()?);
    let (entries, as_of) = within.common.look(&within.look, output, |keyspace| {
        Ok(keyspace.sample::<Vec<u8>>(range.clone(), arguments.count).wait()?)
    })?;
    for (key, value) in entries {
        output.result(
            || entry_json(form, &key, &value, None),
            || format!("{}\t{}", form.show(&key), form.show(&value)),
        )?;
    }
    as_of.say(output)
}
