//! `tombolo serve`: processes that serve others.

mod node;
mod pressure;
mod status;

use clap::Subcommand;
use tombolo_segment::wire::secret::Secret;

use crate::failure::{Failure, Result};
use crate::output::Output;

/// What to serve.
#[derive(Subcommand)]
pub enum Command {
    /// Lends memory of this host to logs that are kept near their writers, until SIGTERM or Ctrl-C, which gives it back first.
    Node(node::Arguments),
    /// Asks a node what it is and how full.
    Status(status::Arguments),
}

/// Runs it.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    match command {
        Command::Node(arguments) => node::run(arguments, output),
        Command::Status(arguments) => status::run(arguments, output),
    }
}

/// Shows what happens in the background on standard error: whoever runs a process for long reads it there.
fn show_events() {
    let subscriber = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).with_target(false);
    // Another one is there in no command of ours.
    let _already = subscriber.try_init();
}

/// The environment variable that a secret is taken from when no file is named.
pub const SECRET_VARIABLE: &str = "TOMBOLO_NODE_SECRET";

/// The secret that nodes and writers share, of a file or of the environment.
pub fn secret(file: Option<&str>) -> Result<Option<Secret>> {
    let bytes = match file {
        Some(path) => std::fs::read(path).map_err(|error| Failure::io(error, format!("reading the secret file {path}")))?,
        None => match std::env::var_os(SECRET_VARIABLE) {
            Some(value) => value.into_encoded_bytes(),
            None => return Ok(None),
        },
    };
    Ok(Some(Secret::new(&bytes)?))
}
