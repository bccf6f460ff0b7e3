//! Which moment of a database a look has shown. It is part of the result where that is a report or
//! one object of JSON. Where it is data a person is told beside it, on standard error.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tombolo::{Db, Env};

use crate::failure::Result;
use crate::note::note;
use crate::output::Output;
use crate::text;

/// Which moment of a database was shown.
#[derive(Clone, Copy, Debug)]
pub enum AsOf {
    /// Everything that was durable then: seconds since the Unix epoch, and how long ago that was.
    Moment(u64, Duration),
    /// What a store held then: seconds since the Unix epoch, and from when on its age counts.
    Since(u64, Instant),
    /// A checkpoint, which stays.
    Checkpoint,
}

impl AsOf {
    /// What a database that is looked at shows.
    pub fn of(db: &Db) -> AsOf {
        match db.age() {
            Some(age) => AsOf::Moment(Env::real().unix_time().saturating_sub(age).as_secs(), age),
            None => AsOf::Checkpoint,
        }
    }

    /// What a store holds that is read from now on.
    pub fn now() -> AsOf {
        AsOf::Since(Env::real().unix_time().as_secs(), Instant::now())
    }

    /// When it was, in seconds since the Unix epoch, and how long ago.
    fn moment(&self) -> Option<(u64, Duration)> {
        match self {
            AsOf::Moment(at, age) => Some((*at, *age)),
            AsOf::Since(at, began) => Some((*at, began.elapsed())),
            AsOf::Checkpoint => None,
        }
    }

    /// A result for programs, with the moment.
    pub fn added_to(&self, mut result: Value) -> Value {
        if let (Some((at, age)), Some(fields)) = (self.moment(), result.as_object_mut()) {
            fields.insert("as_of".to_owned(), json!(text::date(at)));
            fields.insert("age_ms".to_owned(), json!(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
        }
        result
    }

    /// Says it to a person who watches, after the data that it is of. Scripts, whose standard error
    /// is no terminal, are told nothing that they did not ask for.
    pub fn say(&self, output: &Output) -> Result<()> {
        output.finish()?;
        if output.is_watched() && !output.is_json() {
            note(format_args!("\x1b[2mtombolo: {self}\x1b[0m"));
        }
        Ok(())
    }

    /// Prints one result: programs find the moment in it, people beside it.
    pub fn result(
        &self,
        output: &Output,
        value: impl FnOnce() -> Value,
        text: impl FnOnce() -> String,
    ) -> Result<()> {
        output.result(|| self.added_to(value()), text)?;
        self.say(output)
    }
}

impl Display for AsOf {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.moment() {
            Some((at, age)) => write!(formatter, "as of {} ({} ago)", text::date(at), text::duration(age)),
            None => formatter.write_str("as of the checkpoint"),
        }
    }
}
