//! How an object comes to its name, and what becomes of a rename whose answer was lost.
//!
//! 1. The bytes go to a file under `.tmp=/`, whose name is chosen at random for this one attempt.
//! 2. The file is closed. The last packet of each block makes its DataNodes sync the file and its
//!    directory before they say that they have it.
//! 3. A rename without overwriting gives it its name. The NameNode decides under its lock, so that
//!    one of many wins, and answers when its journal has it.
//! 4. A put that finds the name taken deletes its own file, and says so when that has been done:
//!    the journal then has all that led to the answer.
//!
//! An answer that was lost leaves three possibilities: the file has its name, it has not, or it
//! will have. So it is renamed again ([`Naming`]). When that finds the name taken, the file was
//! still there, and once it is deleted no rename of it can succeed any more. When it finds no such
//! file, the file was renamed, or swept away, which a look at the name tells. An outcome still not
//! known after some attempts is `OutcomeUnknown`: the manifest and the log go on from there, with
//! the same bytes to the same name.

use std::sync::Arc;

use bytes::Bytes;
use hdfs_native::WriteOptions;
use hdfs_native::file::FileWriter;

use super::client::Connected;
use super::failure::Failure;
use super::{DIRECTORY_MODE, FILE_MODE, HdfsObjectStore, PIECE_BYTES, SUFFIX, TEMPORARY_DIRECTORY};
use crate::backend::remote::{Attempts, Effect};
use crate::{Error, ErrorKind, ObjectName, PutOutcome, Request, Result};

/// Closing waits for the DataNodes to sync a whole block, and for the NameNode to hear of it.
const CLOSE_TIMES: u32 = 4;

/// A name under `.tmp=/`, deleted in the background unless it is known to be gone.
struct Leftover {
    store: HdfsObjectStore,
    path: String,
    is_gone: bool,
}

impl Drop for Leftover {
    fn drop(&mut self) {
        if self.is_gone {
            return;
        }
        let (store, path) = (self.store.clone(), std::mem::take(&mut self.path));
        self.store.shared.tasks.runtime.spawn(async move {
            if let Err(failure) = store.delete_file(path).await {
                tracing::debug!(?failure, "a temporary file stays until it is swept");
            }
        });
    }
}

/// A file that is being written.
pub(super) struct Temporary {
    writer: FileWriter,
    connected: Arc<Connected>,
    leftover: Leftover,
}

impl std::fmt::Debug for Temporary {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Temporary").field(&self.leftover.path).finish()
    }
}

/// A file that is closed and has no name yet.
pub(super) struct Unnamed(Leftover);

/// How one's own object is known.
pub(super) enum Known {
    /// By its bytes: those of a put hold who put them.
    Bytes(Bytes),
    /// By its length: nobody else uses the name.
    Length(u64),
}

impl Temporary {
    pub(super) async fn create(store: &HdfsObjectStore) -> std::result::Result<Temporary, Failure> {
        let (high, low) = (store.env().random_u64(), store.env().random_u64());
        let path = store.place().path(&format!("{TEMPORARY_DIRECTORY}/{high:016x}{low:016x}{SUFFIX}"));
        let leftover = Leftover { store: store.clone(), path: path.clone(), is_gone: false };
        let mut options = WriteOptions::default().permission(FILE_MODE);
        options.replication = store.cluster().settings().replication;
        let connected = store.cluster().connected();
        let writer = store.cluster().wait(&connected, 1, connected.client.create(&path, options)).await?;
        Ok(Temporary { writer, connected, leftover })
    }

    pub(super) async fn write(&mut self, mut bytes: Bytes) -> std::result::Result<(), Failure> {
        while !bytes.is_empty() {
            let piece = bytes.split_to(PIECE_BYTES.min(bytes.len()));
            let cluster = self.leftover.store.cluster();
            cluster.wait(&self.connected, 1, self.writer.write_bytes(piece)).await?;
        }
        Ok(())
    }

    /// Makes it whole and durable.
    pub(super) async fn close(mut self) -> std::result::Result<Unnamed, Failure> {
        let cluster = self.leftover.store.cluster();
        cluster.wait(&self.connected, CLOSE_TIMES, self.writer.close()).await?;
        Ok(Unnamed(self.leftover))
    }
}

/// The error of what did not take effect: that the file is missing or in the way is not said of the
/// object.
pub(super) fn unnamed_error(failure: &Failure, shown: &str) -> Error {
    let kind = match failure.kind {
        ErrorKind::NotFound | ErrorKind::AlreadyExists => ErrorKind::Retry,
        kind => kind,
    };
    failure.with_kind(kind, "writing an object", shown)
}

/// A request on the way to a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Rename,
    MakeDirectory,
    /// Look whose object has the name.
    Look,
    /// Delete the file, since the name is taken.
    Discard,
}

/// What came of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// It is done. Of a look: the object is ours.
    Done,
    /// The name is taken, and the file was there.
    Taken,
    /// The file is not there, or the directory that it should go to. Of a look: the object is not
    /// ours.
    Missing,
    /// It was refused for another reason.
    Refused,
    /// Nobody knows.
    Lost,
}

/// What follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Go(Step),
    /// The same, after a pause, and not for ever.
    Again(Step),
    Created,
    Exists,
    /// Nothing took effect, and nothing will.
    Fail,
    Unknown,
}

/// What we know while a file is on its way to its name.
#[derive(Debug, Default)]
struct Naming {
    /// An earlier rename may have landed, or still may.
    is_unknown: bool,
    has_directory: bool,
}

impl Naming {
    fn next(&mut self, step: Step, event: Event) -> Turn {
        let refused = if self.is_unknown { Turn::Again(Step::Rename) } else { Turn::Fail };
        match (step, event) {
            (Step::Rename | Step::Look, Event::Done) => Turn::Created,
            (Step::Rename, Event::Taken) => Turn::Go(Step::Discard),
            (Step::Rename, Event::Missing) if !self.has_directory => {
                self.has_directory = true;
                Turn::Go(Step::MakeDirectory)
            }
            (Step::Rename | Step::Discard, Event::Missing) if self.is_unknown => Turn::Go(Step::Look),
            (Step::Rename, Event::Missing) => Turn::Fail,
            (Step::Rename, Event::Refused) => refused,
            (Step::Rename, Event::Lost) => {
                self.is_unknown = true;
                Turn::Again(Step::Rename)
            }
            (Step::MakeDirectory, Event::Done) => Turn::Go(Step::Rename),
            (Step::MakeDirectory, Event::Lost) => Turn::Again(Step::MakeDirectory),
            (Step::MakeDirectory, _) => refused,
            // The file is gone, and the name is another's, or nobody's: it was swept away, or
            // renamed and deleted since.
            (Step::Look, Event::Missing) => Turn::Unknown,
            (Step::Discard, Event::Done | Event::Missing) => Turn::Exists,
            (Step::Look | Step::Discard, _) => Turn::Again(step),
        }
    }

    /// There were enough attempts.
    fn give_up(&self) -> Turn {
        if self.is_unknown { Turn::Unknown } else { Turn::Fail }
    }
}

impl Event {
    fn of(done: &std::result::Result<bool, Failure>) -> Event {
        match done {
            Ok(true) => Event::Done,
            Ok(false) => Event::Missing,
            Err(failure) => match failure.kind {
                ErrorKind::AlreadyExists => Event::Taken,
                ErrorKind::NotFound => Event::Missing,
                _ if failure.is_uncertain => Event::Lost,
                _ => Event::Refused,
            },
        }
    }
}

impl Unnamed {
    fn store(&self) -> &HdfsObjectStore {
        &self.0.store
    }

    async fn rename(&self, to: &str) -> std::result::Result<bool, Failure> {
        let (from, to) = (self.0.path.clone(), to.to_owned());
        self.store()
            .cluster()
            .ask(|connected| async move { connected.client.rename(&from, &to, false).await })
            .await
            .map(|()| true)
    }

    async fn make_directory(&self, to: &str) -> std::result::Result<bool, Failure> {
        let parent = to.rsplit_once('/').map_or("/", |(parent, _)| parent).to_owned();
        self.store()
            .cluster()
            .ask(|connected| async move { connected.client.mkdirs(&parent, DIRECTORY_MODE, true).await })
            .await
            .map(|()| true)
    }

    /// Whether the object at the name is the file, which is gone.
    async fn is_ours(&self, name: &ObjectName, known: &Known) -> std::result::Result<bool, Failure> {
        let length = match self.store().length_now(name).await {
            Err(failure) if failure.is_no_file => return Ok(false),
            length => length?,
        };
        let is_ours = match known {
            Known::Length(known) => length == *known,
            Known::Bytes(known) => {
                length == known.len() as u64 && self.store().read_now(name, 0..length, None).await? == *known
            }
        };
        if is_ours {
            self.store().settle().await?;
        }
        Ok(is_ours)
    }

    /// Deletes the file, and makes what was seen durable; `false` when the file was gone already.
    async fn discard(&mut self) -> std::result::Result<bool, Failure> {
        let was_there = self.store().delete_file(self.0.path.clone()).await?;
        if !was_there {
            self.store().settle().await?;
        }
        self.0.is_gone = true;
        Ok(was_there)
    }

    /// Gives it its name, if that is free.
    pub(super) async fn name(mut self, name: &ObjectName, known: &Known) -> Result<PutOutcome> {
        const DOING: &str = "naming an object";
        let (to, shown) =
            (self.store().place().path(name.as_str()), self.store().place().shown(name.as_str()));
        let (mut naming, mut attempts) = (Naming::default(), Attempts::new(self.store().env()));
        let mut step = Step::Rename;
        loop {
            let done = match step {
                Step::Rename => self.rename(&to).await,
                Step::MakeDirectory => self.make_directory(&to).await,
                Step::Look => self.is_ours(name, known).await,
                Step::Discard => self.discard().await,
            };
            let turn = match naming.next(step, Event::of(&done)) {
                Turn::Again(step) if attempts.again().await => Turn::Go(step),
                Turn::Again(_) => naming.give_up(),
                turn => turn,
            };
            let failure = done.err().unwrap_or_else(Failure::absent);
            match turn {
                Turn::Go(next) | Turn::Again(next) => step = next,
                Turn::Created => {
                    self.0.is_gone = true;
                    return Ok(PutOutcome::Created);
                }
                Turn::Exists => return Ok(PutOutcome::Exists),
                Turn::Unknown => return Err(failure.unknown(DOING, &shown)),
                // A file is where a directory should be.
                Turn::Fail if step == Step::MakeDirectory && failure.kind == ErrorKind::AlreadyExists => {
                    return Err(failure.with_kind(ErrorKind::Invalid, DOING, &shown));
                }
                Turn::Fail => return Err(unnamed_error(&failure, &shown)),
            }
        }
    }
}

impl HdfsObjectStore {
    /// Puts bytes into a free name.
    pub(super) async fn put(&self, request: Request, name: &ObjectName, bytes: Bytes) -> Result<PutOutcome> {
        let (store, name, shown) = (self.clone(), name.clone(), self.place().shown(name.as_str()));
        let work = async move {
            let written = async {
                let mut file = Temporary::create(&store).await?;
                file.write(bytes.clone()).await?;
                file.close().await
            };
            let file = written.await.map_err(|failure| unnamed_error(&failure, &shown))?;
            file.name(&name, &Known::Bytes(bytes)).await
        };
        self.run(request, "putting an object", Effect::Change, work).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a file whose steps end so, as far as they are told.
    fn told(events: &[(Step, Event)]) -> Turn {
        let (mut naming, mut turn) = (Naming::default(), Turn::Go(Step::Rename));
        for (step, event) in events {
            assert!(
                matches!(turn, Turn::Go(next) | Turn::Again(next) if next == *step),
                "{step:?} after {turn:?} in {events:?}"
            );
            turn = naming.next(*step, *event);
        }
        turn
    }

    #[test]
    fn an_answer_is_taken_at_its_word() {
        use Event::{Done, Missing, Refused, Taken};
        use Step::{Discard, MakeDirectory, Rename};
        assert_eq!(told(&[(Rename, Done)]), Turn::Created);
        assert_eq!(told(&[(Rename, Refused)]), Turn::Fail);
        assert_eq!(told(&[(Rename, Taken), (Discard, Done)]), Turn::Exists);
        assert_eq!(told(&[(Rename, Taken), (Discard, Missing)]), Turn::Exists);
        assert_eq!(told(&[(Rename, Missing), (MakeDirectory, Done), (Rename, Done)]), Turn::Created);
        assert_eq!(
            told(&[(Rename, Missing), (MakeDirectory, Done), (Rename, Missing)]),
            Turn::Fail,
            "the file was swept away"
        );
        assert_eq!(told(&[(Rename, Missing), (MakeDirectory, Taken)]), Turn::Fail, "a file is in the way");
    }

    /// Once an answer was lost nothing fails: a failure would say that nothing took effect.
    #[test]
    fn after_a_lost_answer_only_what_settles_it_ends_it() {
        use Event::{Done, Lost, Missing, Refused, Taken};
        use Step::{Discard, Look, MakeDirectory, Rename};
        assert_eq!(told(&[(Rename, Lost), (Rename, Done)]), Turn::Created);
        assert_eq!(told(&[(Rename, Lost), (Rename, Refused), (Rename, Lost)]), Turn::Again(Rename));
        let gone = [(Rename, Lost), (Rename, Missing), (MakeDirectory, Done), (Rename, Missing)];
        assert_eq!(told(&gone), Turn::Go(Look));
        assert_eq!(told(&[&gone[..], &[(Look, Done)]].concat()), Turn::Created);
        assert_eq!(told(&[&gone[..], &[(Look, Missing)]].concat()), Turn::Unknown);
        assert_eq!(
            told(&[&gone[..], &[(Look, Lost), (Look, Refused), (Look, Done)]].concat()),
            Turn::Created
        );
        assert_eq!(told(&[(Rename, Lost), (Rename, Missing), (MakeDirectory, Refused)]), Turn::Again(Rename));
        // Taken, and the file was there: once it is deleted, the lost rename cannot land. Until
        // then, it can.
        assert_eq!(told(&[(Rename, Lost), (Rename, Taken)]), Turn::Go(Discard));
        assert_eq!(told(&[(Rename, Lost), (Rename, Taken), (Discard, Lost)]), Turn::Again(Discard));
        assert_eq!(told(&[(Rename, Lost), (Rename, Taken), (Discard, Done)]), Turn::Exists);
        assert_eq!(
            told(&[(Rename, Lost), (Rename, Taken), (Discard, Missing)]),
            Turn::Go(Look),
            "it landed all the same"
        );
        let (mut naming, all) = (Naming::default(), [Done, Taken, Missing, Refused, Lost]);
        naming.next(Rename, Lost);
        for step in [Rename, MakeDirectory, Look, Discard] {
            for event in all {
                assert_ne!(naming.next(step, event), Turn::Fail, "{step:?}: {event:?}");
            }
        }
        assert_eq!((naming.give_up(), Naming::default().give_up()), (Turn::Unknown, Turn::Fail));
    }

    #[test]
    fn what_happens_to_the_file_is_not_said_of_the_object() {
        let missing = unnamed_error(&Failure::absent(), "hdfs://h:1/a");
        assert_eq!(missing.kind(), ErrorKind::Retry, "NotFound would be taken for the object's absence");
        assert_eq!(unnamed_error(&Failure::silence(), "hdfs://h:1/a").kind(), ErrorKind::Retry);
    }
}
