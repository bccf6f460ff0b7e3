//! `tombolo workload`: traces seen, modelled, made anew, replayed and scored.
//!
//! `trace → analyse, report → model → generate → score`. The work is `tombolo_lab`'s; files,
//! threads and clocks are here.

mod figure14;
mod files;
mod load;
mod make;
mod replay;
mod show;

use clap::Subcommand;

use crate::failure::Result;
use crate::output::Output;

/// Works on a workload.
#[derive(Subcommand)]
pub enum Command {
    /// Says what a trace is made of: operations, sizes, hot keys, reuse, what a cache would miss.
    Analyse(show::AnalyseArguments),
    /// Makes one page of HTML of a trace, with all figures; of two, side by side.
    Report(show::ReportArguments),
    /// Makes a trace of RocksDB's traces, of public cache traces, of what YCSB prints, or of lines
    /// of text.
    Import(files::ImportArguments),
    /// Makes lines of text of a trace, Parquet, or what libCacheSim reads.
    Export(files::ExportArguments),
    /// Does the events of a trace on a database: as they came, faster, or as fast as it goes.
    Replay(replay::Arguments),
    /// Fits a model to a trace: one page of TOML, without a key of anybody's.
    Model(make::ModelArguments),
    /// Prints the model of a published workload: UDB, ZippyDB and four of its applications, UP2X,
    /// YCSB A to F.
    Preset(make::PresetArguments),
    /// Makes the paper's figure 14 again: eight benchmarks and a model, by what they cost against a
    /// replay.
    Figure14(figure14::Arguments),
    /// Makes the paper's figure 15 again: a workload, its model, and how far they are apart.
    Figure15(make::FigureArguments),
    /// Makes a trace from a model, of as many events as asked.
    Generate(make::GenerateArguments),
    /// Prints the flags of db_bench's mixgraph that are nearest to a model, and what they lose.
    Flags(make::FlagsArguments),
    /// Says what caches of several policies and sizes would miss on a trace.
    SimulateCache(show::CacheArguments),
    /// Says how far two traces, or a trace and a model, are apart.
    Compare(show::CompareArguments),
    /// Replays a trace and a model's on equal databases, and compares what they cost.
    Score(replay::ScoreArguments),
}

/// Runs the command.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    match command {
        Command::Analyse(arguments) => show::analyse(arguments, output),
        Command::Report(arguments) => show::report(arguments, output),
        Command::Import(arguments) => files::import(arguments, output),
        Command::Export(arguments) => files::export(arguments, output),
        Command::Replay(arguments) => replay::run(arguments, output),
        Command::Model(arguments) => make::model(arguments, output),
        Command::Preset(arguments) => make::preset(arguments, output),
        Command::Figure14(arguments) => figure14::run(arguments, output),
        Command::Figure15(arguments) => make::figure15(arguments, output),
        Command::Generate(arguments) => make::generate(arguments, output),
        Command::Flags(arguments) => make::flags(arguments, output),
        Command::SimulateCache(arguments) => show::simulate_cache(arguments, output),
        Command::Compare(arguments) => show::compare(arguments, output),
        Command::Score(arguments) => replay::score(arguments, output),
    }
}
