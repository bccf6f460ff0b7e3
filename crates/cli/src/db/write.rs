//! Commands that write keys: `put`, `merge`, `delete`, `delete-range`.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use tombolo::{Batch, Keyspace, OpenMode};
use tombolo_format::key::VALUE_BYTES_MAX;

use super::condition::{self, ConditionArguments};
use super::{Common, Survives, finish_write};
use crate::database::{NewArguments, TakeOverArguments};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text::{self, Form};

/// Arguments of `put`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db put file:///data/orders 1 'two books'
  tombolo db put file:///data/orders path 'C:\\new\\table'               the bytes as they are typed
  tombolo db put file:///data/orders --escape lines 'one\\ntwo'        a newline in between
  tombolo db put file:///data/orders --hex 00ff 0102
  tombolo db put file:///data/orders photo --value-file photo.jpg
  tombolo db put file:///data/orders listing --value-file - < listing
  tombolo db put file:///data/orders lock mine --if-absent             exit code 10 when somebody has it
  tombolo db put file:///data/orders lock mine --if-absent --ttl 30s   a lock that goes by itself
  tombolo db put file:///data/orders --keyspace sessions token bob --ttl 10m")]
pub struct Put {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// The key.
    key: OsString,
    /// The value.
    #[arg(required_unless_present = "value_file")]
    value: Option<OsString>,
    /// Takes the value's bytes from this file, or from standard input for `-`; at most 64 MiB.
    /// --escape and --hex are then for the key alone.
    #[arg(long, value_name = "PATH", conflicts_with = "value")]
    value_file: Option<PathBuf>,
    #[command(flatten)]
    life: LifeArguments,
    #[command(flatten)]
    condition: ConditionArguments,
    #[command(flatten)]
    new: NewArguments,
    /// What the write must survive; `tombolo explain URI` says what each means there.
    #[arg(long, value_enum, default_value_t)]
    durability: Survives,
}

/// Arguments of `merge`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db keyspace create file:///data/counts words --operator append_comma
  tombolo db merge file:///data/counts --keyspace words colours red
  tombolo db merge file:///data/counts --keyspace sums --hex 00 0100000000000000
  tombolo db merge file:///data/counts --keyspace words recent red --ttl 10m")]
pub struct Merge {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// The key.
    key: OsString,
    /// The operand.
    operand: OsString,
    #[command(flatten)]
    life: LifeArguments,
    /// What the merge must survive.
    #[arg(long, value_enum, default_value_t)]
    durability: Survives,
}

/// Arguments of `delete`.
#[derive(Args)]
pub struct Delete {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// The key.
    key: OsString,
    /// Says that the key was put once since it was last deleted: put and delete then go together.
    /// Reads are the same where that is wrong.
    #[arg(long, conflicts_with = "condition")]
    single: bool,
    #[command(flatten)]
    condition: ConditionArguments,
    /// What the delete must survive.
    #[arg(long, value_enum, default_value_t)]
    durability: Survives,
}

/// How long a value lives, or what an operand comes to.
#[derive(Args)]
struct LifeArguments {
    /// What the key has ends after this time, such as 10m or 36h. Default: the keyspace's setting
    /// ttl.
    #[arg(long, value_name = "TIME", value_parser = text::length_of_time)]
    ttl: Option<Duration>,
    /// What the key has ends at this moment: milliseconds since 1970 of the database's time, which
    /// `db time` says.
    #[arg(long, value_name = "MILLISECONDS", conflicts_with = "ttl")]
    expires_ms: Option<u64>,
}

impl LifeArguments {
    fn put(&self, batch: &mut Batch, keyspace: &Keyspace, key: &[u8], value: &[u8]) {
        match (self.ttl, self.expires_ms) {
            (Some(ttl), _) => batch.put_ttl(keyspace, key, value, ttl),
            (None, Some(end)) => batch.put_until(keyspace, key, value, end),
            (None, None) => batch.put(keyspace, key, value),
        };
    }

    fn merge(&self, batch: &mut Batch, keyspace: &Keyspace, key: &[u8], operand: &[u8]) {
        match (self.ttl, self.expires_ms) {
            (Some(ttl), _) => batch.merge_ttl(keyspace, key, operand, ttl),
            (None, Some(end)) => batch.merge_until(keyspace, key, operand, end),
            (None, None) => batch.merge(keyspace, key, operand),
        };
    }
}

/// Arguments of `delete-range`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db delete-range file:///data/orders 2025- 2026-
  tombolo db delete-range file:///data/orders --hex 00 01

Keys that are FROM or greater and less than TO go, byte by byte compared. `db scan URI --from FROM --to TO` shows them.")]
pub struct DeleteRange {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    take_over: TakeOverArguments,
    /// The first key that goes.
    from: OsString,
    /// The first key after it that stays.
    to: OsString,
    /// What the delete must survive.
    #[arg(long, value_enum, default_value_t)]
    durability: Survives,
}

/// Runs `put`.
pub fn put(arguments: &Put, output: &Output) -> Result<()> {
    let form = arguments.common.form();
    let key = form.parse(&arguments.key)?;
    let value = match (&arguments.value, &arguments.value_file) {
        (Some(value), _) => form.parse(value)?,
        (None, Some(path)) => value_from(path)?,
        (None, None) => Vec::new(),
    };
    let condition = arguments.condition.condition(form)?;
    // A first put makes the database: the prompt is where people begin.
    let (db, created) = arguments.common.database.open_or_create(&arguments.take_over, &arguments.new)?;
    let durability = arguments.durability.into();
    let worked = db.keyspace(&arguments.common.keyspace).map_err(Failure::from).and_then(|keyspace| {
        let mut batch = Batch::new();
        arguments.life.put(&mut batch, &keyspace, &key, &value);
        let Some(condition) = condition else {
            return Ok(db.write_with(batch, durability).wait().map(|()| None)?);
        };
        batch.require(&keyspace, &key, condition);
        let decided = db.write_if_with(batch, durability).wait();
        condition::met(decided, &key, &keyspace, &arguments.common).map(Some)
    });
    finish_write(&db, output, Some(created), worked)
}

/// Runs `merge`.
pub fn merge(arguments: &Merge, output: &Output) -> Result<()> {
    let form = arguments.common.form();
    let (key, operand) = (form.parse(&arguments.key)?, form.parse(&arguments.operand)?);
    let (db, keyspace) = arguments.common.open(OpenMode::Open, &arguments.take_over)?;
    let mut batch = Batch::new();
    arguments.life.merge(&mut batch, &keyspace, &key, &operand);
    let written = db.write_with(batch, arguments.durability.into()).wait();
    finish_write(&db, output, None, written.map(|()| None).map_err(Failure::from))
}

/// The bytes of a file, or of standard input; never more than a value can have.
fn value_from(path: &Path) -> Result<Vec<u8>> {
    let shown = path.display();
    let (name, input): (String, Box<dyn Read>) = if path.as_os_str() == "-" {
        ("standard input".to_owned(), Box::new(std::io::stdin()))
    } else {
        let file = File::open(path).map_err(|error| Failure::io(error, format!("opening {shown}")))?;
        (shown.to_string(), Box::new(file))
    };
    let mut value = Vec::new();
    let read = input.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value);
    read.map_err(|error| Failure::io(error, format!("reading {name}")))?;
    if value.len() > VALUE_BYTES_MAX {
        return Err(Failure::Usage(format!(
            "{name} has more bytes than a value can have: {VALUE_BYTES_MAX} are the most; spread it over \
            several keys"
        )));
    }
    Ok(value)
}

/// Runs `delete`.
pub fn delete(arguments: &Delete, output: &Output) -> Result<()> {
    let key = arguments.common.form().parse(&arguments.key)?;
    let condition = arguments.condition.condition(arguments.common.form())?;
    let (db, keyspace) = arguments.common.open(OpenMode::Open, &arguments.take_over)?;
    let durability = arguments.durability.into();
    let plain = |written: tombolo::Result<()>| written.map(|()| None).map_err(Failure::from);
    let written = match condition {
        None if arguments.single => plain(keyspace.single_delete_with(&key, durability).wait()),
        None => plain(keyspace.delete_with(&key, durability).wait()),
        Some(condition) => {
            let decided = keyspace.delete_if_with(&key, condition, durability).wait();
            condition::met(decided, &key, &keyspace, &arguments.common).map(Some)
        }
    };
    finish_write(&db, output, None, written)
}

/// The ends of a range that holds keys.
pub(super) fn parse_range(form: Form, from: &OsStr, to: &OsStr) -> Result<(Vec<u8>, Vec<u8>)> {
    let (from, to) = (form.parse(from)?, form.parse(to)?);
    if from >= to {
        return Err(Failure::Usage(format!(
            "no key is from {} on and before {}: the first key that stays comes second, and is the greater",
            form.show(&from),
            form.show(&to)
        )));
    }
    Ok((from, to))
}

/// Runs `delete-range`.
pub fn delete_range(arguments: &DeleteRange, output: &Output) -> Result<()> {
    let (from, to) = parse_range(arguments.common.form(), &arguments.from, &arguments.to)?;
    let (db, keyspace) = arguments.common.open(OpenMode::Open, &arguments.take_over)?;
    let written = keyspace.delete_range_with(&from, &to, arguments.durability.into()).wait();
    finish_write(&db, output, None, written.map(|()| None).map_err(Failure::from))
}
