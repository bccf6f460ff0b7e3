//! When a reader makes its rounds, and when it says that it lives.

use std::sync::Arc;
use std::time::Duration;

use tombolo_env::{Instant, TaskClass};
use tombolo_storage::{Error, ErrorKind};

use super::follow::{Follower, Pins, release};
use crate::engine::{Engine, Following};
use crate::guard::guarded;
use crate::manifest::driver::io::either;

/// Starts the rounds of a reader.
pub(super) fn follow(engine: &Arc<Engine>, following: &Arc<Following>, follower: Follower, period: Duration) {
    let rounds = rounds(Arc::clone(engine), Arc::clone(following), follower, period);
    let watching = Arc::clone(following);
    let rounds = guarded(rounds, move || {
        let error = Error::new(ErrorKind::Bug, "the task that follows the writer panicked");
        watching.end(error.advice("open the reader again; report what the panic said"));
    });
    let rounds = engine.env.spawn(TaskClass::Background, "follow", rounds);
    engine.tasks.lock().push(rounds);
}

/// Starts the heartbeats of the pins of a reader, or of a look.
pub(super) fn keep(engine: &Arc<Engine>, following: &Arc<Following>, pins: Arc<Pins>, lease: Duration) {
    let beats = beats(Arc::clone(engine), Arc::clone(following), pins, lease);
    let beats = engine.env.spawn(TaskClass::Background, "reader's lease", beats);
    engine.tasks.lock().push(beats);
}

/// Makes a round every `period`, and whenever one is asked for.
async fn rounds(engine: Arc<Engine>, following: Arc<Following>, mut follower: Follower, period: Duration) {
    let mut next = engine.env.now() + period;
    loop {
        // Subscribed before it looks: a request in between is not missed.
        let wanted = following.wanted.subscribe();
        if engine.has_stopped() {
            return;
        }
        let requested = following.requested();
        if requested.is_none() && engine.env.now() < next {
            either(wanted, engine.env.sleep_until(next)).await;
            continue;
        }
        let began = engine.env.now();
        let result = follower.round().await;
        if let Err(error) = &result {
            tracing::warn!(%error, "following the writer failed; it is tried again");
        }
        following.round_ended(began, requested, result);
        next = began + period;
        // However slow the store, others get their turn.
        engine.env.yield_now().await;
    }
}

/// Renews the pins that are looked at, and gives the others back.
async fn beats(engine: Arc<Engine>, following: Arc<Following>, pins: Arc<Pins>, lease: Duration) {
    loop {
        let wanted = following.wanted.subscribe();
        if engine.has_stopped() {
            // Those who read under the pins that are left have ended with the database.
            release(pins.all()).await;
            return;
        }
        release(pins.take_unused()).await;
        let mut next: Instant = engine.env.now() + lease / 6;
        for pin in pins.all() {
            let Some(due) = pin.next_heartbeat() else { continue };
            if engine.env.now() < due {
                next = next.min(due);
                continue;
            }
            match pin.heartbeat_on(&pins.tip()).await {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::PinLost => {
                    tracing::warn!("a lease has run out; a reader pins anew what it shows, a look ends");
                    pins.forget(&pin);
                    following.request();
                }
                Err(error) => tracing::warn!(%error, "a reader's heartbeat failed; it is tried again"),
            }
        }
        either(wanted, engine.env.sleep_until(next)).await;
    }
}
