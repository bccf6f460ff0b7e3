//! `tombolo serve status`: what a node says of itself.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tombolo_env::{Completion, Env};
use tombolo_segment::message::{NodeMedium, NodeStatus};
use tombolo_segment::peer::Peer;
use tombolo_segment::tcp::TcpPeer;

use super::Showing;
use crate::failure::{Failure, Result};
use crate::output::Output;
use crate::text;

/// Arguments of `serve status`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo serve status 127.0.0.1:7420
  tombolo serve status 10.0.0.7:7420 --secret-file secret --json")]
pub struct Arguments {
    /// Where the node listens, host:port.
    #[arg(value_name = "ADDRESS")]
    address: String,
    #[command(flatten)]
    showing: Showing,
}

/// How long it may take.
const ANSWER_MAX: Duration = Duration::from_secs(6);

/// What the node at `address` says to a question.
pub fn ask<T: Send>(
    address: &str,
    showing: &Showing,
    question: impl FnOnce(&TcpPeer) -> Completion<tombolo_storage::Result<T>>,
) -> Result<T> {
    let env = Env::real();
    let peer = TcpPeer::new(&env, address, showing.credentials()?);
    let answer = env.block_on_until(question(&peer), env.now() + ANSWER_MAX).flatten();
    Ok(answer.ok_or_else(|| Failure::NotFound(format!("node {address} does not answer")))??)
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let status = ask(&arguments.address, &arguments.showing, TcpPeer::status)?;
    output.result(|| as_json(&status), || as_text(&status))
}

/// When a node answers, in one word.
pub fn medium(medium: NodeMedium) -> &'static str {
    match medium {
        NodeMedium::Memory => "memory",
        NodeMedium::MemoryWithCopy => "memory, with a copy on disk",
        NodeMedium::Disk => "disk",
    }
}

pub fn as_json(status: &NodeStatus) -> Value {
    json!({
        "incarnation": status.incarnation.to_string(),
        "bytes_max": status.bytes_max,
        "bytes_taken": status.bytes_taken,
        "bytes_free": status.bytes_free(),
        "regions": status.regions,
        "names": status.names,
        "acknowledges_from": medium(status.medium),
        "draining": status.is_draining,
        "domain": status.domain,
    })
}

pub fn as_text(status: &NodeStatus) -> String {
    let (taken, max) = (text::bytes(status.bytes_taken), text::bytes(status.bytes_max));
    let domain = if status.domain.is_empty() { "none named".to_owned() } else { status.domain.clone() };
    let draining = if status.is_draining { "; draining: it takes no new regions" } else { "" };
    format!(
        "life {}: {} regions take {taken} of {max}; acknowledges from {}; failure domain: {domain}{draining}",
        status.incarnation,
        status.regions,
        medium(status.medium)
    )
}
