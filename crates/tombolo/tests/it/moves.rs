//! Promotions and moves that meet others, or stop midway: never are two databases written to that
//! pass for one, and nothing is said to be whole that is not.

use std::time::Duration;

use tombolo::{Builder, ErrorKind, HandedOver, KeyspaceOptions, Mirror, MirrorOptions, Result, TakeOver};
use tombolo_env::simulated::World;
use tombolo_storage::layer::RequestKind;
use tombolo_storage::layer::fault::{Asked, Fault, Rule};

use crate::mirror::{MIRROR, SOURCE, Two, run};

const SECOND: &str = "mem://far/second";

impl Two {
    fn taken(&self, uri: &str) -> Builder {
        self.at(uri).take_over(TakeOver::Always)
    }

    /// A source, and a mirror that shows it.
    async fn mirrored(&self) {
        let db = self.at(SOURCE).open().await.unwrap();
        db.default_keyspace().put("key", "value").await.unwrap();
        db.close().await.unwrap();
        let mirror = self.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        mirror.close().await.unwrap();
    }

    /// A move that stopped midway: the source takes no writes any more, and the mirror lacks some.
    async fn stopped_midway(&self) {
        let db = self.at(SOURCE).open().await.unwrap();
        db.default_keyspace().put("key", "value").await.unwrap();
        db.flush().await.unwrap();
        let mirror = self.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        // A mirror shows it with the next flush, which is the move's.
        let new = db.create_keyspace("new", KeyspaceOptions::default()).await.unwrap();
        new.put("late", "write").await.unwrap();
        let is_table =
            |asked: &Asked<'_>| asked.kind == RequestKind::Create && asked.name.contains("/table/");
        self.plan.inject(Rule::new(is_table, Fault::Error(ErrorKind::PermissionDenied)));
        let error = mirror.hand_over().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        self.plan.clear();
        assert!(Mirror::state(self.at(SOURCE)).await.unwrap().unwrap().is_moving);
    }

    /// Moves, or goes on with what another has begun.
    async fn moves(&self) -> Result<HandedOver> {
        if let Some(handed) = Mirror::finish_move(self.taken(SOURCE), self.taken(MIRROR)).await? {
            return Ok(handed);
        }
        let options = MirrorOptions { verify: false, ..MirrorOptions::default() };
        Mirror::begin(self.taken(SOURCE), self.taken(MIRROR), options).await?.hand_over().await
    }

    /// Whether somebody may write there.
    async fn is_open(&self, uri: &str) -> bool {
        match self.taken(uri).open().await {
            Ok(db) => {
                db.close().await.unwrap();
                true
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                false
            }
        }
    }
}

/// Of an undo, the request of this number waits until a move has gone on. Whether there was one.
fn undone_while_it_moves(number: u64, is_near: bool) -> bool {
    let process = World::new(5).process("writer");
    let env = process.env();
    process
        .run(async move {
            let two = Two::new(&env);
            two.stopped_midway().await;
            let plan = if is_near { two.near.clone() } else { two.plan.clone() };
            let number = plan.requests() + number;
            plan.inject(Rule::at(number, Fault::Delay(Duration::from_secs(30))));
            let undone = Mirror::undo_move(two.taken(SOURCE), two.taken(MIRROR));
            two.env.sleep(Duration::from_secs(5)).await;
            let was_slow = plan.requests() >= number;
            let moved = two.moves().await;
            let undone = undone.await;
            plan.clear();
            let (at_source, at_mirror) = (two.is_open(SOURCE).await, two.is_open(MIRROR).await);
            let what = format!("request {number}, near {is_near}: {undone:?}, {moved:?}");
            assert!(!(at_source && at_mirror), "two databases pass for one: {what}");
            if !at_source && !at_mirror {
                two.moves().await.unwrap();
            }
            let uri = if at_source { SOURCE } else { MIRROR };
            assert_eq!(two.contents(uri).await.unwrap().len(), 2, "{what}");
            was_slow
        })
        .unwrap()
}

fn undo_meets_a_move() {
    for is_near in [true, false] {
        let mut number = 1;
        while undone_while_it_moves(number, is_near) {
            number += 1;
        }
        assert!(number > 3, "{number} requests");
    }
}

#[test]
fn who_undoes_a_move_that_another_ends_leaves_one_writer() {
    undo_meets_a_move();
}

/// A source that has moved, or has a log of its own, is there: its mirror takes its place only by
/// force.
fn sources_are_asked() {
    run(|two| async move {
        two.mirrored().await;
        let to = two.at(SECOND);
        let second = Mirror::begin(two.at(SOURCE), to, MirrorOptions::default()).await.unwrap();
        second.hand_over().await.unwrap();
        let error = Mirror::promote(two.at(MIRROR), false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(!two.is_open(MIRROR).await);
        Mirror::promote(two.at(MIRROR), true).await.unwrap();
        assert!(two.is_open(MIRROR).await);
    });
    run(|two| async move {
        let source = || two.at(SOURCE).log("file:///log");
        let db = source().open().await.unwrap();
        db.default_keyspace().put("key", "value").await.unwrap();
        let mirror = Mirror::begin(source(), two.at(MIRROR), MirrorOptions::default()).await.unwrap();
        mirror.refresh().await.unwrap();
        mirror.close().await.unwrap();
        let error = Mirror::promote(two.at(MIRROR), false).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("could not be asked"), "{error}");
        db.default_keyspace().put("key", "other").await.unwrap();
        Mirror::promote(two.at(MIRROR), true).await.unwrap();
    });
}

#[test]
fn a_source_that_is_there_is_not_taken_for_lost() {
    sources_are_asked();
}

/// Who promotes the mirror of a source that is about to move there would lose what only the move
/// brings along.
fn promoted_midway() {
    run(|two| async move {
        two.stopped_midway().await;
        for force in [false, true] {
            let error = Mirror::promote(two.at(MIRROR), force).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Invalid);
            assert!(error.to_string().contains("about to move"), "{error}");
        }
        two.moves().await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap().len(), 2);
    });
}

#[test]
fn a_mirror_to_which_its_source_moves_is_not_promoted() {
    promoted_midway();
}

/// The source is out of reach, its mirror is promoted, and the source comes back.
fn promoted_out_of_reach() {
    run(|two| async move {
        two.stopped_midway().await;
        two.near.inject(Rule::new(|_| true, Fault::Error(ErrorKind::PermissionDenied)));
        Mirror::promote(two.at(MIRROR), true).await.unwrap();
        two.near.clear();
        // Its own writes have numbers like those that are missing.
        let db = two.at(MIRROR).open().await.unwrap();
        for number in 0..9 {
            db.default_keyspace().put("key", [number]).await.unwrap();
        }
        db.close().await.unwrap();
        let error = Mirror::finish_move(two.at(SOURCE), two.at(MIRROR)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("was promoted before"), "{error}");
        assert!(!two.is_open(SOURCE).await);
        // The rest can be read there.
        assert_eq!(two.contents(SOURCE).await.unwrap().len(), 2);
    });
}

#[test]
fn a_move_whose_target_was_promoted_is_not_said_to_be_whole() {
    promoted_out_of_reach();
}

/// Nobody is fenced for a move that cannot be.
#[test]
fn what_does_not_move_is_left_to_its_writer() {
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        let mirror = two.mirror().await.unwrap();
        mirror.refresh().await.unwrap();
        let of_stream = KeyspaceOptions { stream: 1, ..KeyspaceOptions::default() };
        db.create_keyspace("one", of_stream).await.unwrap();
        assert_eq!(mirror.hand_over().await.unwrap_err().kind(), ErrorKind::Unsupported);
        db.default_keyspace().put("key", "value").await.unwrap();
        assert_eq!(two.mirror().await.map(drop).unwrap_err().kind(), ErrorKind::Unsupported);
        db.close().await.unwrap();
    });
    run(|two| async move {
        let db = two.at(SOURCE).open().await.unwrap();
        db.default_keyspace().put("key", "value").await.unwrap();
        let first = two.mirror().await.unwrap();
        first.refresh().await.unwrap();
        let options = MirrorOptions::default();
        let second = Mirror::begin(two.at(MIRROR), two.at(SECOND), options).await.unwrap();
        second.refresh().await.unwrap();
        let error = second.hand_over().await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains("moves nowhere"), "{error}");
        db.default_keyspace().put("other", "value").await.unwrap();
        first.refresh().await.unwrap();
        assert_eq!(two.contents(MIRROR).await.unwrap().len(), 2);
        db.close().await.unwrap();
    });
}

/// A writer that came after somebody looked whether there is one is left alone, too.
#[test]
fn a_live_writer_may_be_left_alone() {
    let world = World::new(1);
    let (writer, mover) = (world.process("writer"), world.process("mover"));
    let source = Two::new(&writer.env());
    let db = writer.run(async move { source.at(SOURCE).open().await.unwrap() }).unwrap();
    let keys = db.default_keyspace();
    let two = Two::new(&mover.env());
    let moving = async move {
        let source = two.at(SOURCE).take_over(TakeOver::Never);
        let mirror = Mirror::begin(source, two.at(MIRROR), MirrorOptions::default()).await.unwrap();
        mirror.refresh().await.unwrap();
        mirror.hand_over().await.unwrap_err()
    };
    assert_eq!(mover.run(moving).unwrap().kind(), ErrorKind::InUse);
    writer.run(async move { keys.put("key", "value").await.unwrap() }).unwrap();
    let two = Two::new(&mover.env());
    let handed = mover.run(async move { two.mirror().await?.hand_over().await }).unwrap().unwrap();
    assert!(handed.sequence >= 1);
    let late = db.default_keyspace();
    let fenced = writer.run(async move { late.put("key", "late").await.unwrap_err() }).unwrap();
    assert_eq!(fenced.kind(), ErrorKind::Fenced);
}

#[cfg(feature = "mutants")]
#[test]
fn rules_of_moves_are_noticed() {
    use tombolo_storage::mutant::{Mutant, notices};

    notices(Mutant::MoveBackLate, undo_meets_a_move);
    notices(Mutant::PromotedUnasked, sources_are_asked);
    notices(Mutant::PromotedBeforeMove, promoted_midway);
    notices(Mutant::MoveEndsBehind, promoted_out_of_reach);
}
