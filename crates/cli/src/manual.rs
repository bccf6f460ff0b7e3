//! `tombolo manual`: pages of the manual, made from the command line's own description.

use std::path::PathBuf;

use clap::Args;

use crate::failure::{Failure, Result};
use crate::output::Output;

/// Arguments of `manual`.
#[derive(Args)]
pub struct Arguments {
    /// The directory, which is made.
    directory: PathBuf,
}

/// Without the command `help` of each, which says no more than the pages.
fn without_help(command: clap::Command) -> clap::Command {
    command.mut_subcommands(without_help).disable_help_subcommand(true)
}

/// Writes a page for the command, and for each of its commands that are shown.
pub fn run(arguments: &Arguments, command: clap::Command, output: &Output) -> Result<()> {
    let failed = |error| Failure::io(error, format!("writing {}", arguments.directory.display()));
    std::fs::create_dir_all(&arguments.directory).map_err(failed)?;
    let mut command = without_help(command);
    command.build();
    clap_mangen::generate_to(command, &arguments.directory).map_err(failed)?;
    let pages = std::fs::read_dir(&arguments.directory).map_err(failed)?.count();
    output.result(|| serde_json::json!({ "pages": pages }), || format!("{pages} pages"))
}
