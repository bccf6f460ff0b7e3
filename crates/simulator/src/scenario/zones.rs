//! A database on a zoned device: its process ends, or the power is lost, at each operation of the
//! device in turn. The device must be sound afterwards, too.

use tombolo_env::Env;
use tombolo_env::simulated::Crash;
use tombolo_storage::Uri;
use tombolo_zoned::tools::{self, Tool};

use super::crash::{Plan, Points, drawn, scripted};
use super::crash_of;
use crate::client::{Form, Setup};
use crate::failure::{Failure, Report, Violation};

/// Each seed takes every so manieth operation.
const STRIDE: u64 = 32;
/// Seeds that end the scripted history and a drawn one at every operation, in both ways.
pub(super) const SEEDS: u64 = 4 * STRIDE;

/// Runs a seed.
pub(super) fn run(seed: u64) -> Result<Report, Failure> {
    let offset = seed / 4 % STRIDE;
    let plan = Plan {
        scenario: "zones",
        seed,
        setup: Setup::small(Form::Zoned),
        points: if seed % 4 < 2 { Points::Operations } else { Points::Mutations },
        crash: if seed % 4 < 2 { crash_of(seed) } else { Crash::PowerLoss },
        parts: if seed % 4 < 2 { scripted() } else { drawn(seed) },
        stride: STRIDE,
        offset,
    };
    plan.run()
}

/// Compares the device's metadata with the device, and every byte with its hash.
pub(super) fn check(env: &Env) -> Result<(), Violation> {
    let found = Uri::parse(Setup::ZONES)
        .and_then(|uri| Tool::open(env, &uri))
        .and_then(|tool| tool.look())
        .and_then(|core| tools::check(&core, true))
        .map_err(|error| Violation::new(format!("looking at the device: {error}")))?;
    match found.iter().find(|found| found.is_damage) {
        Some(damage) => Err(Violation::new(format!("the device is not sound: {damage:?}"))),
        None => Ok(()),
    }
}
