//! `tombolo zoned`: zoned devices at the prompt. What the utility `zenfs` does for RocksDB's
//! plugin, this does for devices of databases.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::Table;
use serde_json::json;
use tombolo::Env;
use tombolo_storage::Uri;
use tombolo_zoned::FormatOptions;
use tombolo_zoned::tools::{self, Space, Tool, ZoneRow};

use crate::database::registry;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::output::Output;
use crate::text;

/// Commands of `zoned`.
#[derive(Subcommand)]
pub enum Command {
    /// Formats a device, or makes a file of zones.
    Mkfs(Mkfs),
    /// Lists the objects of a device.
    List(Place),
    /// Says how full a device is, and what its zones are.
    Df(Place),
    /// Prints all that the metadata says, as JSON.
    Dump(Place),
    /// Copies all objects and logs of a device to a directory or another store.
    Backup(Copy),
    /// Formats a device, and fills it from a backup.
    Restore(Restore),
    /// Compares what the metadata says with what the device holds; repairs nothing.
    Fsck(Fsck),
    /// Shows the zones as a map, again and again.
    Top(Top),
    /// Draws the zones as an SVG.
    Report(Report),
}

/// A device.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo zoned df zoned:///dev/nvme0n1
  tombolo zoned list zoned+file:///data/zones/orders")]
pub struct Place {
    /// The device, as a URI; a name behind it limits a list to one database.
    #[arg(value_name = "URI")]
    device: String,
}

/// How a device is formatted.
#[derive(Args)]
struct FormatArguments {
    /// Its content may go.
    #[arg(long)]
    force: bool,
    /// Zones that the metadata rolls through.
    #[arg(long, default_value_t = 3, value_name = "COUNT")]
    metadata_zones: u32,
    /// A zone with less than so many percent left is finished.
    #[arg(long, default_value_t = 5, value_name = "PERCENT")]
    finish_threshold: u8,
    /// A name for people.
    #[arg(long, default_value = "", value_name = "TEXT")]
    label: String,
}

impl FormatArguments {
    fn options(&self) -> FormatOptions {
        FormatOptions {
            metadata_zones: self.metadata_zones,
            finish_percent: self.finish_threshold,
            label: self.label.clone(),
            force: self.force,
        }
    }
}

/// Arguments of `mkfs`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo zoned mkfs zoned:///dev/nvme0n1 --label orders
  tombolo zoned mkfs 'zoned+file:///data/zones?zone=64MiB&zones=200&open=14&active=14'

A device on which something is written is refused, unless --force says that it may go.")]
pub struct Mkfs {
    /// The device, as a URI; zones of a file are described behind a `?`.
    #[arg(value_name = "URI")]
    device: String,
    #[command(flatten)]
    format: FormatArguments,
}

/// Arguments of `backup`.
#[derive(Args)]
#[command(after_help = "\
Example:
  tombolo zoned backup zoned:///dev/nvme0n1 file:///backup/nvme0n1

The device is held meanwhile: no other process may have it open.")]
pub struct Copy {
    /// The device, as a URI.
    #[arg(value_name = "URI")]
    device: String,
    /// Where to, as a path or URI: an empty place.
    #[arg(value_name = "TO", value_parser = crate::place::place)]
    to: String,
}

/// Arguments of `restore`.
#[derive(Args)]
#[command(after_help = "\
Example:
  tombolo zoned restore file:///backup/nvme0n1 zoned:///dev/nvme1n1")]
pub struct Restore {
    /// The backup, as a path or URI.
    #[arg(value_name = "FROM", value_parser = crate::place::place)]
    from: String,
    /// The device, as a URI.
    #[arg(value_name = "URI")]
    device: String,
    #[command(flatten)]
    format: FormatArguments,
}

/// Arguments of `fsck`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo zoned fsck zoned:///dev/nvme0n1
  tombolo zoned fsck zoned:///dev/nvme0n1 --scrub          reads every byte

Exit code 1 when something is damaged.")]
pub struct Fsck {
    /// The device, as a URI.
    #[arg(value_name = "URI")]
    device: String,
    /// Read every byte of every object, and compare it with its hash.
    #[arg(long)]
    scrub: bool,
}

/// Arguments of `top`.
#[derive(Args)]
#[command(after_help = "\
Example:
  tombolo zoned top zoned:///dev/nvme0n1 --seconds 2

M metadata, L log, . free, 0 to 5 open by class of life, # full of what lives, + half, - hardly any, x worn.")]
pub struct Top {
    /// The device, as a URI.
    #[arg(value_name = "URI")]
    device: String,
    /// Seconds between two looks.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,
    /// End after so many looks; 0: with Ctrl-C.
    #[arg(long, default_value_t = 0)]
    looks: u64,
}

/// Arguments of `report`.
#[derive(Args)]
#[command(after_help = "\
Example:
  tombolo zoned report zoned:///dev/nvme0n1 --out zones.svg")]
pub struct Report {
    /// The device, as a URI.
    #[arg(value_name = "URI")]
    device: String,
    /// The file to write.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
}

fn tool(env: &Env, device: &str) -> Result<Tool> {
    Ok(Tool::open(env, &Uri::parse(device)?)?)
}

/// Runs it.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    let env = Env::real();
    match command {
        Command::Mkfs(arguments) => mkfs(&env, arguments, output),
        Command::List(place) => list(&env, &place.device, output),
        Command::Df(place) => df(&env, &place.device, output),
        Command::Dump(place) => dump(&env, &place.device, output),
        Command::Backup(arguments) => backup(&env, arguments, output),
        Command::Restore(arguments) => restore(&env, arguments, output),
        Command::Fsck(arguments) => fsck(&env, arguments, output),
        Command::Top(arguments) => top(&env, arguments, output),
        Command::Report(arguments) => report(&env, arguments, output),
    }
}

fn mkfs(env: &Env, arguments: &Mkfs, output: &Output) -> Result<()> {
    let tool = tool(env, &arguments.device)?;
    tool.format(&arguments.format.options())?;
    let core = tool.look()?;
    let (superblock, id, _) = core.identity();
    let free = core.space().free_bytes;
    output.result(
        || json!({ "device": format!("{id:032x}"), "zones": superblock.zones, "free_bytes": free }),
        || {
            format!(
                "formatted: device {id:032x}, {} zones of {}, {} free",
                superblock.zones,
                text::bytes(superblock.zone_bytes),
                text::bytes(free)
            )
        },
    )
}

fn list(env: &Env, device: &str, output: &Output) -> Result<()> {
    let tool = tool(env, device)?;
    for row in tool.look()?.name_rows(tool.prefix()) {
        output.result(
            || json!({ "name": row.name, "bytes": row.length, "pieces": row.extents.len() }),
            || format!("{:>14}  {:>4}  {}", row.length, row.extents.len(), row.name),
        )?;
    }
    Ok(())
}

/// Dead bytes as a share of the needed ones: as `zenfs df` says it.
fn amplification_percent(space: &Space) -> u64 {
    (space.dead_bytes * 100).checked_div(space.live_bytes).unwrap_or(0)
}

fn df(env: &Env, device: &str, output: &Output) -> Result<()> {
    let core = tool(env, device)?.look()?;
    let (superblock, id, generation) = core.identity();
    let space = core.space();
    let amplification = amplification_percent(&space);
    output.result(
        || {
            json!({
                "device": format!("{id:032x}"), "label": superblock.label, "metadata_generation": generation,
                "capacity_bytes": space.capacity_bytes, "live_bytes": space.live_bytes,
                "dead_bytes": space.dead_bytes, "log_bytes": space.log_bytes, "free_bytes": space.free_bytes,
                "space_amplification_percent": amplification,
                "zones": {
                    "metadata": superblock.metadata_zones, "free": space.free, "open": space.open,
                    "full": space.full, "log": space.log, "worn": space.worn,
                },
                "notes": core.notes(),
            })
        },
        || {
            let mut table = Table::new();
            table.load_preset(comfy_table::presets::UTF8_FULL_CONDENSED);
            let mut row = |name: &str, value: String| {
                table.add_row([name.to_owned(), value]);
            };
            row("device", format!("{id:032x} {}", superblock.label));
            row("for data", text::bytes(space.capacity_bytes));
            row("needed", text::bytes(space.live_bytes));
            row("dead", format!("{}, space amplification {amplification} %", text::bytes(space.dead_bytes)));
            row("free", text::bytes(space.free_bytes));
            row(
                "zones",
                format!(
                    "{} metadata, {} free, {} open, {} full, {} log, {} worn",
                    superblock.metadata_zones, space.free, space.open, space.full, space.log, space.worn
                ),
            );
            core.notes().iter().for_each(|note| row("note", note.clone()));
            table.to_string()
        },
    )
}

fn zone_json(row: &ZoneRow) -> serde_json::Value {
    json!({
        "zone": row.zone, "used": row.used, "state": row.state, "class": row.class,
        "capacity_bytes": row.capacity_bytes, "written_bytes": row.written_bytes,
        "live_bytes": row.live_bytes,
    })
}

fn dump(env: &Env, device: &str, output: &Output) -> Result<()> {
    let tool = tool(env, device)?;
    let core = tool.look()?;
    let (superblock, id, generation) = core.identity();
    let extent = |(zone, at, bytes): &(u32, u64, u64)| json!({ "zone": zone, "at": at, "bytes": bytes });
    let objects: Vec<_> = core
        .name_rows(tool.prefix())
        .iter()
        .map(|row| {
            json!({
                "name": row.name, "bytes": row.length, "kind": row.sort.0, "level": row.sort.1,
                "life": row.sort.2, "extents": row.extents.iter().map(extent).collect::<Vec<_>>(),
            })
        })
        .collect();
    let lane = |row: &tools::LaneRow| {
        json!({
            "lane": row.lane, "life": format!("{:016x}", row.life), "epoch": row.epoch, "number": row.number,
            "sealed": row.sealed,
        })
    };
    output.line(json!({
        "device": format!("{id:032x}"), "label": superblock.label, "metadata_generation": generation,
        "block_bytes": superblock.block_bytes, "zone_bytes": superblock.zone_bytes,
        "metadata_zones": superblock.metadata_zones, "finish_percent": superblock.finish_percent,
        "formatted_ms": superblock.formatted_ms,
        "zones": core.zone_rows()?.iter().map(zone_json).collect::<Vec<_>>(),
        "objects": objects, "lanes": core.lane_rows().iter().map(lane).collect::<Vec<_>>(),
    }))
}

fn say_copied(done: tools::BackedUp, verb: &str, output: &Output) -> Result<()> {
    output.result(
        || json!({ "objects": done.objects, "lanes": done.lanes, "bytes": done.bytes }),
        || {
            format!(
                "{verb}: {}, {} of log, {}",
                text::counted(done.objects, "object"),
                text::counted(done.lanes, "lane"),
                text::bytes(done.bytes)
            )
        },
    )
}

fn backup(env: &Env, arguments: &Copy, output: &Output) -> Result<()> {
    let tool = tool(env, &arguments.device)?;
    let to = registry().open_object_store(env, &Uri::parse(&arguments.to)?)?;
    say_copied(env.block_on(tools::backup(env, &tool, &*to))?, "backed up", output)
}

fn restore(env: &Env, arguments: &Restore, output: &Output) -> Result<()> {
    let from = registry().open_object_store(env, &Uri::parse(&arguments.from)?)?;
    let tool = tool(env, &arguments.device)?;
    let options = arguments.format.options();
    say_copied(env.block_on(tools::restore(env, &*from, &tool, &options))?, "restored", output)
}

fn fsck(env: &Env, arguments: &Fsck, output: &Output) -> Result<()> {
    let core = tool(env, &arguments.device)?.look()?;
    let findings = tools::check(&core, arguments.scrub)?;
    for finding in &findings {
        output.result(
            || {
                json!({
                    "damage": finding.is_damage, "zone": finding.zone, "names": finding.names,
                    "what": finding.what,
                })
            },
            || {
                let kind = if finding.is_damage { "damage" } else { "note" };
                format!("{kind}: {} {}", finding.what, finding.names.join(" "))
            },
        )?;
    }
    let damaged = findings.iter().filter(|finding| finding.is_damage).count();
    if damaged > 0 {
        return Err(Failure::Check(format!(
            "{} of a zoned device damaged",
            text::counted(damaged as u64, "part")
        )));
    }
    output.result(|| json!({ "sound": true, "scrubbed": arguments.scrub }), || "sound".to_owned())
}

fn top(env: &Env, arguments: &Top, output: &Output) -> Result<()> {
    let tool = tool(env, &arguments.device)?;
    let flag = interrupt::listen()?;
    let mut looks = 0;
    while arguments.looks == 0 || looks < arguments.looks {
        if looks > 0 {
            std::thread::sleep(Duration::from_secs(arguments.seconds));
        }
        if flag.load(Ordering::SeqCst) {
            return Err(Failure::Interrupted);
        }
        let core = tool.look()?;
        let (rows, space) = (core.zone_rows()?, core.space());
        output.result(
            || json!({ "zones": rows.iter().map(zone_json).collect::<Vec<_>>() }),
            || {
                format!(
                    "{}\nneeded {}, dead {}, free {}\n",
                    tools::map(&rows),
                    text::bytes(space.live_bytes),
                    text::bytes(space.dead_bytes),
                    text::bytes(space.free_bytes)
                )
            },
        )?;
        output.finish()?;
        looks += 1;
    }
    Ok(())
}

fn report(env: &Env, arguments: &Report, output: &Output) -> Result<()> {
    let core = tool(env, &arguments.device)?.look()?;
    let (superblock, id, _) = core.identity();
    let title = format!("{} {id:032x}: zones by what they hold", superblock.label);
    let svg = tools::svg(&core.zone_rows()?, title.trim());
    std::fs::write(&arguments.out, &svg)
        .map_err(|error| Failure::io(error, format!("writing {}", arguments.out.display())))?;
    output.result(
        || json!({ "file": arguments.out.display().to_string(), "bytes": svg.len() }),
        || format!("written: {}", arguments.out.display()),
    )
}
