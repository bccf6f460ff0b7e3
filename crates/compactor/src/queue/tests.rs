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
