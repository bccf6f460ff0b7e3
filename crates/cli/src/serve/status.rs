//! `tombolo serve status`: what a node says of itself.

use std::time::Duration;

use clap::Args;
use serde_json::{Value, json};
use tombolo_env::{Completion, Env};
use tombolo_segment::message::{Holding, NodeMedium, NodeStatus};
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
        "drain_seconds_left": status.drain_millis_left.map(|millis| millis.div_ceil(1000)),
        "databases": status.databases,
        "holdings": status.holdings.iter().map(holding_json).collect::<Vec<_>>(),
        "domain": status.domain,
    })
}

pub fn as_text(status: &NodeStatus) -> String {
    let (taken, max) = (text::bytes(status.bytes_taken), text::bytes(status.bytes_max));
    let domain = if status.domain.is_empty() { "none named".to_owned() } else { status.domain.clone() };
    let draining = if status.is_draining { format!("\n{}", waits_for(status)) } else { String::new() };
    format!(
        "life {}: {taken} of {max} taken, by {}; acknowledges from {}; failure domain: {domain}{draining}",
        status.incarnation,
        text::counted(status.regions, "region"),
        medium(status.medium)
    )
}

fn holding_json(held: &Holding) -> Value {
    json!({ "database": format!("{:016x}", held.database), "regions": held.regions, "bytes": held.bytes })
}

/// What a node that drains waits for, for how long at most, and what ends it.
pub fn waits_for(status: &NodeStatus) -> String {
    if status.regions == 0 {
        return "draining: no region is left, the node ends".to_owned();
    }
    let mut text = format!(
        "draining: the node makes no new regions, and waits until {} of {} are freed",
        text::counted(status.regions, "region"),
        text::counted(u64::from(status.databases), "database")
    );
    if let Some(millis) = status.drain_millis_left {
        text.push_str(&format!(", for {} s more at most", millis.div_ceil(1000)));
    }
    for held in &status.holdings {
        let Holding { database, regions, bytes } = held;
        let regions = text::counted(*regions, "region");
        text.push_str(&format!("\n  database {database:016x}: {regions}, {}", text::bytes(*bytes)));
    }
    let more = u64::from(status.databases).saturating_sub(status.holdings.len() as u64);
    if more > 0 {
        text.push_str(&format!("\n  and {} that take less", text::counted(more, "database")));
    }
    text.push_str(
        "\nA writer at work moves its regions to other nodes within seconds, if there are enough, or to its \
        store. Regions of a database that nobody has open are freed once it is opened and closed. What is \
        not freed by then is lost with the node, unless the node has a disk.",
    );
    text
}

#[cfg(test)]
mod tests {
    use tombolo_segment::message::NodeIncarnation;

    use super::*;

    #[test]
    fn a_node_that_drains_says_what_it_waits_for_and_how_long() {
        let mut status = NodeStatus {
            incarnation: NodeIncarnation(1),
            bytes_max: 1 << 30,
            bytes_taken: 24 << 20,
            regions: 5,
            names: 5,
            medium: NodeMedium::Memory,
            is_draining: false,
            domain: String::new(),
            drain_millis_left: None,
            databases: 3,
            holdings: vec![
                Holding { database: 0xabc, regions: 2, bytes: 16 << 20 },
                Holding { database: 7, regions: 2, bytes: 4 << 20 },
            ],
        };
        assert!(!as_text(&status).contains("draining"));
        (status.is_draining, status.drain_millis_left) = (true, Some(41_200));
        let text = as_text(&status);
        for part in
            ["5 regions of 3 databases", "42 s more", "0000000000000abc: 2 regions", "and 1 database that"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = as_json(&status);
        assert_eq!((json["drain_seconds_left"].as_u64(), json["databases"].as_u64()), (Some(42), Some(3)));
        assert_eq!(json["holdings"][1]["database"], "0000000000000007");
        status.regions = 0;
        assert!(waits_for(&status).contains("no region is left"));
    }
}
