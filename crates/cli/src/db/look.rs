//! `tombolo db stats`, `levels` and `properties`: what a database holds and does.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tombolo::internals::table_object;
use tombolo::{Answered, Ask, Env, PropertyValue, Unit};
use tombolo_storage::Uri;

use super::Look;
use crate::as_of::AsOf;
use crate::database::{DatabaseArguments, LookArguments};
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::{cost, text};

/// Arguments of `levels`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db levels file:///data/orders
  tombolo db levels file:///data/orders --tables          every table with its keys
  tombolo --json db levels file:///data/orders | jq .keyspaces[0].levels

Reads the manifest and nothing else: what is in memory or in the log only is not shown.
Level 0 holds what flushes wrote, newest first, and may overlap; the tables of every other level do not overlap.")]
pub struct Levels {
    /// The store that holds the database, as a URI.
    #[arg(value_name = "URI", value_parser = crate::place::place)]
    store: String,
    /// Only this keyspace.
    #[arg(long, value_name = "NAME")]
    keyspace: Option<String>,
    /// Lists every table.
    #[arg(long)]
    tables: bool,
}

#[derive(Default)]
struct Sums {
    tables: u64,
    bytes: u64,
    entries: u64,
    deletes: u64,
}

/// Runs `levels`.
pub fn levels(arguments: &Levels, output: &Output) -> Result<()> {
    let env = Env::real();
    let objects = crate::database::registry().open_object_store(&env, &Uri::parse(&arguments.store)?)?;
    let (world, store) = (env.clone(), Arc::clone(&objects));
    let as_of = AsOf::now();
    let loaded = env.block_on(async move { tombolo::internals::load(&world, &store).await })?;
    let (incarnation, state) = (loaded.incarnation, loaded.state);
    let mut shown = Vec::<Value>::new();
    for keyspace in state
        .keyspaces()
        .filter(|keyspace| arguments.keyspace.as_deref().is_none_or(|name| *keyspace.name == *name))
    {
        let mut levels = BTreeMap::<u8, Sums>::new();
        let mut tables = Vec::new();
        for table in keyspace.tables() {
            let sums = levels.entry(table.level).or_default();
            sums.tables += 1;
            sums.bytes += table.length;
            sums.entries += table.entries;
            sums.deletes += table.deletes;
            if arguments.tables {
                tables.push(table);
            }
        }
        tables.sort_by(|left, right| (left.level, &left.first_key).cmp(&(right.level, &right.first_key)));
        if output.is_json() {
            let levels: Vec<_> = levels
                .iter()
                .map(|(level, sums)| {
                    json!({
                        "level": level, "tables": sums.tables, "bytes": sums.bytes,
                        "entries": sums.entries, "deletes": sums.deletes
                    })
                })
                .collect();
            let tables: Vec<_> = tables
                .iter()
                .map(|table| {
                    json!({
                        "level": table.level, "name": table_object(incarnation, table.name).to_string(),
                        "bytes": table.length, "entries": table.entries,
                        "first_key": text::to_json(&table.first_key),
                        "last_key": text::to_json(&table.last_key),
                    })
                })
                .collect();
            let mut keyspace = json!({ "name": &*keyspace.name, "id": keyspace.id, "levels": levels });
            if let (true, Some(fields)) = (arguments.tables, keyspace.as_object_mut()) {
                fields.insert("tables".to_owned(), json!(tables));
            }
            shown.push(keyspace);
            continue;
        }
        shown.push(Value::Null);
        output.line(format!(
            "keyspace {}{}",
            keyspace.name,
            if levels.is_empty() { ": no tables" } else { "" }
        ))?;
        for (level, sums) in &levels {
            let (tables, entries) =
                (text::counted(sums.tables, "table"), text::counted(sums.entries, "entry"));
            let (deletes, bytes) = (text::counted(sums.deletes, "delete"), text::bytes(sums.bytes));
            output.line(format!(
                "  level {level:<3} {tables:>15}  {bytes:>11}  {entries:>23}  {deletes:>20}"
            ))?;
        }
        for table in tables {
            let (first, last) = (text::shown(&table.first_key), text::shown(&table.last_key));
            let bytes = text::bytes(table.length);
            output.line(format!(
                "    {:<3} {:<34} {bytes:>11}  {first} – {last}",
                table.level,
                table_object(incarnation, table.name).to_string()
            ))?;
        }
    }
    if let (Some(name), true) = (&arguments.keyspace, shown.is_empty()) {
        return Err(Failure::NotFound(format!("there is no keyspace {name:?} in {}", arguments.store)));
    }
    if output.is_json() {
        let all = json!({ "epoch": state.epoch().0, "manifest_record": state.slot(), "keyspaces": shown });
        return output.line(as_of.added_to(all));
    }
    as_of.say(output)
}

/// Runs `stats`.
pub fn stats(arguments: &Look, output: &Output) -> Result<()> {
    if arguments.look.is_of_now()
        && let Some(told) = arguments.database.told_by_writer(Ask::Stats)?
    {
        return show_told(&told, &[], output);
    }
    let ((stats, requests, epoch), as_of) = arguments
        .database
        .look_dated(&arguments.look, output, |db| Ok((db.stats(), db.requests(), db.epoch().0)))?;
    output.result(
        || {
            as_of.added_to(json!({
                "seen_by": "look", "tables_only": arguments.look.tables_only, "epoch": epoch,
                "tables": stats.tables, "table_bytes": stats.table_bytes,
                "tables_by_level": stats.tables_by_level,
                "tables_shared": stats.tables_shared, "table_bytes_shared": stats.table_bytes_shared,
                "log_bytes": stats.log_bytes, "last_sequence": stats.last_sequence,
                "open_nanos": stats.open_nanos,
                "requests": cost::requests_json(&requests), "cost": cost::cost_json(&requests),
            }))
        },
        || {
            let log = match (arguments.look.tables_only, &as_of) {
                (false, AsOf::Moment(..)) => {
                    format!("log         {} beyond the tables", text::bytes(stats.log_bytes))
                }
                _ => "log         not read".to_owned(),
            };
            [
                format!("seen        by a look from outside, {as_of}; memory, rates and troubles are the writer's \
                    to tell"),
                text::tables(&stats).join("\n"),
                log,
                format!("epoch       {epoch}, sequence number {}", stats.last_sequence),
                format!("looking     {}", text::duration(Duration::from_nanos(stats.open_nanos))),
                cost::text(&requests),
            ]
            .join("\n")
        },
    )
}

/// Arguments of `properties`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo db properties file:///data/orders
  tombolo db properties file:///data/orders table-bytes entries
  tombolo --json db properties file:///data/orders | jq 'map(select(.unit == \"bytes\"))'

A look reads them from outside: what is said of memory, work, requests and troubles is of this command alone, and says most in the program
that works with the database, where Db::properties gives the same list. docs/properties.md says what to watch.")]
pub struct Properties {
    #[command(flatten)]
    database: DatabaseArguments,
    /// Only these.
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    #[command(flatten)]
    look: LookArguments,
}

/// Runs `properties`.
pub fn properties(arguments: &Properties, output: &Output) -> Result<()> {
    if arguments.look.is_of_now()
        && let Some(told) = arguments.database.told_by_writer(Ask::Properties)?
    {
        return show_told(&told, &arguments.names, output);
    }
    let (properties, as_of) = arguments.database.look_dated(&arguments.look, output, |db| {
        Ok(match &arguments.names[..] {
            [] => db.properties(),
            names => names.iter().map(|name| db.property(name)).collect::<tombolo::Result<Vec<_>>>()?,
        })
    })?;
    if output.is_json() {
        let all: Vec<_> = properties
            .iter()
            .map(|property| {
                let value = match &property.value {
                    PropertyValue::Number(number) => json!(number),
                    PropertyValue::Levels(levels) => json!(levels),
                    other => json!(other.to_string()),
                };
                json!({
                    "name": property.name, "value": value, "unit": property.unit.to_string(),
                    "help": property.help
                })
            })
            .collect();
        output.line(Value::Array(all))?;
        return as_of.say(output);
    }
    for property in &properties {
        let unit = if property.unit == Unit::Text { String::new() } else { property.unit.to_string() };
        output.line(format!(
            "{:<24} {:>16} {unit:<12} {}",
            property.name,
            property.value.to_string(),
            property.help
        ))?;
    }
    as_of.say(output)
}

/// What a writer has told of itself: all of it, or the named parts.
fn show_told(told: &Answered, names: &[String], output: &Output) -> Result<()> {
    let known = |name: &String| told.facts.iter().any(|(fact, _)| fact == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let known: Vec<&str> = told.facts.iter().map(|(name, _)| name.as_str()).collect();
        let known = known.join(", ");
        return Err(Failure::Usage(format!("there is no property {unknown:?}: there are {known}")));
    }
    let shown = told.facts.iter().filter(|(name, _)| names.is_empty() || names.contains(name));
    if output.is_json() {
        let value = |text: &str| text.parse::<u64>().map_or_else(|_| json!(text), |number| json!(number));
        let mut all: serde_json::Map<String, Value> =
            shown.map(|(name, text)| (name.clone(), value(text))).collect();
        all.insert("by_writer_of_epoch".to_owned(), json!(told.epoch.0));
        return output.line(Value::Object(all));
    }
    for (name, value) in shown {
        output.line(format!("{name:<26} {value:>16}"))?;
    }
    Ok(())
}
