use std::path::Path;

use tombolo_env::simulated::World;

use super::*;

fn name(number: usize) -> ObjectName {
    ObjectName::new(format!("table/{number}")).expect("a name")
}

/// Calls `test` with a file to put there.
fn with_file(test: impl Fn(&Arc<dyn File>)) {
    let world = World::new(1);
    let process = world.process("p");
    test(&process.files().create_new(Path::new("/file")).expect("a file"));
}

#[test]
fn the_bound_follows_what_the_process_may_open_and_is_kept() {
    with_file(|file| {
        for (open_files_max, handles_max) in [(1024, 256), (1 << 40, HANDLES_MAX), (3, SHARDS)] {
            let handles = Handles::new(open_files_max);
            for number in 0..handles_max.min(2000) * 3 {
                handles.insert(&name(number), Handle { file: Arc::clone(file), length: number as u64 });
                assert!(handles.len() <= handles_max);
            }
            assert!(handles.len() > handles_max.min(2000) / 2, "{} of {handles_max}", handles.len());
            handles.forget_all();
            assert_eq!(handles.len(), 0);
            assert!(handles.get(&name(1)).is_none());
        }
        assert_eq!(Arc::strong_count(file), 1, "an evicted file stays open");
    });
}

#[test]
fn what_is_used_stays_and_what_is_forgotten_goes() {
    with_file(|file| {
        let handles = Handles::new(1024);
        handles.insert(&name(0), Handle { file: Arc::clone(file), length: 77 });
        for number in 1..5000 {
            handles.insert(&name(number), Handle { file: Arc::clone(file), length: 0 });
            assert_eq!(handles.get(&name(0)).map(|handle| handle.length), Some(77), "after {number} others");
        }
        // Put twice, it is there once.
        handles.insert(&name(0), Handle { file: Arc::clone(file), length: 78 });
        assert_eq!(handles.get(&name(0)).map(|handle| handle.length), Some(78));
        handles.forget(&name(0));
        assert!(handles.get(&name(0)).is_none());
        handles.forget(&name(0));
    });
}
