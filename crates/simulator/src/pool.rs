//! Runs independent histories on all cores, and hands what came of them over in their order.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo_env::{Env, TaskClass};

/// Histories that have ended and wait for one before them, at most.
const AHEAD_MAX: u64 = 4096;
/// How often is looked whether one has ended, and whether there is room for another.
const LOOK: Duration = Duration::from_millis(5);

struct State<T> {
    /// Invariant: taken <= next; `done` holds what ended of those between.
    next: u64,
    taken: u64,
    most: u64,
    done: BTreeMap<u64, T>,
}

/// Does `work` for 0, 1, 2, … below `most`, several at once, and hands each outcome to `take` in
/// that order until it says `false`.
pub fn run<T: Send + 'static>(
    env: &Env,
    most: u64,
    work: impl Fn(u64) -> T + Send + Sync + 'static,
    mut take: impl FnMut(T) -> bool,
) {
    let state = Arc::new(Mutex::new(State { next: 0, taken: 0, most, done: BTreeMap::new() }));
    let work = Arc::new(work);
    let workers: Vec<_> = (0..env.host_facts().cores)
        .map(|_| {
            env.spawn(
                TaskClass::Background,
                "histories",
                worker(env.clone(), Arc::clone(&state), Arc::clone(&work)),
            )
        })
        .collect();
    loop {
        let (ended, is_idle) = {
            let mut state = state.lock();
            if state.taken == state.most {
                break;
            }
            let number = state.taken;
            let ended = state.done.remove(&number);
            state.taken += u64::from(ended.is_some());
            // A worker ends when all have begun. One that ended before has taken its history with
            // it, and the others would wait for that for ever.
            let is_idle = if state.next < state.most {
                workers.iter().any(tombolo_env::Task::is_finished)
            } else {
                workers.iter().all(tombolo_env::Task::is_finished)
            };
            (ended, is_idle)
        };
        match ended {
            Some(outcome) => {
                if !take(outcome) {
                    state.lock().most = 0;
                    break;
                }
            }
            None => {
                assert!(!is_idle, "a worker ended by a panic outside of its histories");
                env.block_on(env.sleep(LOOK));
            }
        }
    }
}

async fn worker<T: Send>(env: Env, state: Arc<Mutex<State<T>>>, work: Arc<impl Fn(u64) -> T>) {
    loop {
        let number = {
            let mut state = state.lock();
            if state.next >= state.most {
                return;
            }
            let has_room = state.next < state.taken + AHEAD_MAX;
            let number = has_room.then_some(state.next);
            state.next += u64::from(has_room);
            number
        };
        match number {
            Some(number) => {
                let outcome = work(number);
                state.lock().done.insert(number, outcome);
            }
            None => env.sleep(LOOK).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_come_in_their_order_until_enough() {
        let mut taken = Vec::new();
        run(
            &Env::real(),
            u64::MAX,
            |number| number * number,
            |square| {
                taken.push(square);
                taken.len() < 100
            },
        );
        assert_eq!(taken, (0..100).map(|number| number * number).collect::<Vec<u64>>());
    }

    #[test]
    #[should_panic(expected = "a worker ended by a panic")]
    fn a_panic_outside_of_a_history_ends_the_run_however_many_are_left() {
        run(&Env::real(), u64::MAX, |number| assert_ne!(number, 7), |()| true);
    }
}
