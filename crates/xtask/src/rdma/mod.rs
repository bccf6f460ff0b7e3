//! RDMA for real: a guest under QEMU whose kernel has a card in software (`rdma_rxe`), which no
//! kernel of these machines need have.
//!
//! `build tests and command → an initramfs → boot → conformance, the fence under load with its mutants, a log of three nodes with puts, kills and takeovers → the guest's last line`.
//! The processor is emulated and the card is software: figures of the guest say what works, and
//! nothing of what a card would take.

use std::path::Path;
use std::time::Duration;

use clap::Args;

use crate::guest::image::{Contents, Image};
use crate::guest::machine::Machine;
use crate::guest::{Kept, build};

/// Options of `rdma`.
#[derive(Args)]
pub struct Arguments {
    /// Install nothing and download nothing; a missing part is named, and all is skipped.
    #[arg(long)]
    cached: bool,
    /// Durable puts, one after another, over cards and over TCP.
    #[arg(long, default_value_t = 1000)]
    puts: u32,
    /// About how long the demo writes, in seconds of an emulated machine.
    #[arg(long, default_value_t = 15)]
    seconds: u32,
    /// How long the guest may take, in minutes.
    #[arg(long, default_value_t = 20)]
    minutes: u64,
}

/// Files that it needs beside those of every guest, and Debian's packages of them.
const NEEDED: &[(&str, &str)] = &[
    ("/usr/bin/rdma", "iproute2"),
    ("/usr/lib/x86_64-linux-gnu/libibverbs.so.1", "libibverbs1"),
    ("/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so", "ibverbs-providers"),
];
/// Modules that the guest loads.
const MODULES: &[&str] = &["rdma_rxe", "ib_uverbs", "crc32_generic", "dummy"];
/// Files of the machine that are the guest's too.
const FILES: &[&str] = &[
    "/usr/bin/rdma",
    "/etc/libibverbs.d/rxe.driver",
    "/usr/lib/x86_64-linux-gnu/libibverbs.so.1",
    "/usr/lib/x86_64-linux-gnu/libibverbs/librxe-rdmav34.so",
];

/// Runs it.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    let kept = match Kept::prepare(arguments.cached, NEEDED) {
        Ok(kept) => kept,
        Err(why) => {
            println!("skipped: {why}");
            return Ok(());
        }
    };
    let tests = build(
        root,
        &["test", "--package", "tombolo-segment", "--features", "rdma,mutants", "--lib", "--no-run"],
        "tombolo_segment",
    )?;
    let command = build(
        root,
        &["build", "--profile", "test", "--package", "tombolo-cli", "--features", "rdma", "--bin", "tombolo"],
        "tombolo",
    )?;
    let script = include_str!("init.sh")
        .replace("PUTS", &arguments.puts.to_string())
        .replace("SECONDS", &arguments.seconds.to_string());
    let programs = [(&*tests, "segment-tests"), (&*command, "tombolo")];
    let contents =
        Contents { name: "rdma", script: &script, modules: MODULES, files: FILES, programs: &programs };
    let image = Image::make(&kept, &contents)?;
    let machine =
        Machine::start(&image, &["-no-reboot".to_owned()], Duration::from_secs(60 * arguments.minutes))?;
    machine.verdict()
}
