//! How commands name a database, and open it.

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::Args;
use tombolo::{
    Answered, Ask, Builder, Db, Env, ErrorKind, OpenMode, Options, Presence, Registry, TakeOver, Writer,
};

use crate::as_of::AsOf;
use crate::failure::{Failure, Result};
use crate::interrupt;
use crate::note::note;
use crate::output::Output;
use crate::place::check_new;

/// A database: a store, a log, settings.
#[derive(Args, Clone, Debug)]
pub struct DatabaseArguments {
    /// The store that holds the database: a path, or a URI such as file:///data/orders.
    #[arg(value_name = "URI", value_parser = crate::place::place)]
    pub store: String,
    #[command(flatten)]
    pub how: HowArguments,
}

/// How to open it.
#[derive(Args, Clone, Debug, Default)]
pub struct HowArguments {
    /// The log store, as a URI; the store's own log when not given. A database is always opened
    /// with the log it was created with.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    pub log: Option<String>,
    /// A setting of the database, as name=value; may be given several times. A wrong name lists
    /// them all.
    #[arg(long = "set", value_name = "NAME=VALUE")]
    pub settings: Vec<String>,
    /// A second store, as a URI, for what has gone cold (`cold_after` of a keyspace). The database
    /// keeps it: say it once, or where the store has moved.
    #[arg(long, value_name = "URI", value_parser = crate::place::place)]
    pub cold_store: Option<String>,
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
        match presence(&builder, interrupted)? {
            Presence::Alive(writer, _) => {
                say(&format!("asking {writer} to do it; it looks for questions once a minute"));
                Ok(Done::ByWriter(interrupt::wait(builder.ask(ask), interrupted, || ())?))
            }
            Presence::Dead(writer) => here(TakeOver::FromEpoch(writer.epoch)),
            Presence::Nobody | Presence::Closed(_) | Presence::Unknown(_) => here(TakeOver::Never),
        }
    }
}

/// Who has the database open; if that is not known at once it is waited for, and said.
pub fn presence(builder: &Builder, interrupted: &AtomicBool) -> Result<Presence> {
    let at_once = builder.clone().presence(Duration::ZERO).wait()?;
    let Presence::Unknown(writer) = &at_once else { return Ok(at_once) };
    say_that_it_waits(writer);
    interrupt::wait(builder.clone().presence(Presence::WAIT_MAX), interrupted, || ())
}

fn say(text: &str) {
    note(format_args!("tombolo: {text}"));
}

/// Says for whom, and for how long, it is waited.
fn say_that_it_waits(writer: &Writer) {
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
    /// Refuses a database that somebody has open, unless it may be taken.
    pub fn check(self, database: &DatabaseArguments, interrupted: &AtomicBool) -> Result<()> {
        if self.take_over {
            return Ok(());
        }
        Ok(presence(&database.builder()?, interrupted)?.check_free()?)
    }

    /// As the library says it.
    pub fn mode(self) -> TakeOver {
        if self.take_over { TakeOver::Always } else { TakeOver::Never }
    }
}

/// Where a command may make a database.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct NewArguments {
    /// Makes a database also in a directory with other files in it, and in the root of this host.
    #[arg(long)]
    among_others: bool,
}

/// What a command that only looks shows.
#[derive(Args, Clone, Debug, Default)]
pub struct LookArguments {
    /// Shows this checkpoint instead of everything that is durable now.
    #[arg(long, value_name = "NAME")]
    pub checkpoint: Option<String>,
    /// Shows tables only, not entries that only the log holds: for a log that is lost or out of
    /// reach.
    #[arg(long, conflicts_with = "checkpoint")]
    pub tables_only: bool,
}

impl LookArguments {
    /// Whether everything that is durable now is to be shown.
    pub fn is_of_now(&self) -> bool {
        self.checkpoint.is_none() && !self.tables_only
    }
}

/// How often a look begins anew when the writer deletes what it looks at, or is faster than it.
const LOOKS_MAX: u32 = 5;

impl DatabaseArguments {
    /// The database, to do something with it that takes no handle.
    pub fn builder(&self) -> Result<Builder> {
        builder(&self.store, &self.how)
    }

    /// Looks at the database, and closes it however that ends. No writer is disturbed, and no right
    /// to write is needed. As long as nothing is printed, a look that lost what it looked at begins
    /// anew by itself.
    pub fn look<T>(
        &self,
        look: &LookArguments,
        output: &Output,
        mut show: impl FnMut(&Db) -> Result<T>,
    ) -> Result<T> {
        if look.tables_only {
            output.note("tables only: what only the log holds is not shown");
        }
        let mut looks = 0;
        loop {
            looks += 1;
            let shown = self.open_to_look(look).and_then(|db| {
                let shown = show(&db);
                // The pin is given back; one that stays for any reason runs out.
                let closed = db.close().wait();
                let shown = shown?;
                closed?;
                Ok(shown)
            });
            match shown {
                Err(Failure::Engine(error))
                    if matches!(error.kind(), ErrorKind::PinLost | ErrorKind::Busy)
                        && looks < LOOKS_MAX
                        && !output.has_begun() => {}
                shown => return shown,
            }
        }
    }

    /// As [`DatabaseArguments::look`]; also which moment was shown.
    pub fn look_dated<T>(
        &self,
        look: &LookArguments,
        output: &Output,
        mut show: impl FnMut(&Db) -> Result<T>,
    ) -> Result<(T, AsOf)> {
        self.look(look, output, |db| {
            let shown = show(db)?;
            Ok((shown, AsOf::of(db)))
        })
    }

    fn open_to_look(&self, look: &LookArguments) -> Result<Db> {
        let builder = match &look.checkpoint {
            Some(name) => self.builder()?.at_checkpoint(name),
            None if look.tables_only => self.builder()?.tables_only(),
            None => self.builder()?,
        };
        Ok(builder.open_read_only().wait()?)
    }

    /// Opens the database to change it, and makes it if it is not there, which is said; whether it
    /// was made.
    pub fn open_or_create(&self, take_over: &TakeOverArguments, new: &NewArguments) -> Result<(Db, bool)> {
        match self.open(OpenMode::Open, take_over) {
            Err(Failure::Engine(error)) if error.kind() == ErrorKind::NotFound => {}
            opened => return Ok((opened?, false)),
        }
        match self.create(take_over, new) {
            // Somebody else was faster, or something of it is gone: opening says which.
            Err(Failure::Engine(error)) if error.kind() == ErrorKind::AlreadyExists => {
                Ok((self.open(OpenMode::Open, take_over)?, false))
            }
            created => Ok((created?, true)),
        }
    }

    /// Makes the database, and says so.
    pub fn create(&self, take_over: &TakeOverArguments, new: &NewArguments) -> Result<Db> {
        if !new.among_others {
            check_new(&self.store)?;
        }
        let db = self.open(OpenMode::Create, take_over)?;
        say(&format!("made the database {}", self.store));
        Ok(db)
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

/// How long the writer may take that is asked for what it knows, before the durable state is shown.
const TOLD_TIME_MAX: Duration = Duration::from_secs(5);

impl DatabaseArguments {
    /// What the process says that has the database open on this host, and says that it is that
    /// one's answer; `None` when nobody has, or it does not answer soon.
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

/// All stores that commands know: those of the library, the near-compute log, and zoned devices.
pub fn registry() -> Registry {
    let mut registry = Registry::with_defaults();
    tombolo_near_compute_log::register(&mut registry, crate::serve::Showing::default().credentials());
    tombolo_zoned::register(&mut registry);
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
    let builder = match &how.log {
        Some(log) => builder.log(log),
        None => builder,
    };
    Ok(match &how.cold_store {
        Some(cold) => builder.cold_store(cold),
        None => builder,
    })
}
