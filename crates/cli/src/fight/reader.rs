//! A reader of a fight: follows whichever process writes, and tells what it sees.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rand::Rng;
use tombolo::ReaderOptions;

use super::script;
use super::writer::{Arguments, check_kind, report};
use crate::database;
use crate::failure::{Failure, Result};
use crate::process::Message;
use crate::process::child::{Pipe, die_with_parent, finish_requested};

/// Looks of one reader before another one is opened in its place.
const LOOKS_MAX: u32 = 40;

/// Runs until killed, or until standard input ends.
pub fn run(arguments: &Arguments) -> Result<()> {
    die_with_parent(arguments.parent).map_err(|error| Failure::io(error, "starting a reader"))?;
    let (pipe, finish) = (Pipe::default(), finish_requested());
    let mut random = tombolo_workload::random(arguments.seed, arguments.process);
    let mut number = arguments.process << 32;
    while !finish.load(Ordering::Relaxed) {
        number += 1;
        if let Err(failure) =
            follow(arguments, &pipe, &finish, number, random.random_range(1..=LOOKS_MAX)).or_else(check_kind)
        {
            report(
                &pipe,
                Message::Ended { exit_code: failure.exit_code(), text: format!("a reader: {failure}") },
            )?;
            return Err(failure);
        }
    }
    Ok(())
}

fn follow(arguments: &Arguments, pipe: &Pipe, finish: &AtomicBool, number: u64, looks: u32) -> Result<()> {
    let options = ReaderOptions {
        lag: Duration::from_millis(300),
        lag_max: Duration::MAX,
        lease: Duration::from_secs(10),
    };
    let reader = database::builder(&arguments.store, &arguments.how)?.open_reader(options).wait()?;
    report(pipe, Message::Opened { epoch: number, open_nanos: 0, replayed_bytes: 0 })?;
    for _ in 0..looks {
        if finish.load(Ordering::Relaxed) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
        // A look at tables that a store in trouble does not give is made again.
        match script::look(reader.db(), &reader.snapshot()) {
            Ok(sights) => {
                for (thread, sight) in (0..).zip(&sights) {
                    report(
                        pipe,
                        Message::Seen {
                            thread,
                            epoch: sight.place.epoch,
                            sequence: sight.place.number,
                            digest: sight.digest,
                        },
                    )?;
                }
            }
            Err(failure) => check_kind(failure)?,
        }
        if let Some(error) = reader.error() {
            check_kind(error.into())?;
        }
    }
    Ok(reader.close().wait()?)
}
