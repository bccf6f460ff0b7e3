//! What a database says of itself, sampled for the console and for Prometheus: by the process that
//! has it open, or else as a look finds it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tombolo::{Ask, Builder, Db, Presence, Writer};

use crate::failure::{Failure, Result};

/// How long a writer may take to answer: one of another host looks for questions once a minute.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(75);
/// Folders above an open file that may be a database.
const FOLDERS_ABOVE: usize = 4;

/// A database that is looked at again and again.
pub struct Source {
    builder: Builder,
    /// What it is called.
    pub name: String,
}

/// What it said once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// Who said it; empty of a look.
    pub by: String,
    /// Values by the names of [`Db::properties`].
    pub values: BTreeMap<String, String>,
}

impl Sample {
    /// A number; 0 where it is not said. Of levels their sum.
    pub fn number(&self, name: &str) -> u64 {
        let Some(value) = self.values.get(name) else { return 0 };
        value.split(' ').filter_map(|number| number.parse::<u64>().ok()).sum()
    }

    /// A text; empty where it is not said.
    pub fn text(&self, name: &str) -> &str {
        self.values.get(name).map_or("", String::as_str)
    }

    /// A number for each level.
    pub fn levels(&self, name: &str) -> Vec<u64> {
        self.text(name).split(' ').filter_map(|number| number.parse().ok()).collect()
    }
}

impl Source {
    /// The database that a builder names.
    pub fn new(builder: Builder, name: String) -> Source {
        Source { builder, name }
    }

    /// Asks the writer, if one lives, and else looks. No writer is disturbed.
    pub fn sample(&self) -> Result<Sample> {
        if let Presence::Alive(writer, _) = self.builder.clone().presence(Duration::ZERO).wait()? {
            let asked = self.builder.clone().deadline(ANSWER_TIME_MAX).ask(Ask::Properties);
            match asked.wait() {
                Ok(told) => {
                    return Ok(Sample { by: writer.to_string(), values: told.facts.into_iter().collect() });
                }
                Err(error) if error.kind() == tombolo::ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error.into()),
            }
        }
        let db = self.builder.clone().open_read_only().wait()?;
        let sample = of(&db);
        db.close().wait()?;
        Ok(sample)
    }
}

fn of(db: &Db) -> Sample {
    let values = db.properties().into_iter();
    let values = values.map(|property| (property.name.to_owned(), property.value.to_string())).collect();
    Sample { by: String::new(), values }
}

/// The directories of databases that a process of this host has open, as far as its files tell.
pub fn databases_of(process: u32) -> Result<Vec<(PathBuf, Writer)>> {
    let listed = std::fs::read_dir(format!("/proc/{process}/fd"))
        .map_err(|error| Failure::io(error, format!("reading which files process {process} has open")))?;
    let files = listed.filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok());
    let maps = std::fs::read_to_string(format!("/proc/{process}/maps")).unwrap_or_default();
    let mapped = maps.lines().filter_map(|line| line.find('/').map(|at| PathBuf::from(&line[at..])));
    let mut folders = std::collections::BTreeSet::new();
    for file in files.chain(mapped).filter(|file| file.is_absolute()) {
        folders.extend(file.ancestors().skip(1).take(FOLDERS_ABOVE).map(PathBuf::from));
    }
    let mut found = Vec::new();
    for folder in folders.into_iter().filter(|folder| folder.parent().is_some()) {
        let Ok(builder) = Db::from_path(&folder) else { continue };
        if let Ok(Presence::Alive(writer, _)) = builder.presence(Duration::ZERO).wait()
            && writer.process == process
        {
            found.push((folder, writer));
        }
    }
    Ok(found)
}
