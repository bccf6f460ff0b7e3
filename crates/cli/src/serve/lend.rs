//! `tombolo serve lend`: tells a node that runs how much memory to lend at most.

use clap::Args;
use serde_json::json;
use tombolo_segment::message::NodeStatus;

use super::{Showing, status};
use crate::failure::Result;
use crate::output::Output;
use crate::text::{self, size};

/// Arguments of `serve lend`.
#[derive(Args)]
#[command(after_help = "\
Examples:
  tombolo serve lend 10.0.0.7:7420 2GiB --secret-file secret      no more than that from here on
  tombolo serve lend 10.0.0.7:7420 0 --secret-file secret         nothing: the node is emptied, and runs on
  tombolo serve lend 10.0.0.7:7420 8GiB --secret-file secret      all again that it was started with

From the answer on the node makes no region beyond SIZE. What its regions take beyond that it asks their writers for, the largest regions first: they
make others on nodes that have room, or else write those segments to the database's store, and no write fails by it. The memory is free once they did;
`tombolo serve status ADDRESS` shows how far that is. Regions of a database that nobody has open stay until somebody opens it.

The node remembers SIZE until it ends; one that is started again lends what its --memory says. While its host is short of memory it lends less by itself:
the smaller of the two counts.

A SIZE beyond the node's --memory is refused, and changes nothing (exit code 2); so is any SIZE by a node of an older version.")]
pub struct Arguments {
    /// Where the node listens, host:port.
    #[arg(value_name = "ADDRESS")]
    address: String,
    /// The most that it lends from here on: 512MiB, 8GiB, a number of bytes, or 0.
    #[arg(value_name = "SIZE", value_parser = size)]
    size: u64,
    #[command(flatten)]
    showing: Showing,
}

/// Runs it.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let told = arguments.size;
    let status = status::ask(&arguments.address, &arguments.showing, |peer| peer.lend(told))?;
    output.result(
        || {
            json!({
                "told": told, "bytes_wanted_back": wanted_back(&status), "node": status::as_json(&status)
            })
        },
        || as_text(told, &status),
    )
}

/// Bytes that regions take beyond those that are lent.
fn wanted_back(status: &NodeStatus) -> u64 {
    status.bytes_taken.saturating_sub(status.bytes_max)
}

fn as_text(told: u64, status: &NodeStatus) -> String {
    let lends = text::bytes(status.bytes_max);
    let short = if status.bytes_max < told { ", for its host is short of memory" } else { "" };
    let regions = text::counted(status.regions, "region");
    let rest = match wanted_back(status) {
        0 => format!("it holds {} in {regions}", text::bytes(status.bytes_taken)),
        more => format!(
            "{} of {} in {regions} are asked back from their writers",
            text::bytes(more),
            text::bytes(status.bytes_taken)
        ),
    };
    format!("the node lends {lends} at most{short}; {rest}")
}

#[cfg(test)]
mod tests {
    use tombolo_segment::message::{NodeIncarnation, NodeMedium};

    use super::*;

    #[test]
    fn what_is_not_as_it_was_told_is_said() {
        let status = NodeStatus {
            incarnation: NodeIncarnation(1),
            bytes_max: 1 << 30,
            bytes_taken: 1 << 20,
            regions: 1,
            names: 1,
            medium: NodeMedium::Memory,
            is_draining: false,
            domain: String::new(),
            drain_millis_left: None,
            databases: 1,
            holdings: Vec::new(),
        };
        let text = as_text(1 << 30, &status);
        assert!(!text.contains("short") && text.contains("in 1 region"), "{text}");
        assert!(as_text(2 << 30, &status).contains("short of memory"));
        let full = NodeStatus { bytes_taken: 3 << 30, ..status };
        assert!(as_text(1 << 30, &full).contains("asked back") && wanted_back(&full) == 2 << 30);
    }
}
