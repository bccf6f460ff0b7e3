//! `tombolo compactor`: what a worker that compacts says of itself.

use clap::{Args, Subcommand};
use tombolo_env::Env;

use crate::failure::Result;
use crate::output::Output;
use crate::serve::Showing;
use crate::serve::compactor::{as_json, as_text};

/// What to ask.
#[derive(Subcommand)]
pub enum Command {
    /// Asks a worker what it has and how much it has to do.
    Status(Arguments),
}

/// Arguments of `compactor status`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo compactor status 127.0.0.1:7430
  tombolo compactor status 10.0.0.9:7430 --secret-file secret --json")]
pub struct Arguments {
    /// Where the worker listens, host:port.
    #[arg(value_name = "ADDRESS")]
    address: String,
    #[command(flatten)]
    showing: Showing,
}

/// Runs it.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    let Command::Status(Arguments { address, showing }) = command;
    let env = Env::real();
    let credentials = showing.credentials()?;
    let status = env.block_on(tombolo_compactor::status(&env, address, credentials.as_ref()))?;
    output.result(
        || as_json(&status),
        || format!("{}\nit has: {}", as_text(&status), status.abilities.join(", ")),
    )
}
