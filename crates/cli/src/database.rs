//! How commands name a database, and open it.

use std::io::{self, Write};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use tombolo::{Answered, Ask, Builder, Db, Env, OpenMode, Options, Presence, Registry, TakeOver, Writer};

use crate::failure::Result;
use crate::interrupt;

/// A database: a store, a log, settings.
#[derive(Args, Clone, Debug)]
pub struct DatabaseArguments {
    /// The store that holds the database, as a URI: file:///data/orders.
    #[arg(value_name = "URI")]
    pub store: String,
    #[command(flatten)]
    pub how: HowArguments,
}

/// How to open it.
#[derive(Args, Clone, Debug, Default)]
pub struct HowArguments {
    /// The log store, as a URI; the store's own log when not given. A database is always opened
    /// with the log it was created with.
    #[arg(long, value_name = "URI")]
    pub log: Option<String>,
    /// A setting of the database, as name=value; may be given several times. A wrong name lists
    /// them all.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
}

/// A database that a command changes.
#[derive(Args, Clone, Debug)]
pub struct WriterArguments {
    #[command(flatten)]
    pub database: DatabaseArguments,
    #[command(flatten)]
    pub take_over: TakeOverArguments,
}

impl WriterArguments {
    /// Opens the database: see [`DatabaseArguments::open`].
    pub fn open(&self, mode: OpenMode) -> Result<Db> {
        self.database.open(mode, &self.take_over)
    }
}

/// Who does what a command is for.
pub enum Done {
    /// The process that has the database open has done it.
    ByWriter(Answered),
    /// Nobody has it open, or it is to be taken over: it is done here.
    Here(Box<Db>),
}

impl WriterArguments {
    /// Lets the process do it that has the database open, and says so; where there is none, or with
    /// `--take-over`, the database is opened here.
    pub fn ask_or_open(&self, ask: Ask, interrupted: &AtomicBool) -> Result<Done> {
        let builder = self.database.builder()?.mode(OpenMode::Open);
        let here = |take_over: TakeOver| {
            let opening = builder.clone().take_over(take_over).open();
            Ok(Done::Here(Box::new(interrupt::wait(opening, interrupted, || ())?)))
        };
        if self.take_over.take_over {
            return here(TakeOver::Always);
        }
        let mut presence = builder.clone().presence(Duration::ZERO).wait()?;
        if let Presence::Unknown(writer) = &presence {
            say_that_it_waits(writer);
            presence = interrupt::wait(builder.clone().presence(Presence::WAIT_MAX), interrupted, || ())?;
        }
        match presence {
            Presence::Alive(writer, _) => {
                say(&format!("asking {writer} to do it; it looks for questions once a minute"));
                Ok(Done::ByWriter(interrupt::wait(builder.ask(ask), interrupted, || ())?))
            }
            Presence::Dead(writer) => here(TakeOver::FromEpoch(writer.epoch)),
            Presence::Nobody | Presence::Closed(_) | Presence::Unknown(_) => here(TakeOver::Never),
        }
    }
}

fn say(text: &str) {
    // Nobody to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "tombolo: {text}");
}

/// Says for whom, and for how long, it is waited.
pub fn say_that_it_waits(writer: &Writer) {
    let seconds = Presence::WAIT_MAX.as_secs();
    say(&format!("asking {writer} for a sign of life, for up to {seconds} s"));
}

/// Whether a command may take a database from a writer that lives.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct TakeOverArguments {
    /// Takes the database from the process that has it open, which is then fenced.
    #[arg(long)]
    take_over: bool,
    /// Ends with exit code 9 if somebody has it open: the default, said aloud.
    #[arg(long, conflicts_with = "take_over")]
    no_take_over: bool,
}

impl TakeOverArguments {
    /// As the library says it.
    pub fn mode(self) -> TakeOver {
        if self.take_over { TakeOver::Always } else { TakeOver::Never }
    }
}

/// How a command that only reads may open.
#[derive(Args, Clone, Debug, Default)]
pub struct ReadArguments {
    /// Reads beside a live writer instead of taking the database over: shows what is in tables, not
    /// what is only in memory and the log.
    #[arg(long)]
    pub read_only: bool,
    /// Reads this checkpoint; no writer is disturbed.
    #[arg(long, value_name = "NAME")]
    pub checkpoint: Option<String>,
}

impl DatabaseArguments {
    /// The database, to do something with it that takes no handle.
    pub fn builder(&self) -> Result<Builder> {
        builder(&self.store, &self.how)
    }

    /// Opens the database for a command that only reads.
    pub fn open_to_read(&self, read: &ReadArguments) -> Result<Db> {
        match &read.checkpoint {
            Some(name) => Ok(self.builder()?.at_checkpoint(name).open_read_only().wait()?),
            None if read.read_only => Ok(self.builder()?.open_read_only().wait()?),
            None => open(&self.store, &self.how, OpenMode::Open),
        }
    }

    /// Opens the database to change it. Somebody who has it open is disturbed only with
    /// `--take-over`; when it takes time to learn whether somebody lives, that is told first.
    pub fn open(&self, mode: OpenMode, take_over: &TakeOverArguments) -> Result<Db> {
        Ok(self.to_change(take_over)?.mode(mode).open().wait()?)
    }

    /// As [`DatabaseArguments::open`], to do something with it that takes no handle.
    pub fn to_change(&self, take_over: &TakeOverArguments) -> Result<Builder> {
        let builder = self.builder()?.take_over(take_over.mode());
        if !take_over.take_over
            && let Presence::Unknown(writer) = builder.clone().presence(Duration::ZERO).wait()?
        {
            say_that_it_waits(&writer);
        }
        Ok(builder)
    }
}

/// How long the writer may take that is asked for what it knows, before what is durable is shown.
const TOLD_TIME_MAX: Duration = Duration::from_secs(5);

impl DatabaseArguments {
    /// What the process says that has the database open on this host, and says that it is that one's
    /// answer; `None` when nobody has, or it does not answer soon.
    pub fn told_by_writer(&self, ask: Ask) -> Result<Option<Answered>> {
        let builder = self.builder()?;
        let Presence::Alive(writer, _) = builder.clone().presence(Duration::ZERO).wait()? else {
            return Ok(None);
        };
        match builder.deadline(TOLD_TIME_MAX).ask(ask).wait() {
            Ok(answered) => {
                say(&format!("as {writer} says"));
                Ok(Some(answered))
            }
            // Who may only read may not ask.
            Err(error) => {
                say(&format!(
                    "{writer} was not asked, or does not answer ({}): this is what is durable",
                    error.message()
                ));
                Ok(None)
            }
        }
    }
}

/// All stores that commands know: those of the library, and the near-compute log.
pub fn registry() -> Registry {
    let mut registry = Registry::with_defaults();
    tombolo_near_compute_log::register(&mut registry, crate::serve::Showing::default().credentials());
    registry
}

/// Opens the database at `store`.
pub fn open(store: &str, how: &HowArguments, mode: OpenMode) -> Result<Db> {
    Ok(builder(store, how)?.mode(mode).open().wait()?)
}

/// The database at `store`, to do something with it.
pub fn builder(store: &str, how: &HowArguments) -> Result<Builder> {
    let options = Options::parse(how.settings.iter().map(String::as_str))?;
    let builder = Db::builder(store).env(Env::real()).registry(registry()).options(options);
    Ok(match &how.log {
        Some(log) => builder.log(log),
        None => builder,
    })
}
