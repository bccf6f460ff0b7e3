//! `tombolo serve`: processes that serve others.

pub mod compactor;
mod lend;
mod node;
mod pressure;
mod status;

use clap::{Args, Subcommand};
use tombolo_env::Env;
use tombolo_segment::wire::credentials::Credentials;
use tombolo_segment::wire::secret::Secret;

use crate::failure::Result;
use crate::output::Output;

/// What to serve.
#[derive(Subcommand)]
pub enum Command {
    /// Lends memory of this host to logs that are kept near their writers, until SIGTERM or Ctrl-C,
    /// which gives it back first.
    Node(Box<node::Arguments>),
    /// Runs compactions of databases that others have open, until SIGTERM or Ctrl-C.
    Compactor(Box<compactor::Arguments>),
    /// Asks a node what it is and how full.
    Status(status::Arguments),
    /// Tells a node that runs how much memory to lend at most; what its regions take beyond that it
    /// asks their writers to give back.
    Lend(lend::Arguments),
}

/// Runs it.
pub fn run(command: &Command, output: &Output) -> Result<()> {
    match command {
        Command::Node(arguments) => node::run(arguments, output),
        Command::Compactor(arguments) => compactor::run(arguments, output),
        Command::Status(arguments) => status::run(arguments, output),
        Command::Lend(arguments) => lend::run(arguments, output),
    }
}

/// The environment variable that a secret is taken from when nothing is named.
pub const SECRET_VARIABLE: &str = "TOMBOLO_NODE_SECRET";
/// The same of a directory of certificates.
pub const TLS_VARIABLE: &str = "TOMBOLO_NODE_TLS";

/// How nodes and writers show each other that they belong together.
#[derive(Args, Clone, Debug, Default)]
pub struct Showing {
    /// A file with the secret that nodes and writers share; else the environment variable
    /// TOMBOLO_NODE_SECRET.
    #[arg(long, value_name = "FILE", conflicts_with = "tls")]
    secret_file: Option<String>,
    /// A directory with ca.crt, tls.crt and tls.key (PEM), in the place of a secret; else the
    /// environment variable TOMBOLO_NODE_TLS.
    #[arg(long, value_name = "DIRECTORY")]
    tls: Option<String>,
}

impl Showing {
    /// Those that are named, or else those of the environment.
    pub fn credentials(&self) -> tombolo_storage::Result<Option<Credentials>> {
        let env = Env::real();
        if self.secret_file.is_some() || self.tls.is_some() {
            return Credentials::read(&env, self.secret_file.as_deref(), self.tls.as_deref());
        }
        if let Some(secret) = std::env::var_os(SECRET_VARIABLE) {
            return Ok(Some(Secret::new(&secret.into_encoded_bytes())?.into()));
        }
        match std::env::var(TLS_VARIABLE) {
            Ok(directory) => Credentials::read(&env, None, Some(&directory)),
            Err(_) => Ok(None),
        }
    }
}
