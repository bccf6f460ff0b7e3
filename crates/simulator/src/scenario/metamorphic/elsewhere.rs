//! The same database seen from elsewhere, and tables that come in and go out.

use tombolo::{
    Error, Export, Ingest, IngestOptions, Keyspace, OpenMode, Options, ReaderOptions, TableFileBuilder,
};
use tombolo_env::Env;
use tombolo_storage::Uri;

use super::history::{Action, Answer, Beside, Brings, Table, value};
use super::{Life, Shared};
use crate::failure::Violation;

/// Settings of readers and clones.
const OPTIONS: &[&str] = &["memory_bytes=1048576", "memtable_bytes=16384"];

fn options() -> Result<Options, Error> {
    Options::parse(OPTIONS.iter().copied())
}

/// Where a clone lies: beside the database and its log.
fn beside(uri: &str, name: &str) -> Result<String, Error> {
    let mut uri = Uri::parse(uri)?;
    if !uri.rest.is_empty() {
        uri.rest = format!("{}-{name}", uri.rest);
    }
    Ok(uri.to_string())
}

impl Shared {
    fn answer(checked: Result<(), Violation>) -> Answer {
        checked.map_or_else(|violation| Answer::Differs(violation.to_string()), |()| Answer::Done)
    }
}

/// Makes a table in no database.
async fn table(
    env: Env,
    shared: &Shared,
    keyspace: &Keyspace,
    place: &str,
    (entries, value): (&Table, Vec<u8>),
) -> Result<(), Error> {
    let (options, step) = (keyspace.options(), shared.model.lock().step);
    let mut table = TableFileBuilder::create_with(env, shared.registry.clone(), place, options).await?;
    for (key, brings) in entries {
        match brings {
            Brings::Put => table.put(key, &value).await?,
            Brings::PutUntil(steps) => table.put_until(key, &value, shared.end_ms(step + steps)).await?,
            Brings::Merge => table.merge(key, [&value]).await?,
            Brings::Delete => table.delete(key).await?,
        }
    }
    table.finish().await.map(drop)
}

impl Life {
    /// Reads everything from elsewhere.
    pub(super) async fn beside(&mut self, way: Beside, number: usize) -> Result<Answer, Error> {
        self.make_durable().await?;
        let builder = self.shared.builder(&self.env, &self.shared.stores)?.options(options()?);
        let name = format!("at-{number}");
        match way {
            Beside::Reader => {
                let reader = match self.reader.take() {
                    Some(reader) => {
                        reader.refresh().await?;
                        reader
                    }
                    None => builder.open_reader(ReaderOptions::default()).await?,
                };
                let checked = self.shared.check(reader.db()).await;
                self.reader = Some(reader);
                Ok(Shared::answer(checked))
            }
            Beside::Look => {
                let look = builder.open_read_only().await?;
                let checked = self.shared.check(&look).await;
                look.close().await?;
                Ok(Shared::answer(checked))
            }
            Beside::Checkpoint => {
                self.db.checkpoint(&name).await?;
                let at = builder.at_checkpoint(&name[..]).open_read_only().await?;
                let checked = self.shared.check(&at).await;
                at.close().await?;
                self.db.delete_checkpoint(&name).await?;
                Ok(Shared::answer(checked))
            }
            Beside::Copy | Beside::Share => self.clone_beside(way, &name).await,
        }
    }

    /// Makes a clone, reads it, writes and compacts it, and ends it.
    async fn clone_beside(&mut self, way: Beside, name: &str) -> Result<Answer, Error> {
        // A device has one database.
        if self.shared.stores.0.starts_with("zoned") {
            return Ok(Answer::Done);
        }
        let log = self.shared.stores.1.as_deref().map(|log| beside(log, name)).transpose()?;
        let stores = (beside(&self.shared.stores.0, name)?, log);
        let builder = || Ok::<_, Error>(self.shared.builder(&self.env, &stores)?.options(options()?));
        match way {
            Beside::Share => self.db.share_to(builder()?).await?,
            _ => self.db.clone_to(builder()?).await?,
        }
        let clone = builder()?.mode(OpenMode::Open).open().await?;
        let mut checked = self.shared.check(&clone).await;
        if checked.is_ok() {
            for keyspace in clone.keyspaces() {
                keyspace.delete_range(b"key-02", b"key-05").await?;
                keyspace.put(b"key-03", vec![b'c'; 3000]).await?;
            }
            clone.compact().await?;
            let damage = clone.verify().await?.damage;
            if !damage.is_empty() {
                checked = Err(Violation::new(format!("a clone is damaged: {}", damage.join("; "))));
            }
        }
        clone.close().await?;
        builder()?.destroy().await?;
        // The source is as it was.
        Ok(Shared::answer(match checked {
            Ok(()) => self.shared.check(&self.db).await,
            wrong => wrong,
        }))
    }

    /// Takes in tables from outside. Where an exchange, or tables behind, are refused in this set,
    /// or beside the snapshots that are open, other operations do the same.
    pub(super) async fn take_tables(&mut self, action: &Action, number: usize) -> Result<Answer, Error> {
        let (env, shared) = (self.env.clone(), self.shared.clone());
        // In real time the memory of one process has the tables of all its databases.
        let of = shared.stores.0.replace(|letter: char| !letter.is_ascii_alphanumeric(), "-");
        let place = format!("mem://outside-{of}-{}/{number}.table", self.db.incarnation());
        if let Action::Ingest(tables, bytes, bring) = action {
            let options = IngestOptions { bring: *bring, ordered: true, ..IngestOptions::default() };
            let mut ingest = Ingest::new().options(options);
            for (nth, (name, entries)) in tables.iter().enumerate() {
                let Some(keyspace) = self.keyspace(name) else { continue };
                let place = format!("{place}-{nth}");
                table(env.clone(), &shared, &keyspace, &place, (entries, value(number, *bytes))).await?;
                ingest = ingest.table(&keyspace, &place[..]);
            }
            if tables.iter().any(|(name, _)| self.keyspace(name).is_some()) {
                self.db.ingest(ingest).await?;
            }
            return Ok(Answer::Done);
        }
        let (Action::Exchange(name, ..) | Action::Behind(name, ..) | Action::Export(name)) = action else {
            return Ok(Answer::Done);
        };
        let Some(keyspace) = self.keyspace(name) else { return Ok(Answer::None) };
        let is_kept = keyspace.options().ingest_behind;
        let exchanges = self.snapshots.is_empty() && !is_kept;
        match action {
            Action::Exchange(_, entries, bytes) => {
                table(env, &shared, &keyspace, &place, (entries, value(number, *bytes))).await?;
                let mut ingest = Ingest::new().table(&keyspace, &place[..]);
                if exchanges {
                    ingest = ingest.exchange(&keyspace);
                } else {
                    keyspace.delete_range(b"", b"\xff").await?;
                }
                self.db.ingest(ingest).await?;
            }
            Action::Behind(_, _, bytes) => {
                let behind = self.shared.model.lock().last_behind.clone();
                let is_behind = self.snapshots.is_empty() && is_kept;
                let mut keys = behind.shows;
                if is_behind {
                    keys.extend(behind.hidden);
                    keys.sort_unstable();
                }
                if keys.is_empty() {
                    return Ok(Answer::Done);
                }
                let puts = keys.into_iter().map(|key| (key, Brings::Put)).collect();
                table(env, &shared, &keyspace, &place, (&puts, value(number, *bytes))).await?;
                let options = IngestOptions { behind: is_behind, ..IngestOptions::default() };
                keyspace.ingest_with([&place[..]], options).await?;
            }
            _ => {
                let export = Export::new(&keyspace).table_bytes(2000);
                let exported = self.db.export_tables(export, &place[..]).await?;
                let ingest = exported.ingest_into(&keyspace);
                if exchanges {
                    self.db.ingest(ingest.exchange(&keyspace)).await?;
                } else if !exported.tables.is_empty() {
                    self.db.ingest(ingest).await?;
                }
            }
        }
        Ok(Answer::Done)
    }
}
