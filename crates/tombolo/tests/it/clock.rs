//! Wall clocks that jump by hours and by years, forwards and backwards, while everything goes on:
//! who stands by leaves a live writer alone and replaces a dead one in its time; what a reader
//! looks at stays, and what a dead one looked at goes; nothing that is named is deleted.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{Builder, Db, Env, ErrorKind, Options, Reader, ReaderOptions, StandbyOptions};
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Process, World};

/// Seconds by which the clock jumps, in turn.
const JUMPS: [i64; 6] = [36_000, -72_000, 3_600, 400 * 86_400, -800 * 86_400, 7_200];
const SILENCE: Duration = Duration::from_millis(400);
const KEYS: u8 = 8;

fn builder(env: &Env) -> Builder {
    Db::builder("file:///db")
        .env(env.clone())
        .options(Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap())
}

type Diary = Arc<Mutex<Vec<String>>>;

fn start(process: &Process, name: &str, work: impl Future<Output = ()> + Send + 'static) {
    process.spawn(TaskClass::Foreground, Box::leak(name.to_owned().into_boxed_str()), work).detach();
}

/// Writes, merges and collects without end.
async fn write(env: Env, db: Db, diary: Diary) {
    let keys = db.default_keyspace();
    for round in 0u64.. {
        for key in 0..KEYS {
            if let Err(error) = keys.put([key], [round as u8; 300]).await {
                assert!(matches!(error.kind(), ErrorKind::Fenced | ErrorKind::Closed), "{error}");
                return diary.lock().push(format!("fenced: {error}"));
            }
        }
        db.compact().await.unwrap();
        diary.lock().push("wrote".to_owned());
        env.sleep(Duration::from_secs(1)).await;
    }
}

/// Looks at one state for ever, and at the newest besides.
async fn follow(env: Env, diary: Diary) {
    let following = ReaderOptions {
        lag: Duration::from_millis(100),
        lag_max: Duration::from_secs(1),
        lease: Duration::from_secs(10),
    };
    // Without memory worth the name, so that reads go to the store.
    let budget = tombolo::MemoryBudget::new(1 << 20).unwrap();
    let reader: Reader = builder(&env).memory_budget(&budget).open_reader(following).await.unwrap();
    let (snapshot, keys) = (reader.snapshot(), reader.default_keyspace());
    let mut shown = Vec::new();
    for key in 0..KEYS {
        shown.push(snapshot.get(&keys, [key]).await.unwrap().unwrap());
    }
    loop {
        for key in 0..KEYS {
            match (snapshot.get(&keys, [key]).await, keys.get([key]).await) {
                (Ok(Some(found)), Ok(Some(_))) => {
                    assert_eq!(found, shown[usize::from(key)], "a snapshot does not change");
                }
                wrong => diary.lock().push(format!("the reader: {wrong:?}")),
            }
        }
        env.sleep(Duration::from_secs(1)).await;
    }
}

fn tables(world: &World) -> usize {
    world.host(0).all_files().iter().filter(|(path, _)| path.to_string_lossy().contains("/table/")).count()
}

fn said(diary: &Diary, what: &str) -> Vec<String> {
    diary.lock().iter().filter(|line| line.starts_with(what)).cloned().collect()
}

#[test]
pub(crate) fn a_wall_clock_that_jumps_changes_nothing() {
    for seed in 0..2 {
        let world = World::new(seed);
        let diary = Diary::default();
        let (writer, standby, reader) =
            (world.process("writer"), world.process("standby"), world.process("reader"));
        let (env, told) = (writer.env(), Arc::clone(&diary));
        start(&writer, "write", async move {
            write(env.clone(), builder(&env).open().await.unwrap(), told).await;
        });
        world.run_for(Duration::from_secs(3));
        let (env, told) = (standby.env(), Arc::clone(&diary));
        start(&standby, "stand by", async move {
            let standby = builder(&env).stand_by(StandbyOptions { silence_max: SILENCE }).await.unwrap();
            let db = standby.take_over().await.unwrap();
            told.lock().push("took over".to_owned());
            assert!(db.verify().await.unwrap().damage.is_empty());
            write(env, db, told).await;
        });
        start(&reader, "follow", follow(reader.env(), Arc::clone(&diary)));
        for jump in JUMPS {
            world.run_for(Duration::from_secs(4));
            world.host(0).jump_unix_time(jump);
        }
        world.run_for(Duration::from_secs(6));
        let wrong: Vec<_> =
            ["took over", "fenced", "the reader"].iter().flat_map(|what| said(&diary, what)).collect();
        assert_eq!(wrong, Vec::<String>::new());
        assert!(said(&diary, "wrote").len() > 20, "the writer went on");

        // What nobody looks at any more goes when the lease and its margin have passed, whatever
        // the clock on the wall says.
        let kept = tables(&world);
        reader.kill();
        world.host(0).jump_unix_time(-500_000);
        world.run_for(Duration::from_secs(30));
        assert!(tables(&world) < kept, "{} of {kept} tables are left", tables(&world));

        writer.kill();
        world.host(0).jump_unix_time(if seed % 2 == 0 { 100_000 } else { -100_000 });
        world.run_for(SILENCE * 3 / 2 + Duration::from_millis(500));
        assert_eq!(said(&diary, "took over").len(), 1, "the standby has the dead writer's place");
        let before = said(&diary, "wrote").len();
        world.run_for(Duration::from_secs(10));
        assert!(said(&diary, "wrote").len() > before + 3 && said(&diary, "fenced").is_empty());
    }
}
