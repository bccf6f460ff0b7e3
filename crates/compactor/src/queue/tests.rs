use super::*;

fn urgency(database: u64, stall_percent: u32) -> Urgency {
    Urgency { stall_percent, debt_bytes: 0, bytes: 100, database }
}

/// The databases in the order in which they are served.
fn order(queue: &mut Queue, of: &BTreeMap<u64, u64>) -> Vec<u64> {
    std::iter::from_fn(|| {
        let number = queue.permit(1)?;
        queue.ended();
        Some(of[&number])
    })
    .collect()
}

#[test]
fn databases_take_turns() {
    let (mut queue, mut of) = (Queue::default(), BTreeMap::new());
    for _ in 0..4 {
        of.insert(queue.offer(urgency(1, 0)), 1);
    }
    for _ in 0..2 {
        of.insert(queue.offer(urgency(2, 0)), 2);
    }
    assert_eq!(order(&mut queue, &of), [1, 2, 1, 2, 1, 1]);
    // One that was away has nothing saved up.
    for database in [3, 1, 3, 1] {
        of.insert(queue.offer(urgency(database, 0)), database);
    }
    let served = order(&mut queue, &of);
    assert!(served == [3, 1, 3, 1] || served == [1, 3, 1, 3], "{served:?}");
}

#[test]
fn the_most_urgent_job_of_a_database_comes_first_and_stalled_databases_before_others() {
    let mut queue = Queue::default();
    let (calm, near) = (queue.offer(urgency(1, 10)), queue.offer(urgency(1, 90)));
    let stalled = queue.offer(urgency(2, 120));
    assert_eq!([queue.permit(3), queue.permit(3), queue.permit(3)], [Some(stalled), Some(near), Some(calm)]);
    assert_eq!(queue.running(), 3);
}

#[test]
fn no_more_jobs_run_than_may_and_what_was_withdrawn_never_does() {
    let mut queue = Queue::default();
    let (one, other) = (queue.offer(urgency(1, 0)), queue.offer(urgency(1, 0)));
    assert_eq!(queue.permit(1), Some(one));
    assert_eq!(queue.permit(1), None);
    queue.withdraw(other);
    queue.ended();
    assert_eq!((queue.permit(1), queue.waiting()), (None, 0));
}

/// How long jobs of small databases wait, in virtual time: `workers` queues, of which each runs one
/// job at a time, and databases that offer a job to all of them, and take the first permit. The
/// first `large` have ten jobs on their way at any time, and the others one every `period`.
fn waits(workers: usize, databases: u64, large: u64, period: u64) -> Vec<u64> {
    const JOB: u64 = 100;
    let mut queues: Vec<Queue> = (0..workers).map(|_| Queue::default()).collect();
    let mut ends: Vec<Option<u64>> = vec![None; workers];
    // Of each offer its database, when it was made, and its number at each worker.
    let mut offers: Vec<(u64, u64, Vec<u64>)> = Vec::new();
    let mut waited = Vec::new();
    let mut now = 0;
    while now < 400 * JOB {
        for (queue, end) in queues.iter_mut().zip(&mut ends) {
            if end.is_some_and(|end| end <= now) {
                *end = None;
                queue.ended();
            }
        }
        for database in 0..databases {
            let waiting = offers.iter().filter(|(of, _, _)| *of == database).count() as u64;
            let is_due = if database < large { waiting < 10 } else { (now + database * 37) % period == 0 };
            if is_due && (database < large || waiting == 0) {
                let numbers = queues.iter_mut().map(|queue| queue.offer(urgency(database, 50))).collect();
                offers.push((database, now, numbers));
            }
        }
        for worker in 0..workers {
            let Some(number) = queues[worker].permit(1) else { continue };
            let at = offers.iter().position(|(_, _, numbers)| numbers[worker] == number).unwrap();
            let (database, offered, numbers) = offers.swap_remove(at);
            for (other, number) in numbers.into_iter().enumerate().filter(|(other, _)| *other != worker) {
                queues[other].withdraw(number);
            }
            ends[worker] = Some(now + JOB);
            if database >= large {
                waited.push(now - offered);
            }
        }
        now += 1;
    }
    waited.sort_unstable();
    waited
}

/// 16 databases on two workers, of which four have ten jobs on their way at any time: a small one
/// waits no longer than for the job that runs, and a turn of each.
#[test]
fn small_databases_wait_for_no_backlog_of_large_ones() {
    let waited = waits(2, 16, 4, 1600);
    let p99 = waited[waited.len() * 99 / 100];
    assert!(waited.len() > 200, "{} jobs of small databases", waited.len());
    // A turn of each of the sixteen at two workers, after the job that runs, takes 900; the forty
    // jobs that the large ones have on their way would take 2,000.
    let longest = waited[waited.len() - 1];
    assert!(p99 <= 600 && longest <= 900, "jobs of 100 wait up to {longest}, the 99th percentile {p99}");
}
