//! A mirror takes the place of its source: because that is lost ([`promote`]), or in exchange
//! ([`hand_over`]).
//!
//! `the source taken from its writer → all of it in tables → its mark: moving → published, nothing
//! missing → the source's mark: moving, all is there → the mirror's mark taken away → the source's
//! mark: moved`.
//!
//! Invariants:
//! 1. At most one of both can be claimed for writing at any time: the source's mark is there before
//!    the mirror's goes.
//! 2. The mirror's mark goes only when it holds all that the source does, at one sequence number.
//! 3. A move is undone only after claims of the source, and then of the target, which have shown
//!    both marks. A mover that goes on after that claims the source, so that the undoing fails.
//! 4. A mirror to which its source is about to move is not promoted, as far as that can be read:
//!    the move would end as if both held the same. Where one was promoted all the same, the
//!    source's mark does not say that all is there, and the move does not end.

use std::sync::Arc;
use std::time::Duration;

use tombolo_env::Env;
use tombolo_format::key::SequenceNumber;
use tombolo_format::manifest::Edit;
use tombolo_format::manifest::mark::{Mark, MarkKind};
use tombolo_storage::mutant::{Mutant, is_enabled};
use tombolo_storage::{Error, ErrorKind, Result};

use super::plan;
use super::work::{Work, reached, shown};
use crate::db::{Builder, Db, open_marked, stores};
use crate::engine::unix_ms;
use crate::manifest::{self, Manifest, State};
use crate::options::TakeOver;
use crate::reader::{Driven, FollowRequest, How, ReaderOptions};
use crate::recovery::Claiming;

/// The slot of the mark of a source that is about to move: the other one holds all of it.
const ALL_IS_THERE: u64 = 1;

/// What a database is that nobody may write to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MirrorState {
    /// Whether it is a mirror. If not, it has moved, or is about to.
    pub is_mirror: bool,
    /// Whether it is about to move, which somebody has to end or undo.
    pub is_moving: bool,
    /// Where the other database lies.
    pub place: String,
    /// All writes of the other one up to here are in it, and none after; `None`: it has published
    /// nothing yet.
    pub sequence: Option<u64>,
    /// When the other one had nothing newer, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// The newest write of the other one; `None`: it could not be asked, see `why`.
    pub source_sequence: Option<u64>,
    /// Why the other one could not be asked.
    pub why: Option<String>,
}

impl MirrorState {
    fn of(mark: &Mark) -> MirrorState {
        let is_mirror = mark.kind == MarkKind::Mirror;
        MirrorState {
            is_mirror,
            is_moving: mark.kind == MarkKind::Moving,
            place: mark.place.clone(),
            sequence: (!is_mirror || mark.slot > 0).then_some(mark.sequence.0),
            unix_ms: mark.unix_ms,
            source_sequence: None,
            why: None,
        }
    }

    /// Writes of the source that the mirror lacks; `None`: that is not known.
    pub fn missing(&self) -> Option<u64> {
        Some(self.source_sequence?.saturating_sub(self.sequence?))
    }
}

/// A mirror that is a database of its own now.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Promoted {
    /// All writes of its source up to here are in it, and none after.
    pub sequence: u64,
    /// When its source had nothing newer, in milliseconds since the Unix epoch.
    pub unix_ms: u64,
    /// Writes of the source after that, which are not in it; `None`: the source could not be asked.
    pub missing: Option<u64>,
}

/// What an exchange of roles came to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandedOver {
    /// All writes up to here are in both.
    pub sequence: u64,
    /// How long neither took writes; zero where an earlier call has done all but the last step.
    pub gap: Duration,
    /// Where the database lies now.
    pub place: String,
}

fn not_marked(at: &str) -> Error {
    Error::new(ErrorKind::Invalid, format!("{at} is an ordinary database"))
}

async fn claim(env: &Env, builder: &Builder, take_over: TakeOver) -> Result<Manifest> {
    let (objects, log_store) = stores(builder, env)?;
    let mode = manifest::OpenMode::OpenMarked;
    let claiming = Claiming { env, objects: &objects, log_store: &*log_store, mode, take_over };
    claiming.claim(None, &mut None).await
}

/// Commits an edit and leaves the database, however it ends.
async fn mark(manifest: &Manifest, mark: Option<Mark>) -> Result<()> {
    let committed = manifest.committed_in_time(vec![Edit::Marked(mark)]).await;
    manifest.leave().await;
    committed.map(drop)
}

/// The newest write of a database that is acknowledged as durable.
///
/// # Errors
/// `NotFound` when no database lies there, and for nothing else; `Invalid` when another one does.
async fn newest_write(env: &Env, source: &Builder, database: u64) -> Result<SequenceNumber> {
    let (objects, log_store) = stores(source, env)?;
    let (options, budget) = crate::db::memory_of(source)?;
    let loaded = manifest::load(env, &objects).await?;
    let found = loaded.state.database().map_or(0, |database| database.id);
    if found != database {
        let error = Error::new(ErrorKind::Invalid, format!("another database lies at {}", source.uri));
        return Err(error.expected(format!("{database:016x}")).found(format!("{found:016x}")));
    }
    let driven = Driven::open(FollowRequest {
        env: env.clone(),
        place: source.uri.clone(),
        objects,
        log_store: Some(log_store),
        options,
        budget,
        flash: None,
        operators: source.operators.clone(),
        how: How::Follow(ReaderOptions::default()),
    })
    .await
    .map_err(|error| match error.kind() {
        // The database is there, and a part of it is not.
        ErrorKind::NotFound if !is_enabled(Mutant::PromotedUnasked) => {
            Error::new(ErrorKind::Corrupt, format!("a part of {} is gone", source.uri)).source(error)
        }
        _ => error,
    })?;
    let newest = driven.engine().stream.visible();
    driven.close().await;
    Ok(newest)
}

/// What was found of a database that nobody may write to.
struct Found {
    state: MirrorState,
    /// Its number.
    id: u64,
    source: Builder,
    /// Why its source could not be asked.
    why: Option<Error>,
}

async fn find(env: &Env, builder: &Builder) -> Result<Option<Found>> {
    let (objects, _) = stores(builder, env)?;
    let loaded = manifest::load(env, &objects).await?;
    let Some(found) = loaded.state.mark() else { return Ok(None) };
    let mut state = MirrorState::of(found);
    let source = Builder { registry: builder.registry.clone(), ..Db::builder(found.place.clone()) };
    let mut why = None;
    if state.is_mirror {
        match newest_write(env, &source, found.database).await {
            Ok(newest) => state.source_sequence = Some(newest.0),
            Err(error) => {
                state.why = Some(error.to_string());
                why = Some(error);
            }
        }
    }
    let id = loaded.state.database().map_or(0, |database| database.id);
    Ok(Some(Found { state, id, source, why }))
}

/// What the mark of a database says, and what its source has. `None` without a mark.
pub(crate) async fn state_of(env: &Env, builder: &Builder) -> Result<Option<MirrorState>> {
    Ok(find(env, builder).await?.map(|found| found.state))
}

/// Whether what asking a source ended with may mean that it is lost. It is there, and is not what
/// was asked for, with all else.
fn may_be_lost(error: &Error) -> bool {
    is_enabled(Mutant::PromotedUnasked)
        || matches!(
            error.kind(),
            ErrorKind::NotFound
                | ErrorKind::PermissionDenied
                | ErrorKind::Retry
                | ErrorKind::DeadlineExceeded
                | ErrorKind::OutcomeUnknown
        )
}

/// # Errors
/// `Invalid` when the source is about to move to this mirror: the move has fenced its writer, and
/// ends as if nothing were missing.
async fn check_not_moving(env: &Env, found: &Found, at: &str) -> Result<()> {
    if is_enabled(Mutant::PromotedBeforeMove) {
        return Ok(());
    }
    // One that cannot be read says nothing.
    let Ok((objects, _)) = stores(&found.source, env) else { return Ok(()) };
    let Ok(source) = manifest::load(env, &objects).await else { return Ok(()) };
    if source.state.mark_of(MarkKind::Moving).is_none_or(|moving| moving.database != found.id) {
        return Ok(());
    }
    let message = format!("{} is about to move to {at}", found.state.place);
    Err(Error::new(ErrorKind::Invalid, message)
        .advice("end the move, which loses nothing: `tombolo db move` again; or undo it with `--back`"))
}

/// Takes the mark of a mirror away. See [`super::Mirror::promote`].
pub(crate) async fn promote(env: &Env, builder: &Builder, force: bool) -> Result<Promoted> {
    let at = shown(&builder.uri);
    let found = find(env, builder).await?.ok_or_else(|| not_marked(&at))?;
    let state = &found.state;
    if !state.is_mirror {
        let what = if state.is_moving { "is about to move" } else { "has moved" };
        return Err(Error::new(
            ErrorKind::Invalid,
            format!("{at} is no mirror: it {what} to {}", state.place),
        ));
    }
    check_made(state, &at)?;
    check_not_moving(env, &found, &at).await?;
    if let Some(error) = found.why.as_ref().filter(|error| !force && !may_be_lost(error)) {
        let message = format!("the source of {at} may be there, at {}, and could not be asked", state.place);
        return Err(Error::new(ErrorKind::Invalid, message).source(error.clone()).advice(
            "look what became of it, as the cause says; if it is lost, force the promotion, and write to one \
                of both only",
        ));
    }
    if let Some(missing) = state.missing().filter(|_| !force) {
        let message = format!("the source of {at} is there, at {}", state.place);
        return Err(Error::new(ErrorKind::Invalid, message)
            .found(format!("the mirror lacks {missing} of its writes"))
            .advice(
                "exchange the roles, which loses nothing: Mirror::hand_over, `tombolo db move`; or force the \
                promotion, and write to one of both only",
            ));
    }
    let take_over = if builder.take_over == TakeOver::Always { TakeOver::Always } else { TakeOver::Never };
    let manifest = claim(env, builder, take_over).await?;
    let claimed = manifest.state();
    let Some(shown) = claimed.mark_of(MarkKind::Mirror).cloned() else {
        manifest.leave().await;
        return Err(not_marked(&at));
    };
    // Again: a move may have begun before the claim.
    if let Err(error) = check_not_moving(env, &found, &at).await {
        manifest.leave().await;
        return Err(error);
    }
    mark(&manifest, None).await?;
    let missing = state.source_sequence.map(|newest| newest.saturating_sub(shown.sequence.0));
    Ok(Promoted { sequence: shown.sequence.0, unix_ms: shown.unix_ms, missing })
}

/// # Errors
/// `NotFound` of a mirror that has published nothing.
fn check_made(state: &MirrorState, at: &str) -> Result<()> {
    if state.sequence.is_some() || is_enabled(Mutant::PromotedUnmade) {
        return Ok(());
    }
    let error =
        Error::new(ErrorKind::NotFound, format!("the mirror at {at} holds no state of its source yet"));
    Err(error.advice("mirror until it has published once; what it holds now is of no use by itself"))
}

/// See [`super::Mirror::hand_over`].
pub(super) async fn hand_over(mut work: Work) -> Result<HandedOver> {
    let exchanged = exchange(&mut work).await;
    match exchanged {
        Ok(handed) => {
            work.driven.close().await;
            work.manifest.leave().await;
            finish(&work.env, &work.source, &work.target, handed).await
        }
        Err(error) => {
            let error = work.judge_claim(error).await;
            work.close().await;
            Err(error)
        }
    }
}

/// Up to the mark of the mirror, which goes.
async fn exchange(work: &mut Work) -> Result<HandedOver> {
    // What takes long comes before the gap.
    work.publish().await?;
    check_movable(work.driven.state(), &shown(&work.source.uri))?;
    let own = work.manifest.state();
    let database = own.database().map_or(0, |database| database.id);
    let began = work.env.now();
    let mut source = work.source.clone();
    source.env = Some(work.env.clone());
    source.options.automatic_compaction = false;
    // Taken from its writer, unless the builder says that a live one goes on.
    if source.take_over == TakeOver::default() {
        source.take_over = TakeOver::Always;
    }
    let db = open_marked(source, work.env.clone()).await?;
    let taken = take(
        &db,
        &Mark {
            kind: MarkKind::Moving,
            place: shown(&work.target.uri),
            database,
            incarnation: work.manifest.incarnation().0,
            epoch: 0,
            slot: 0,
            sequence: SequenceNumber::ZERO,
            unix_ms: unix_ms(&work.env),
        },
    )
    .await;
    let closed = db.close().await;
    taken.and(closed)?;
    let cut = if is_enabled(Mutant::MoveBehind) { None } else { Some(work.publish().await?) };
    let (state, sequence) = match &cut {
        Some(cut) => (Arc::clone(&cut.state), cut.reached),
        None => (Arc::clone(work.driven.state()), reached(work.driven.state())),
    };
    if cut.is_some() {
        check_equal(&work.manifest.state(), &state)?;
        note_whole(work, database).await?;
    }
    work.manifest.committed_in_time(vec![Edit::Marked(None)]).await?;
    let gap = work.env.now().since(began);
    Ok(HandedOver { sequence: sequence.0, gap, place: shown(&work.target.uri) })
}

/// # Errors
/// `Invalid` of a mirror of another database, whose process would be fenced for nothing;
/// `Unsupported` with streams.
fn check_movable(source: &State, at: &str) -> Result<()> {
    source.check_no_streams("a move")?;
    let Some(mark) = source.mark_of(MarkKind::Mirror) else { return Ok(()) };
    Err(Error::new(ErrorKind::Invalid, format!("{at} is a mirror of {}, and moves nowhere", mark.place))
        .advice("move its source, or promote it first: Mirror::promote, `tombolo db promote`"))
}

/// Puts all of a database into tables, and marks it.
async fn take(db: &Db, moving: &Mark) -> Result<()> {
    let manifest = &db.engine().manifest;
    // One may have begun since it was looked at.
    manifest.state().check_no_streams("a move")?;
    match manifest.state().mark() {
        None => {}
        Some(mark) if mark.kind == MarkKind::Moving && mark.database == moving.database => {}
        Some(mark) => return Err(crate::manifest::chain::open::marked(mark)),
    }
    db.flush().await?;
    if is_enabled(Mutant::MoveUnmarked) {
        return Ok(());
    }
    let sequence = reached(&manifest.state());
    manifest.committed_in_time(vec![Edit::Marked(Some(Mark { sequence, ..moving.clone() }))]).await.map(drop)
}

/// The source's mark says that the mirror holds all of it.
///
/// # Errors
/// `Fenced` when the move was undone meanwhile; those of the source's store.
async fn note_whole(work: &Work, database: u64) -> Result<()> {
    if is_enabled(Mutant::MoveUnmarked) {
        return Ok(());
    }
    let manifest = claim(&work.env, &work.source, TakeOver::Always).await?;
    let found = manifest.state().mark_of(MarkKind::Moving).cloned();
    let Some(moving) = found.filter(|moving| moving.database == database) else {
        manifest.leave().await;
        let message = format!("{} is not about to move any more", shown(&work.source.uri));
        return Err(Error::new(ErrorKind::Fenced, message));
    };
    mark(&manifest, Some(Mark { slot: ALL_IS_THERE, ..moving })).await
}

/// # Errors
/// `Bug` when the mirror lacks something of a source that nobody writes to.
fn check_equal(mirror: &State, source: &State) -> Result<()> {
    let missing = plan::missing(source, &plan::copies(mirror, source));
    let tables = |state: &State| state.keyspaces().map(|keyspace| keyspace.tables().count()).sum::<usize>();
    if missing.is_empty() && tables(mirror) == tables(source) && reached(mirror) >= reached(source) {
        return Ok(());
    }
    Err(Error::new(ErrorKind::Bug, "the mirror is not what its source is")
        .expected(format!("{} tables, up to write {}", tables(source), reached(source).0))
        .found(format!(
            "{} tables, up to write {}; {} missing",
            tables(mirror),
            reached(mirror).0,
            missing.len()
        )))
}

/// The last step: the source's mark says that it has moved.
async fn finish(env: &Env, source: &Builder, target: &Builder, handed: HandedOver) -> Result<HandedOver> {
    let manifest = claim(env, source, TakeOver::Always).await?;
    let found = manifest.state().mark().cloned();
    let Some(moving) = found.filter(|mark| mark.kind != MarkKind::Mirror) else {
        manifest.leave().await;
        return if is_enabled(Mutant::MoveUnmarked) {
            Ok(handed)
        } else {
            Err(not_marked(&shown(&source.uri)))
        };
    };
    let place = shown(&target.uri);
    mark(&manifest, Some(Mark { kind: MarkKind::Moved, place, ..moving })).await?;
    Ok(handed)
}

/// Ends a move of which only the last step is missing; `None` when more is.
///
/// # Errors
/// `Invalid` when the target was promoted without all that the source has; those of both stores.
pub(crate) async fn resume(env: &Env, source: &Builder, target: &Builder) -> Result<Option<HandedOver>> {
    let (objects, _) = stores(source, env)?;
    let loaded = manifest::load(env, &objects).await?;
    let Some(moving) = loaded.state.mark_of(MarkKind::Moving) else { return Ok(None) };
    let (objects, _) = stores(target, env)?;
    let there = match manifest::load(env, &objects).await {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let is_it = there.state.database().is_some_and(|database| database.id == moving.database);
    if !is_it || there.state.mark().is_some() {
        return Ok(None);
    }
    let place = shown(&target.uri);
    // By its numbers it may be as far, with writes of its own.
    if moving.slot != ALL_IS_THERE && !is_enabled(Mutant::MoveEndsBehind) {
        let message = format!("{place} was promoted before {} had moved there", shown(&source.uri));
        return Err(Error::new(ErrorKind::Invalid, message)
            .expected(format!("all writes up to {}", moving.sequence.0))
            .advice(
                "read from the old place what is missing, write it to the new one, and destroy the old one",
            ));
    }
    let handed = HandedOver { sequence: moving.sequence.0, gap: Duration::ZERO, place };
    finish(env, source, target, handed).await.map(Some)
}

/// Undoes a move that has not ended. See [`super::Mirror::undo_move`].
pub(crate) async fn move_back(env: &Env, source: &Builder, target: &Builder) -> Result<()> {
    let at = shown(&source.uri);
    let (objects, _) = stores(source, env)?;
    let loaded = manifest::load(env, &objects).await?;
    // Not claimed for nothing.
    moving(&loaded.state, &at)?;
    let is_late = is_enabled(Mutant::MoveBackLate);
    if is_late {
        check_back(env, &loaded.state, target, &at).await?;
    }
    // Who moves on from here claims the source after this, whose last record is refused then.
    let manifest = claim(env, source, TakeOver::Always).await?;
    let may = if is_late { Ok(()) } else { check_back(env, &manifest.state(), target, &at).await };
    match may {
        Ok(()) => mark(&manifest, None).await,
        Err(error) => {
            manifest.leave().await;
            Err(error)
        }
    }
}

/// # Errors
/// `Invalid` when it does not move.
fn moving<'a>(source: &'a State, at: &str) -> Result<&'a Mark> {
    let not_moving = || Error::new(ErrorKind::Invalid, format!("{at} is not about to move"));
    source.mark_of(MarkKind::Moving).ok_or_else(not_moving)
}

/// Whether a move may be undone, seen from behind claims of both sides.
///
/// # Errors
/// `Invalid` when it may not; those of the target's store.
async fn check_back(env: &Env, source: &State, target: &Builder, at: &str) -> Result<()> {
    let moving = moving(source, at)?;
    // A process that has claimed the target before is fenced by this: the mark cannot go any more.
    let there = claim(env, target, TakeOver::Always).await?;
    let state = there.state();
    there.leave().await;
    let is_it = state.database().is_some_and(|database| database.id == moving.database);
    let is_mirror = is_it && state.mark_of(MarkKind::Mirror).is_some();
    if is_mirror || is_enabled(Mutant::MoveBackAfterwards) {
        return Ok(());
    }
    let message = if is_it {
        format!("{at} has moved: {} is in its place", shown(&target.uri))
    } else {
        format!("{} is not the database to which {at} moves", shown(&target.uri))
    };
    Err(Error::new(ErrorKind::Invalid, message).advice("end the move: `tombolo db move` again"))
}
