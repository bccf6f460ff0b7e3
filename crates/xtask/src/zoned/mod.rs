//! Zoned devices for real: a guest under QEMU with two zoned NVMe namespaces of other limits.
//!
//! `boot → conformance, commands, demo with kills → cut the power → (boot → judge what the last writer acknowledged → check the device → a writer → cut the power) × cuts → judge`.
//! QEMU keeps the states of zones in memory, and a reset by its monitor keeps QEMU: so the power is
//! cut by one. Writes that reached the device survive that: lost caches are the emulated device's
//! to try (`cargo test -p tombolo-zoned`).

mod measure;

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};

use crate::guest::image::{Contents, Image};
use crate::guest::machine::{self, Machine};
use crate::guest::{Kept, build};

/// Options of `zoned`.
#[derive(Args)]
pub struct Arguments {
    /// Boots nothing: counts what the engine does to flash, on zones and on a file system over a
    /// translation layer, and RocksDB beside it, in virtual time.
    #[arg(long)]
    measure: bool,
    /// Install nothing and download nothing; a missing part is named, and all is skipped.
    #[arg(long)]
    cached: bool,
    /// How many times the power is cut while a writer works; 50 take about half an hour.
    #[arg(long, default_value_t = 10)]
    cuts: u32,
    /// Puts of the benchmark, on a device of 192 MiB.
    #[arg(long, default_value_t = 20_000)]
    puts: u32,
    /// About how long the demo writes, in seconds of an emulated machine.
    #[arg(long, default_value_t = 10)]
    seconds: u32,
    /// Seed of the writes and of the moments of the cuts.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How long the guest may take, in minutes.
    #[arg(long, default_value_t = 60)]
    minutes: u64,
}

const MIB: u64 = 1 << 20;

/// A namespace, and what it is made with.
struct Namespace {
    name: &'static str,
    bytes: u64,
    options: &'static str,
}

/// Zones of which a part can be written, and few that may be open; smaller ones, all of them to be
/// written.
const NAMESPACES: &[Namespace] = &[
    Namespace {
        name: "large",
        bytes: 512 * MIB,
        options: "zoned.zone_size=8M,zoned.zone_capacity=6M,zoned.max_open=8,zoned.max_active=12",
    },
    Namespace {
        name: "small",
        bytes: 192 * MIB,
        options: "zoned.zone_size=2M,zoned.zone_capacity=2M,zoned.max_open=6,zoned.max_active=6",
    },
];

/// Most bytes of a message of a writer.
const MESSAGE_BYTES_MAX: usize = 1 << 20;
/// Threads of a writer of the crash test.
const THREADS: usize = 2;

/// What a thread of the writer said: the number of its last batch that was announced, and of the
/// last that was acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Heard {
    announced: u64,
    acknowledged: u64,
}

/// What the writer said, so far.
#[derive(Debug, Default)]
struct Ears {
    bytes: Vec<u8>,
    heard: [Heard; THREADS],
    is_open: bool,
    failed: Option<String>,
}

impl Ears {
    /// Takes bytes of a writer: messages as `crates/cli/src/process` describes them. One cut off by
    /// the power is no message.
    fn take(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        while let Some((head, rest)) = self.bytes.split_first_chunk::<4>() {
            let length = u32::from_le_bytes(*head) as usize;
            if length > MESSAGE_BYTES_MAX {
                self.failed = Some(format!("its words are garbled: a message of {length} bytes"));
                self.bytes.clear();
                return;
            }
            let Some(message) = rest.get(..length) else { return };
            let number = |at: usize| {
                message.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
            };
            let thread = usize::try_from(number(1) >> 56).unwrap_or(usize::MAX);
            let sequence = number(1) & ((1 << 56) - 1);
            match (message.first(), self.heard.get_mut(thread)) {
                (Some(1), _) => self.is_open = true,
                (Some(2), Some(heard)) => heard.announced = sequence,
                (Some(3), Some(heard)) => heard.acknowledged = sequence,
                (Some(5), _) => {
                    self.failed =
                        Some(String::from_utf8_lossy(message.get(2..).unwrap_or_default()).into_owned());
                }
                _ => {}
            }
            self.bytes.drain(..4 + length);
        }
    }
}

/// The wires to a guest.
struct Wires {
    machine: Machine,
    channel: UnixStream,
    monitor: UnixStream,
    ears: Arc<Mutex<Ears>>,
}

impl Wires {
    fn start(image: &Image, cache: &Path, time_max: Duration) -> Result<Wires, String> {
        let socket = |name: &str| cache.join(format!("zoned-{name}"));
        let mut options = vec!["-device".to_owned(), "nvme,id=nvme0,serial=zones".to_owned()];
        for (at, Namespace { name, bytes, options: limits }) in NAMESPACES.iter().enumerate() {
            let file = cache.join(format!("zoned-{name}.img"));
            let made = File::create(&file).and_then(|made| made.set_len(*bytes));
            made.map_err(|error| format!("making {}: {error}", file.display()))?;
            options.extend([
                "-drive".to_owned(),
                format!("file={},if=none,id={name},format=raw", file.display()),
                "-device".to_owned(),
                format!(
                    "nvme-ns,drive={name},bus=nvme0,nsid={},logical_block_size=4096,\
                    physical_block_size=4096,zoned=true,{limits}",
                    at + 1
                ),
            ]);
        }
        for (option, name) in [("-serial", "channel"), ("-monitor", "monitor")] {
            let socket = socket(name);
            let _earlier = std::fs::remove_file(&socket);
            options.extend([option.to_owned(), format!("unix:{},server=on,wait=off", socket.display())]);
        }
        let machine = Machine::start(image, &options, time_max)?;
        let (channel, monitor) =
            (machine::connect(&socket("channel"))?, machine::connect(&socket("monitor"))?);
        let ears: Arc<Mutex<Ears>> = Arc::default();
        let listening = Arc::clone(&ears);
        let mut said = channel.try_clone().map_err(|error| format!("the guest's channel: {error}"))?;
        // Ends with the guest.
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = said.read(&mut buffer) {
                listening.lock().unwrap_or_else(PoisonError::into_inner).take(&buffer[..length]);
            }
        });
        // What the monitor says is for nobody, and must not fill its socket.
        let mut unread = monitor.try_clone().map_err(|error| format!("the guest's monitor: {error}"))?;
        std::thread::spawn(move || std::io::copy(&mut unread, &mut std::io::sink()));
        Ok(Wires { machine, channel, monitor, ears })
    }

    fn ears(&self) -> std::sync::MutexGuard<'_, Ears> {
        self.ears.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.channel, "{line}").map_err(|error| format!("telling the guest {line:?}: {error}"))
    }

    fn cut_the_power(&mut self) -> Result<(), String> {
        writeln!(self.monitor, "system_reset").map_err(|error| format!("the monitor: {error}"))
    }

    /// Lets the guest judge what the last writer wrote, and gives each thread's last batch.
    fn judge(&mut self, cut: u32) -> Result<[u64; THREADS], String> {
        self.machine.until("== booted")?;
        let heard = {
            let mut ears = self.ears();
            *ears = Ears { heard: ears.heard, ..Ears::default() };
            ears.heard
        };
        let numbers = heard.map(|heard| format!("--heard {},{}", heard.announced, heard.acknowledged));
        self.say(&format!("write {}", numbers.join(" ")))?;
        let judged = self.machine.until("== judged ")?;
        let verdict = judged.strip_prefix("(0): ").and_then(|json| {
            let json: serde_json::Value = serde_json::from_str(json).ok()?;
            let last = json["last"].as_array()?.iter().map(serde_json::Value::as_u64);
            last.collect::<Option<Vec<u64>>>()?.try_into().ok()
        });
        let last: [u64; THREADS] =
            verdict.ok_or_else(|| format!("after {cut} cuts, {heard:?} was heard: {judged}"))?;
        let looked = self.machine.until("== looked: ")?;
        if looked != "0 failed" {
            return Err(format!("after {cut} cuts the device is not sound"));
        }
        Ok(last)
    }
}

/// Runs it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    if arguments.measure {
        return measure::run(root);
    }
    let kept = match Kept::prepare(arguments.cached, &[]) {
        Ok(kept) => kept,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    let tests = build(
        root,
        &["test", "--package", "tombolo-zoned", "--features", "mutants", "--test", "it", "--no-run"],
        "it",
    )?;
    let command = build(
        root,
        &["build", "--profile", "test", "--package", "tombolo-cli", "--bin", "tombolo"],
        "tombolo",
    )?;
    let script = include_str!("init.sh")
        .replace("PUTS", &arguments.puts.to_string())
        .replace("SEED", &arguments.seed.to_string())
        .replace("SECONDS", &arguments.seconds.to_string());
    let programs = [(&*tests, "zoned-tests"), (&*command, "tombolo")];
    let contents =
        Contents { name: "zoned", script: &script, modules: &["nvme"], files: &[], programs: &programs };
    let image = Image::make(&kept, &contents)?;
    let mut wires = Wires::start(&image, &kept.cache, Duration::from_secs(60 * arguments.minutes))?;
    wires.machine.until("== booted")?;
    wires.say("tests")?;
    wires.machine.verdict()?;
    let mut random = SmallRng::seed_from_u64(arguments.seed);
    let (mut acknowledged, mut survived) = (0, 0);
    for cut in 0..arguments.cuts {
        wires.cut_the_power()?;
        let last = wires.judge(cut)?;
        let heard = std::mem::replace(
            &mut wires.ears().heard,
            last.map(|last| Heard { announced: last, acknowledged: last }),
        );
        acknowledged = heard.iter().map(|heard| heard.acknowledged).sum();
        survived = last.iter().sum();
        wires.say(&format!("--last {} --last {}", last[0], last[1]))?;
        let open = std::time::Instant::now();
        while !wires.ears().is_open {
            if let Some(why) = wires.ears().failed.take() {
                return Err(format!("after {cut} cuts the writer does not open: {why}"));
            }
            if open.elapsed() > Duration::from_secs(300) {
                return Err(format!("after {cut} cuts the writer did not open in five minutes"));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(random.random_range(0..6000)));
        if let Some(why) = wires.ears().failed.take() {
            return Err(format!("after {cut} cuts the writer failed before the power was cut: {why}"));
        }
    }
    wires.cut_the_power()?;
    let last = wires.judge(arguments.cuts)?;
    acknowledged = acknowledged.max(wires.ears().heard.iter().map(|heard| heard.acknowledged).sum());
    survived = survived.max(last.iter().sum());
    println!(
        "zoned passed: conformance, demo, and {} power cuts: {acknowledged} batches acknowledged, {survived} \
        there, 0 durable ones lost, 0 half",
        arguments.cuts
    );
    if arguments.cuts > 0 && acknowledged == 0 {
        return Err("no batch was acknowledged before a cut, so nothing was tested".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u8, sequence: u64) -> Vec<u8> {
        let mut bytes = 17_u32.to_le_bytes().to_vec();
        bytes.push(kind);
        bytes.extend(sequence.to_le_bytes());
        bytes.extend([0; 8]);
        bytes
    }

    #[test]
    fn what_a_writer_says_is_heard_in_pieces_and_up_to_the_cut() {
        let mut ears = Ears::default();
        let mut said = message(1, 9);
        said.extend(message(2, 1 << 56 | 4));
        said.extend(message(2, 7));
        said.extend(message(3, 6));
        said.extend(&message(3, 7)[..20]);
        for piece in said.chunks(5) {
            ears.take(piece);
        }
        assert!(ears.is_open);
        let first = Heard { announced: 7, acknowledged: 6 };
        assert_eq!(ears.heard, [first, Heard { announced: 4, acknowledged: 0 }]);
    }
}
