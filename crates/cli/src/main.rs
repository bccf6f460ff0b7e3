//! The `tombolo` command: the main job shown on real input, databases at the prompt, and what their
//! bytes say.
//!
//! Every command reaches every store through the registry of URI schemes, and names none.

#![deny(clippy::print_stdout, clippy::print_stderr, reason = "they panic on a closed pipe: see `output`")]

mod as_of;
mod backup;
mod bench;
mod compactor;
mod cost;
mod crash;
mod database;
mod db;
mod demo;
mod doctor;
mod events;
mod explain;
mod failure;
mod fight;
mod gc;
mod inspect;
mod interrupt;
mod log;
mod machine;
mod manual;
mod metrics;
mod migrate;
mod mirror;
mod note;
mod output;
mod place;
mod process;
mod progress;
mod sample;
mod scratch;
mod serve;
mod soak;
mod standby;
mod text;
mod top;
mod workload;
mod zoned;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Arg, ArgAction, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output::Output;

const EXIT_CODES: &str = "\
Exit codes:
  0  all is well
  1  a check failed: the demo lost a write, verify found damage, doctor something bad, or a benchmark an error
  2  wrong usage, a wrong URI or option, or something that this version or store cannot do
  3  what was named does not exist (a key without a value included)
  4  fenced: another process has taken the database over
  5  corrupt: bytes in storage are not what was written
  6  no permission, a read-only disk, or a full one
  7  passing trouble or an unknown outcome: try again
  8  a bug of Tombolo: report it
  9  another process has the database open: let it do it, or say --take-over
 10  the condition of a write does not hold: nothing was written
130  interrupted by Ctrl-C";

const JSON_HELP: &str = "Print one JSON document on standard output (a line per entry for scans), and \
    errors as JSON on standard error";

const VERBOSE_HELP: &str =
    "Say on standard error what happens in the background: -v events, -vv details, -vvv all";

const TOUR: &str = "\
Begin with:
  tombolo demo                                   the whole claim, on a part of /usr, in half a minute
  tombolo db put file:///tmp/orders 1 'two books'
  tombolo db scan file:///tmp/orders
  tombolo explain file:///tmp/orders             what a write survives there
  tombolo inspect file:///tmp/orders             what the bytes say
  tombolo doctor file:///tmp/orders              what this machine and store offer, and what is set badly
  tombolo bench                                  how fast it is here

Every command takes:
  a database as a path, /data/orders or ./orders, or as a URI: file:///data/orders, s3://bucket/orders; parameters follow a ? of a URI
  --json, before or after its name, for machines; errors then are JSON too, on standard error
  -v for what happens in the background, on standard error; -vv for more
  --set name=value for a setting of the database: docs/settings.md lists them all
Ctrl-C ends every command where it is safe; a second one ends it at once, which loses nothing that was acknowledged.";

/// An embedded key-value engine whose data lives on shared storage: a process that dies, or is
/// paused, is replaced by another with nothing acknowledged lost.
#[derive(Parser)]
#[command(
    name = "tombolo", version, max_term_width = 110, after_help = TOUR,
    after_long_help = format!("{TOUR}\n\n{EXIT_CODES}")
)]
struct Arguments {
    /// See `JSON_HELP`.
    #[arg(long, help = JSON_HELP)]
    json: bool,
    /// See `VERBOSE_HELP`.
    #[arg(short, long, action = ArgAction::Count, help = VERBOSE_HELP)]
    verbose: u8,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Indexes a real directory tree while its writers are paused, woken and killed; checks every
    /// acknowledged write.
    Demo(demo::Arguments),
    /// Creates, writes, reads, scans and verifies databases.
    #[command(subcommand)]
    Db(db::Command),
    /// Makes, verifies, restores and deletes backups in another store.
    #[command(subcommand)]
    Backup(backup::Command),
    /// Keeps a second database that follows a first one, and may take its place.
    Mirror(mirror::Arguments),
    /// Waits beside a writer, and takes the database over once that is gone.
    Standby(standby::Arguments),
    /// Runs a node that lends memory to near-compute logs, or asks one what it does.
    #[command(subcommand)]
    Serve(serve::Command),
    /// Asks a worker that compacts for others.
    #[command(subcommand)]
    Compactor(compactor::Command),
    /// Says what serves nobody any more in all databases under one root, and deletes it when asked.
    Gc(gc::Arguments),
    /// Says which nodes hold a near-compute log.
    #[command(subcommand)]
    Log(log::Command),
    /// Formats, shows, checks and copies zoned devices, on which databases lie without garbage
    /// collection.
    #[command(subcommand)]
    Zoned(zoned::Command),
    /// Carries databases of RocksDB over, and back, by RocksDB's own library.
    #[command(subcommand)]
    Migrate(Box<migrate::Command>),
    /// Measures a database with db_bench's benchmarks.
    Bench(Box<bench::Arguments>),
    /// Sees a trace of what was asked of a database, models it, makes it anew, replays it.
    #[command(subcommand)]
    Workload(Box<workload::Command>),
    /// Says what accepted and durable writes survive on a store, and on its log.
    Explain(explain::Arguments),
    /// Says what the bytes of a database are, with offsets, on damaged files too.
    Inspect(inspect::Arguments),
    /// Says what this machine and a store offer, and which settings are bad; exit code 1 when
    /// something is bad.
    Doctor(doctor::Arguments),
    /// Shows what a database does, live: rates, memory, levels, stalls, requests and their price.
    Top(top::Arguments),
    /// Gives what a database says of itself to Prometheus: once, or over HTTP.
    Metrics(metrics::Arguments),
    /// Prints what a shell needs to complete this command.
    Completions(Completions),
    /// Writes the pages of the manual into a directory: what packages install.
    #[command(hide = true)]
    Manual(manual::Arguments),
    /// A writer of the demo, started by it.
    #[command(hide = true)]
    DemoWriter(demo::writer::Arguments),
    /// Kills a real writer in a loop and checks what it acknowledged: `cargo xtask crash`.
    #[command(hide = true)]
    Crash(crash::Arguments),
    /// A writer of `crash`, started by it.
    #[command(hide = true)]
    CrashWriter(crash::writer::Arguments),
    /// Judges what writers of `crash` left when the power was cut: `cargo xtask zoned`.
    #[command(hide = true)]
    CrashJudge(crash::judge::Arguments),
    /// Runs a database under load and faults for as long as asked: `cargo xtask soak`.
    #[command(hide = true)]
    Soak(soak::Arguments),
    /// A worker of `soak`, started by it.
    #[command(hide = true)]
    SoakWorker(crash::writer::Arguments),
    /// Lets two writers fight for a database, and checks what they acknowledged:
    /// `cargo xtask fight`.
    #[command(hide = true)]
    Fight(fight::Arguments),
    /// A writer of `fight`, started by it.
    #[command(hide = true)]
    FightWriter(fight::writer::Arguments),
    /// A standby of `fight`, started by it.
    #[command(hide = true)]
    FightStandby(fight::writer::Arguments),
    /// A reader of `fight`, started by it.
    #[command(hide = true)]
    FightReader(fight::writer::Arguments),
}

/// The whole command line. `--json` and `-v` may stand before or after a command's name; a command
/// that has one of its own, such as `bench --json FILE`, keeps it, which is why they are no global
/// arguments of clap's.
fn command() -> clap::Command {
    fn add(command: clap::Command) -> clap::Command {
        // A negative number is a value: refused with its option's name, or a key.
        let command = command.mut_subcommands(add).allow_negative_numbers(true);
        let verbose = Arg::new("verbose").short('v').long("verbose").action(ArgAction::Count);
        let command = command.arg(verbose.help(VERBOSE_HELP));
        if command.get_arguments().any(|argument| argument.get_id() == "json") {
            return command;
        }
        command.arg(Arg::new("json").long("json").action(ArgAction::SetTrue).help(JSON_HELP))
    }
    Arguments::command().mut_subcommands(add)
}

/// Whether a command line that is refused asks for JSON: its words are all that there is of it.
fn words_want_json(root: &clap::Command, words: &[OsString]) -> bool {
    let mut command = root;
    for word in words.iter().take_while(|word| *word != "--") {
        let is_flag = || {
            let json = command.get_arguments().find(|argument| argument.get_id() == "json");
            json.is_some_and(|json| matches!(json.get_action(), ArgAction::SetTrue))
        };
        if word == "--json" && is_flag() {
            return true;
        }
        command = word.to_str().and_then(|word| command.find_subcommand(word)).unwrap_or(command);
    }
    false
}

/// How often `-v` stands before and after a command's name.
fn verbosity(matches: &ArgMatches) -> u8 {
    let here = matches.try_get_one::<u8>("verbose").ok().flatten().copied().unwrap_or(0);
    here.saturating_add(matches.subcommand().map_or(0, |(_, matches)| verbosity(matches)))
}

/// Whether `--json` stands before or after a command's name.
fn wants_json(matches: &ArgMatches) -> bool {
    let here = matches.try_get_one::<bool>("json").ok().flatten().is_some_and(|json| *json);
    here || matches.subcommand().is_some_and(|(_, matches)| wants_json(matches))
}

/// Arguments of `completions`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  source <(tombolo completions bash)
  tombolo completions zsh > ~/.zfunc/_tombolo          with ~/.zfunc in fpath
  tombolo completions fish > ~/.config/fish/completions/tombolo.fish")]
struct Completions {
    /// The shell.
    shell: Shell,
}

fn completions(arguments: &Completions, output: &Output) -> failure::Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command(), "tombolo", &mut text);
    output.bytes(&text)
}

/// The command, and whether it prints JSON; or how the process ends without one.
fn parse() -> std::result::Result<(Command, bool), ExitCode> {
    let mut root = command();
    root.build();
    let words: Vec<OsString> = std::env::args_os().collect();
    let parsed = root.try_get_matches_from_mut(&words).and_then(|matches| {
        let arguments = Arguments::from_arg_matches(&matches)?;
        Ok((arguments.command, wants_json(&matches), verbosity(&matches)))
    });
    match parsed {
        Ok((command, json, verbosity)) => {
            let serves =
                matches!(command, Command::Serve(serve::Command::Node(_) | serve::Command::Compactor(_)));
            events::show(verbosity.max(u8::from(serves)));
            Ok((command, json))
        }
        // Help and the version: printed as ever, and no failure where nobody reads them.
        Err(error) if !error.use_stderr() => {
            let _ = error.print();
            Err(ExitCode::SUCCESS)
        }
        Err(error) => {
            let failure = Failure::CommandLine(error);
            failure.print(words_want_json(&root, words.get(1..).unwrap_or_default()));
            Err(ExitCode::from(failure.exit_code()))
        }
    }
}

fn main() -> ExitCode {
    let (command, json) = match parse() {
        Ok(parsed) => parsed,
        Err(code) => return code,
    };
    let output = Output::new(json);
    let result = match command {
        Command::Bench(arguments) => bench::run(&arguments, json, &output),
        Command::Demo(arguments) => demo::run(&arguments, &output),
        Command::Serve(command) => serve::run(&command, &output),
        Command::Compactor(command) => compactor::run(&command, &output),
        Command::Log(command) => log::run(&command, &output),
        Command::Zoned(command) => zoned::run(&command, &output),
        Command::Mirror(arguments) => mirror::run(&arguments, &output),
        Command::Standby(arguments) => standby::run(&arguments, &output),
        Command::Migrate(command) => migrate::run(&command, &output),
        Command::Gc(arguments) => gc::run(&arguments, &output),
        Command::Backup(command) => backup::run(&command, &output),
        Command::Db(command) => db::run(&command, &output),
        Command::Workload(command) => workload::run(&command, &output),
        Command::Explain(arguments) => explain::run(&arguments, &output),
        Command::Inspect(arguments) => inspect::run(&arguments, &output),
        Command::Doctor(arguments) => doctor::run(&arguments, &output),
        Command::Completions(arguments) => completions(&arguments, &output),
        Command::Top(arguments) => top::run(&arguments, &output),
        Command::Metrics(arguments) => metrics::run(&arguments, &output),
        Command::Manual(arguments) => manual::run(&arguments, crate::command(), &output),
        Command::DemoWriter(arguments) => demo::writer::run(&arguments),
        Command::Crash(arguments) => crash::run(&arguments, &output),
        Command::CrashWriter(arguments) => crash::writer::run(&arguments),
        Command::CrashJudge(arguments) => crash::judge::run(&arguments, &output),
        Command::Soak(arguments) => soak::run(&arguments, &output),
        Command::SoakWorker(arguments) => soak::worker::run(&arguments),
        Command::Fight(arguments) => fight::run(&arguments, &output),
        Command::FightWriter(arguments) => fight::writer::run(&arguments, fight::writer::Entry::Open),
        Command::FightStandby(arguments) => fight::writer::run(&arguments, fight::writer::Entry::StandBy),
        Command::FightReader(arguments) => fight::reader::run(&arguments),
    };
    let result = result.and_then(|()| output.finish());
    match result {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of the output has seen enough: `tombolo db scan … | head` is no failure.
        Err(failure) if failure.is_broken_pipe() => ExitCode::SUCCESS,
        Err(failure) => {
            failure.print(json);
            ExitCode::from(failure.exit_code())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    #[test]
    fn the_command_line_is_consistent() {
        super::command().debug_assert();
    }

    #[test]
    fn refused_command_lines_are_json_where_json_is_asked_for() {
        for (line, wanted) in [
            ("--json db get", true),
            ("db get --json", true),
            ("db --json get x y z", true),
            ("frobnicate --json", true),
            ("db get --frobnicate", false),
            ("db get -- --json", false),
            ("bench --json file --frobnicate", false),
            ("--json bench --json file --frobnicate", true),
        ] {
            let words: Vec<_> = line.split(' ').map(Into::into).collect();
            assert_eq!(super::words_want_json(&super::command(), &words), wanted, "{line}");
        }
    }

    /// The words of a line of a shell, up to a pipe, a redirection or what stands behind two
    /// spaces.
    fn words(line: &str) -> Vec<String> {
        let (mut words, mut quoted, mut fresh) = (Vec::<String>::new(), false, true);
        let line = line.split("  ").next().unwrap_or_default();
        for character in line.chars() {
            match character {
                '\'' => quoted = !quoted,
                ' ' if !quoted => fresh = true,
                '|' | '<' | '>' | ';' | ')' | '…' | '#' if !quoted => break,
                _ => {
                    if std::mem::take(&mut fresh) {
                        words.push(String::new());
                    }
                    words.last_mut().expect("one was begun").push(character);
                }
            }
        }
        words
    }

    fn assert_parses(line: &str, whence: &str) {
        // A help text's URI|PATH may end in an ellipsis, which is cut off: the command then lacks
        // what it stands for.
        let parsed = super::command().try_get_matches_from(words(line));
        if let Err(error) = parsed.and_then(|matches| {
            clap::FromArgMatches::from_arg_matches(&matches).map(|_: super::Arguments| ())
        }) {
            let kind = error.kind();
            let is_help =
                matches!(kind, clap::error::ErrorKind::DisplayHelp | clap::error::ErrorKind::DisplayVersion);
            assert!(is_help, "{whence}: {line}\n{error}");
        }
    }

    #[test]
    fn every_example_in_the_documents_is_a_command() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let pages = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
        let pages = pages.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
        let mut found = 0;
        for path in pages.chain([root.join("README.md")]) {
            let text = std::fs::read_to_string(&path).unwrap().replace("\\\n", " ");
            let mut in_code = false;
            for line in text.lines() {
                in_code ^= line.starts_with("```");
                let line = line.strip_prefix("$ ").unwrap_or(line);
                let line = &line.split_whitespace().collect::<Vec<_>>().join(" ");
                if in_code && line.starts_with("tombolo ") && !line.starts_with("tombolo =") {
                    assert_parses(line, &path.display().to_string());
                    found += 1;
                }
            }
        }
        assert!(found > 60, "{found} examples: does the test read the right lines?");
    }

    #[test]
    fn every_example_in_the_help_is_a_command() {
        fn check(command: &clap::Command, found: &mut usize) {
            let help = command
                .get_after_long_help()
                .or(command.get_after_help())
                .map(ToString::to_string)
                .unwrap_or_default();
            for line in help
                .lines()
                .filter_map(|line| line.strip_prefix("  "))
                .filter(|line| line.starts_with("tombolo "))
            {
                assert_parses(line, command.get_name());
                *found += 1;
            }
            command.get_subcommands().for_each(|command| check(command, found));
        }
        let mut found = 0;
        check(&super::command(), &mut found);
        assert!(found > 30, "{found}");
    }

    #[test]
    fn the_page_of_settings_has_every_setting() {
        let page = include_str!("../../../docs/settings.md");
        for setting in tombolo::Options::SETTINGS.iter().chain(tombolo::KeyspaceOptions::SETTINGS) {
            assert!(
                page.contains(&format!("| `{}` |", setting.name)),
                "docs/settings.md has no row for the setting {}",
                setting.name
            );
        }
    }

    #[test]
    fn the_page_of_commands_has_every_exit_code() {
        let page = include_str!("../../../docs/commands.md");
        for code in super::EXIT_CODES.lines().filter_map(|line| line.split_whitespace().next()) {
            assert!(
                code == "Exit" || page.contains(&format!("| {code} |")),
                "docs/commands.md does not say what the exit code {code} means"
            );
        }
    }

    #[test]
    fn the_page_of_commands_has_every_command() {
        let page = include_str!("../../../docs/commands.md");
        let command = super::command();
        let databases = command.find_subcommand("db").expect("a command for databases");
        for command in command.get_subcommands().chain(databases.get_subcommands()) {
            let name = command.get_name();
            let is_named = page.contains(&format!("`{name}`")) || page.contains(&format!("`tombolo {name}`"));
            assert!(
                command.is_hide_set() || name == "help" || is_named,
                "docs/commands.md does not name the command {name}"
            );
        }
    }

    /// The commands that can be run, hidden ones included.
    fn leaves(command: &clap::Command, path: &str, found: &mut BTreeSet<String>) {
        let is_group = command.is_subcommand_required_set() || command.is_arg_required_else_help_set();
        if !path.is_empty() && !is_group {
            found.insert(path.to_owned());
        }
        for command in command.get_subcommands().filter(|command| command.get_name() != "help") {
            leaves(command, format!("{path} {}", command.get_name()).trim(), found);
        }
    }

    #[test]
    fn every_command_has_a_row_beside_a_writer() {
        let command = super::command();
        let (mut all, mut with_row) = (BTreeSet::new(), BTreeSet::new());
        leaves(&command, "", &mut all);
        let rows = include_str!("../tests/it/beside_a_writer.txt").lines();
        for row in rows.filter(|row| !row.is_empty() && !row.starts_with('#')) {
            let (mut command, mut path) = (&command, String::new());
            for word in row.split_whitespace().skip(1) {
                let Some(next) = command.find_subcommand(word) else { break };
                command = next;
                path = format!("{path} {word}").trim().to_owned();
            }
            assert!(all.contains(&path), "a row of no command: {row}");
            with_row.insert(path);
        }
        let without: Vec<_> = all.difference(&with_row).collect();
        assert!(without.is_empty(), "tests/it/beside_a_writer.txt has no row for {without:?}");
    }
}
