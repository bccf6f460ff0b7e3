use std::sync::Arc;

use super::*;

/// What stands for an open file.
type Opened = (Arc<()>, usize);

fn name(number: usize) -> ObjectName {
    ObjectName::new(format!("table/{number}")).expect("a name")
}

#[test]
fn the_bound_follows_what_the_process_may_open_and_is_kept() {
    let file = Arc::new(());
    for (open_files_max, handles_max) in [(1024, 256), (1 << 40, HANDLES_MAX), (3, SHARDS)] {
        let handles = Handles::<Opened>::new(open_files_max);
        for number in 0..handles_max.min(2000) * 3 {
            handles.insert(&name(number), (Arc::clone(&file), number));
            assert!(handles.len() <= handles_max);
        }
        assert!(handles.len() > handles_max.min(2000) / 2, "{} of {handles_max}", handles.len());
        handles.forget_all();
        assert_eq!(handles.len(), 0);
        assert!(handles.get(&name(1)).is_none());
    }
    assert_eq!(Arc::strong_count(&file), 1, "an evicted file stays open");
}

#[test]
fn what_is_used_stays_and_what_is_forgotten_goes() {
    let file = Arc::new(());
    let handles = Handles::<Opened>::new(1024);
    handles.insert(&name(0), (Arc::clone(&file), 77));
    for number in 1..5000 {
        handles.insert(&name(number), (Arc::clone(&file), 0));
        assert_eq!(handles.get(&name(0)).map(|(_, number)| number), Some(77), "after {number} others");
    }
    // Put twice, it is there once.
    handles.insert(&name(0), (Arc::clone(&file), 78));
    assert_eq!(handles.get(&name(0)).map(|(_, number)| number), Some(78));
    handles.forget(&name(0));
    assert!(handles.get(&name(0)).is_none());
    handles.forget(&name(0));
}
