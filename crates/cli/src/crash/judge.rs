//! What a database must hold after a loss of power, judged by a process of its own: the one that
//! wrote is gone, and what it said was heard elsewhere.

use clap::Args;
use serde_json::json;
use tombolo::{Durability, OpenMode};

use super::script::{self, State, THREADS};
use super::{Heard, judge, read};
use crate::database::{self, HowArguments};
use crate::failure::{Failure, Result};
use crate::output::Output;

/// Arguments of `crash-judge`.
#[derive(Args)]
pub struct Arguments {
    #[arg(long)]
    pub store: String,
    #[command(flatten)]
    pub how: HowArguments,
    #[arg(long)]
    pub seed: u64,
    /// Of each thread, the last batch that it announced and the last that was acknowledged. All
    /// writers were of round 1.
    #[arg(long, value_name = "ANNOUNCED,ACKNOWLEDGED", value_parser = heard)]
    pub heard: Vec<Heard>,
}

fn heard(text: &str) -> std::result::Result<Heard, String> {
    let parsed = text.split_once(',').and_then(|(announced, acknowledged)| {
        Some(Heard { announced: announced.parse().ok()?, acknowledged: acknowledged.parse().ok()? })
    });
    parsed.ok_or_else(|| "two numbers are expected, with a comma between them".to_owned())
}

/// Judges, verifies, and says each thread's last batch.
pub fn run(arguments: &Arguments, output: &Output) -> Result<()> {
    let db = database::open(&arguments.store, &arguments.how, OpenMode::CreateOrOpen)?;
    let mut last = Vec::new();
    for thread in 0..THREADS {
        let heard = arguments.heard.get(usize::from(thread)).copied().unwrap_or_default();
        let batch = |number| script::batch(script::KEYS, arguments.seed, 1, thread, number);
        // What was accepted only went with the power.
        let is_durable = |number: &u64| batch(*number).durability == Durability::Durable;
        let acknowledged = (1..=heard.acknowledged).rev().find(is_durable).unwrap_or(0);
        let heard = Heard { acknowledged, ..heard };
        let marker = judge(&mut State::default(), 0, &read(&db, thread)?, heard, batch)
            .map_err(|what| Failure::Check(format!("thread {thread}: {what}")))?;
        last.push(marker);
    }
    if let Some(damage) = db.verify().wait()?.damage.first() {
        return Err(Failure::Check(format!("verify found {damage}")));
    }
    output.result(|| json!({ "last": last }), || format!("last batches {last:?}: as they must be"))
}
