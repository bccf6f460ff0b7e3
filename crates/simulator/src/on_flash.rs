//! What the engine, and a program that was traced, do to flash: a table.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tombolo_env::Env;
use tombolo_simulator::flash::{
    self, FileSystemOnFlash, Ftl, JOURNAL_PART, Outcome, PAGE_BYTES, Setting, Sizes, Timing, Wear,
};

/// Four fifths of it are used in the end: keys and values, and what a tree of tables takes besides.
const SIZES: Sizes = Sizes {
    device_bytes: 128 << 20,
    block_bytes: 1 << 20,
    keys: 160_000,
    value_bytes: 400,
    clients: 8,
    overwrites: 320_000,
    reads: 20_000,
    memtable_bytes: 512 << 10,
};

/// Runs all, and prints a line for each.
pub fn show(seed: u64, traced: Option<(&Path, &Path)>) -> ExitCode {
    let Sizes { device_bytes, block_bytes, keys, value_bytes, clients, overwrites, .. } = SIZES;
    println!(
        "{keys} keys with values of {value_bytes} B put in random order, then {overwrites} puts over them, {clients} \
        clients that wait until each is durable; {} MiB of flash, blocks and zones of {} MiB. Time is the device's.",
        device_bytes >> 20,
        block_bytes >> 20,
    );
    println!(
        "{:<34} {:>6} {:>10} {:>10} {:>9} {:>8} {:>9} {:>9} {:>9} {:>9}",
        "", "full", "given", "moved", "written x", "erased", "puts/s", "p50", "p99", "p99.9"
    );
    let settings =
        [Setting::Zones, Setting::FileSystem { discards: true }, Setting::FileSystem { discards: false }];
    let mut outcomes = Vec::new();
    for setting in settings {
        match flash::run(setting, SIZES, seed) {
            Ok(outcome) => {
                line(setting.name(), &outcome);
                outcomes.push(outcome);
            }
            Err(error) => {
                eprintln!("{}: {error}", setting.name());
                return ExitCode::FAILURE;
            }
        }
    }
    #[cfg(feature = "mutants")]
    if let Err(error) = without_classes(seed) {
        eprintln!("without classes of life: {error}");
        return ExitCode::FAILURE;
    }
    if let Some(Err(error)) = traced.map(|(traced, below)| replay(traced, below)) {
        eprintln!("{error}");
        return ExitCode::FAILURE;
    }
    let [zones, discarding, plain] = &outcomes[..] else { return ExitCode::FAILURE };
    if bars(zones, discarding, plain) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Holds the second part against what zones are to be worth; whether all that counts is met.
fn bars(zones: &Outcome, discarding: &Outcome, plain: &Outcome) -> bool {
    let [zoned, other] = [zones, plain].map(|outcome| outcome.wear[1].amplification());
    // What the store moved by itself was given to the device, and is nobody's.
    let given = (zones.wear[0].host_pages + zones.wear[1].host_pages) * PAGE_BYTES;
    let moved = zones.relocated_bytes as f64 / given as f64;
    let puts = |outcome: &Outcome| 1.0 / outcome.took[1].as_secs_f64();
    let slow = |outcome: &Outcome| outcome.latency(9_990).as_secs_f64();
    let (faster, tail) = (puts(zones) / puts(plain), slow(zones) / slow(plain));
    let bars = [
        ("written per byte given, zones", zoned + moved, "at most 1.02", zoned + moved <= 1.02),
        ("the same, a file system", other, "2 at least", other >= 2.0),
        ("puts a second, zones to a file system", faster, "1.3 at least", faster >= 1.3),
        ("p99.9 of puts, zones to a file system", tail, "at most 0.4", tail <= 0.4),
    ];
    for (what, found, wanted, is_met) in bars {
        println!("{what:<40} {found:>8.3}  {wanted:<14} {}", if is_met { "met" } else { "MISSED" });
    }
    let (faster, tail) = (puts(zones) / puts(discarding), slow(zones) / slow(discarding));
    println!(
        "To a file system that discards, which no bar is about: {faster:.2} in puts, {tail:.2} in p99.9."
    );
    bars.iter().all(|bar| bar.3)
}

/// What classes of life are good for: the same on a device that is less full, with and without.
#[cfg(feature = "mutants")]
fn without_classes(seed: u64) -> tombolo::Result<()> {
    use tombolo_storage::mutant::{Mutant, enable};
    let sizes = Sizes { keys: SIZES.keys * 5 / 8, overwrites: SIZES.overwrites * 5 / 8, ..SIZES };
    let moved = |name: &str| {
        let outcome = flash::run(Setting::Zones, sizes, seed)?;
        let moved = mib(outcome.relocated_bytes / PAGE_BYTES);
        println!("{name:<34} 5/8 of the keys: {moved} moved by the store itself");
        Ok(())
    };
    moved("engine, zones")?;
    let _out = enable(Mutant::ZonedIgnoresLife);
    moved("engine, zones, one class of life")
}

fn mib(pages: u64) -> String {
    format!("{} MiB", (pages * PAGE_BYTES) >> 20)
}

fn wear(wear: &Wear) -> String {
    let (given, moved) = (mib(wear.host_pages), mib(wear.moved_pages));
    format!("{given:>10} {moved:>10} {:>9.3} {:>8}", wear.amplification(), wear.erased)
}

fn line(name: &str, outcome: &Outcome) {
    for (part, (what, took)) in ["first", "again"].iter().zip(outcome.took).enumerate() {
        let name = format!("engine, {name}, {what}");
        print!("{name:<34} {:>5.0}% {}", outcome.used_most * 100.0, wear(&outcome.wear[part]));
        if part == 0 {
            println!(" {:>9.0}", SIZES.keys as f64 / took.as_secs_f64());
            continue;
        }
        print!(" {:>9.0}", SIZES.overwrites as f64 / took.as_secs_f64());
        for of_ten_thousand in [5_000, 9_900, 9_990] {
            print!(" {:>6} us", outcome.latency(of_ten_thousand).as_micros());
        }
        println!();
    }
    if outcome.relocated_bytes > 0 {
        println!("{:<34} {} moved by the store itself", "", mib(outcome.relocated_bytes / PAGE_BYTES));
    }
}

/// A program's file operations, on a device that they fill to four fifths.
fn replay(traced: &Path, below: &Path) -> Result<(), String> {
    let failed = |error: std::io::Error| format!("{}: {error}", traced.display());
    let env = Env::real();
    let entries = env.files().list_atomically(traced).map_err(failed)?;
    let threads: Vec<String> = entries
        .iter()
        .map(|entry| crate::read_file(&env, &traced.join(&entry.name)))
        .collect::<Result<_, _>>()
        .map_err(failed)?;
    for discards in [true, false] {
        let play = |bytes: u64| {
            let ftl = Ftl::new(Timing::default(), bytes, SIZES.block_bytes);
            let mut files = FileSystemOnFlash::new(ftl, discards);
            let calls = flash::replay(&threads, below, &mut files);
            (calls, files)
        };
        // The first time to learn how much it takes.
        let (calls, plenty) = play(64 << 30);
        if calls == 0 {
            return Err(format!("no call of {} is about a file below {}", traced.display(), below.display()));
        }
        // Four fifths, of which the journal is a part.
        let part = u64::from(JOURNAL_PART);
        let bytes = plenty.data_most_bytes() * 5 * part / (4 * part - 5);
        let (_, files) = play(bytes.next_multiple_of(SIZES.block_bytes));
        let name = format!("traced, file system{}", if discards { ", discard" } else { "" });
        let busy = Duration::as_secs_f64(&files.wear().busy);
        println!(
            "{name:<34} {:>5.0}% {} {calls} calls, {busy:.2} s of the device",
            files.used_most() * 100.0,
            wear(&files.wear())
        );
    }
    Ok(())
}
