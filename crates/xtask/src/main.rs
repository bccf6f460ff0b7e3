//! Habits of the project. `cargo xtask check` is all of CI; `cargo xtask` alone lists everything.

mod book;
mod built;
mod campaign;
mod charts;
mod check;
mod compiler;
mod guest;
mod habits;
mod instructions;
mod java;
mod log;
mod miri;
mod near;
mod nodes;
mod package;
mod peers;
mod preload;
mod programs;
mod puts;
mod python;
mod rdma;
mod real;
mod rocksdb;
mod some_tests;
mod source;
mod tune;
mod zoned;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

/// The project's habits: everything that is run again and again, by hand and by CI.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    max_term_width = 110,
    after_help = "\
Before every commit:        cargo xtask check
While working:              cargo xtask check --changed
One step of it again:       cargo xtask check --only lints
Some tests of it again:     cargo xtask test -p storage -- object_log
What takes longer:          cargo xtask campaign --list
Kill a real process 200x:   cargo xtask crash --rounds 200 --form mapped
A failing seed again:       cargo xtask simulate --scenario random --seed 17 --runs 1"
)]
struct Arguments {
    #[command(subcommand)]
    habit: Option<Habit>,
}

#[derive(Subcommand)]
enum Habit {
    /// All of CI: format, graphs, lints, links, tests, mutants, clippy, docs, doc tests.
    ///
    /// Runs every step even when one fails, then names the failed ones. Exit code 0 only when all
    /// passed. With `--changed` only what a change touches, and what depends on it.
    Check(check::Arguments),
    /// Some tests again, from the build of `check`: `cargo xtask test -p storage -- object_log`.
    Test(some_tests::Arguments),
    /// Tests too long for `check`, by name: deeper, longer, or on real servers; `nightly` is all.
    Campaign(campaign::Arguments),
    /// Kills a real writer process with SIGKILL at random moments and checks the database after
    /// each kill.
    ///
    /// The child reports every acknowledged write over a pipe. After each kill the database is
    /// opened again: whatever was acknowledged must be there, in order, and every batch whole or
    /// absent. A failing run prints the seed and keeps the database.
    Crash(habits::Crash),
    /// Runs a database under load, faults and kills for as long as asked, within its memory; an
    /// hour when not told.
    ///
    /// Stores fail, dawdle, answer short and are full for a while; the process is killed again and
    /// again. Every answer is checked. Prints progress, the peak of resident memory and of what the
    /// engine charged to its budget. A failing run prints the seed.
    Soak(habits::Soak),
    /// Lets two writers fight for one database under a checker that knows every acknowledgement:
    /// paused, killed, with a reader, clones and gc beside.
    ///
    /// On a store of files, or on one that is named; where its URI has an `endpoint=http://…`,
    /// connections are cut, frozen and refused too. `cargo xtask real --stage fight` does it on
    /// real servers.
    Fight(habits::Fight),
    /// Fuzzes the decoders under libFuzzer (needs a C++ compiler); `check` runs the same targets on
    /// random and mutated inputs.
    Fuzz(habits::Fuzz),
    /// Searches the models of the manifest chain and of deletion deeper than CI does.
    ///
    /// Prints the size of each scenario and the history by which each mutant is caught.
    Model(habits::Model),
    /// Instructions of the hot paths, counted by callgrind: cached and missing gets, puts,
    /// multi-get, seek, next, block decode.
    ///
    /// Counts do not depend on what else the machine does. Needs valgrind; says so and does nothing
    /// where it is missing.
    Instructions(instructions::Arguments),
    /// Unit tests of the modules with `unsafe`, and of those without locks, under miri.
    ///
    /// Needs miri and the sources of the standard library for the nightly toolchain; says so and
    /// does nothing where they are missing.
    Miri(miri::Arguments),
    /// Tombolo and its peers (RocksDB, fjall, SlateDB, redb, LMDB) on the same work in one run,
    /// with the result drawn.
    ///
    /// Rounds are interleaved, each engine in a process of its own. Prints rates, ratios and
    /// whether each row reaches its bar; `--json` keeps the records, `--html` draws them.
    Peers(Box<peers::Arguments>),
    /// The near-compute log beside accepted writes, a log of objects and a local file: latency,
    /// YCSB, lost nodes, takeover.
    ///
    /// Starts three nodes on this host for each measurement. Prints medians, what each survives and
    /// whether the bars are reached; `--json` keeps the records, `--html` draws them with the
    /// paper's curves.
    Near(Box<near::Arguments>),
    /// How far the defaults are from the best settings, by a random search at equal memory and
    /// compression; an hour on a quiet machine.
    ///
    /// The best of the search is confirmed in rounds of its own, interleaved with the defaults.
    /// Exit code 1 when the whole 95 % interval of the confirmed ratio lies beyond the bound.
    Tune(tune::Arguments),
    /// Conformance, bad input, demo, kills and fights on real servers of S3 and Azure storage,
    /// which it builds once and starts on free ports.
    ///
    /// Binaries are kept in ~/.cache/tombolo-real. What cannot be built or started here is said and
    /// skipped; the exit code tells whether what ran passed.
    Real(real::Arguments),
    /// Writers whose cards write to the memory of nodes (RDMA), in a guest under QEMU whose kernel
    /// has a card in software.
    ///
    /// Installs missing packages with apt-get where it may, and keeps Debian's kernel in
    /// ~/.cache/tombolo-guest; where one of them is not to be had it says so and does nothing.
    /// Shows what the guest says; its figures are those of an emulated processor.
    Rdma(rdma::Arguments),
    /// Zoned devices for real: conformance, demo and power cuts in a guest under QEMU with zoned
    /// NVMe namespaces.
    ///
    /// Installs and keeps what `rdma` does, and skips itself for the same reasons. The power is
    /// cut at random moments while a writer works: what it acknowledged as durable must be there
    /// when the guest is up again, in order, and every batch whole or absent. Its figures are those
    /// of an emulated processor.
    Zoned(zoned::Arguments),
    /// SQLite, Redis and RocksDB as their packages are, under the preload library: killed in a
    /// loop, checked by themselves, measured.
    ///
    /// On three nodes that it starts on this host, unless another log is named. Installs missing
    /// packages with apt-get where it may; those that cannot be had are named and skipped. A
    /// program that lost something that it had synced, or whose own check fails, ends it with an
    /// error.
    Preload(preload::Arguments),
    /// Stock RocksDB with its files in a database: the plugin is built, then db_bench, ldb and
    /// sst_dump of Debian run on it, with kills and a fight for its lock.
    ///
    /// Installs missing packages with apt-get where it may; where one of them is not to be had it
    /// says so and does nothing. Ends with an error when something that was synced is lost.
    Rocksdb(rocksdb::Arguments),
    /// Accepted and durable puts per second with both forms of the local log, in interleaved
    /// rounds.
    Puts(puts::Puts),
    /// Builds what a distribution installs, as a tree below `target/package`, and a Debian package.
    ///
    /// The command with its pages and completions, units of systemd, libraries and headers for C.
    Package(package::Arguments),
    /// Builds the package for Python as a wheel, and runs its tests.
    ///
    /// Needs python3 with venv; maturin and pytest come from PyPI. With `--bindings` tests of a
    /// binding to RocksDB run on `libtombolo_rocksdb.so`, unchanged.
    Python(python::Arguments),
    /// Tombolo for Java, and its stores for Kafka Streams: builds the library for C, then runs
    /// Maven's tests.
    ///
    /// Needs a JDK of 22 or later and Maven, which fetches Kafka and its tests. Says which tools
    /// are missing and how to get them.
    Java(java::Arguments),
    /// Draws the charts and tables of docs/benchmarks.md from their figures, and takes the figures
    /// of a run over.
    Charts(charts::Arguments),
    /// Builds the pages below docs/ into a book and checks its links; installs mdbook in
    /// ~/.cache/tombolo-tools when it is not there.
    Book(book::Arguments),
    /// The demo in release, as the README shows it.
    Demo(habits::Demo),
    /// One history of operations under every option set gives one result, that of an ordered map.
    Metamorphic(habits::Metamorphic),
    /// The whole engine in a simulated world, by seed: crashes, two writers, bit rot, mutants.
    ///
    /// A failing seed prints the command that replays it. `--help` of the simulator lists scenarios
    /// and options.
    #[command(disable_help_flag = true)]
    Simulate(habits::Simulate),
}

fn main() -> ExitCode {
    if let Some(code) = compiler::in_place_of_compiler().or_else(check::in_place_of_rustdoc) {
        return code;
    }
    let Some(habit) = Arguments::parse().habit else {
        // Printing help to a closed pipe is no failure worth a message.
        let _ = Arguments::command().print_long_help();
        return ExitCode::SUCCESS;
    };
    let root = root();
    let result = match habit {
        Habit::Check(arguments) => check::run(&root, &arguments),
        Habit::Test(arguments) => some_tests::run(&root, &arguments),
        Habit::Campaign(arguments) => campaign::run(&root, &arguments),
        Habit::Crash(arguments) => habits::crash(&root, &arguments),
        Habit::Soak(arguments) => habits::soak(&root, &arguments),
        Habit::Fight(arguments) => habits::fight(&root, &arguments),
        Habit::Fuzz(arguments) => habits::fuzz(&root, &arguments),
        Habit::Model(arguments) => habits::model(&root, &arguments),
        Habit::Instructions(arguments) => instructions::run(&root, &arguments),
        Habit::Miri(arguments) => miri::run(&root, &arguments),
        Habit::Peers(arguments) => peers::run(&root, &arguments),
        Habit::Near(arguments) => near::run(&root, &arguments),
        Habit::Tune(arguments) => tune::run(&root, &arguments),
        Habit::Real(arguments) => real::run(&root, &arguments),
        Habit::Rdma(arguments) => rdma::run(&root, &arguments),
        Habit::Zoned(arguments) => zoned::run(&root, &arguments),
        Habit::Preload(arguments) => preload::run(&root, &arguments),
        Habit::Rocksdb(arguments) => rocksdb::run(&root, &arguments),
        Habit::Puts(arguments) => puts::run(&root, &arguments),
        Habit::Package(arguments) => package::run(&root, &arguments),
        Habit::Python(arguments) => python::run(&root, &arguments),
        Habit::Java(arguments) => java::run(&root, &arguments),
        Habit::Charts(arguments) => charts::run(&root, &arguments),
        Habit::Book(arguments) => book::run(&root, &arguments),
        Habit::Demo(arguments) => habits::demo(&root, &arguments),
        Habit::Metamorphic(arguments) => habits::metamorphic(&root, &arguments),
        Habit::Simulate(arguments) => habits::simulate(&root, &arguments),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("xtask: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The workspace's root: two folders above this crate. Cargo says which checkout it runs; a program
/// started without it checks the one it was built in.
fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")), PathBuf::from);
    manifest.ancestors().nth(2).map_or(manifest.clone(), PathBuf::from)
}
