//! Who has a database open, from whom opening takes it, and from whom it does not.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tombolo::{
    Answered, Ask, Builder, Db, Env, Epoch, ErrorKind, OpenMode, Options, Presence, Seen, TakeOver,
};
use tombolo_env::TaskClass;
use tombolo_env::simulated::{Process, World};
use tombolo_storage::backend::memory::MemoryObjectStore;
use tombolo_storage::backend::object_log::ObjectLogStore;
use tombolo_storage::{ObjectStore, Purpose, Request};

fn options() -> Options {
    Options::parse(["memory_bytes=1048576", "memtable_bytes=4096"]).unwrap()
}

/// A database on the disk of one host.
fn local(env: &Env) -> Builder {
    Db::builder("file:///db").env(env.clone()).options(options())
}

/// A store that all hosts reach.
#[derive(Clone)]
struct Shared(Arc<dyn ObjectStore>);

impl Shared {
    fn new(world: &World) -> Shared {
        Shared(Arc::new(MemoryObjectStore::unnamed(&world.add_host("store").process("store").env())))
    }

    /// What those have left who ask.
    fn left(&self, world: &World) -> Vec<String> {
        let request = Request::new(Purpose::Manifest, Epoch::NONE);
        let listed = world.run_until(self.0.list(request, "", None, 1000)).unwrap();
        let names = listed.objects.iter().map(|object| object.name.as_str().to_owned());
        names.filter(|name| name.contains("/standby/")).collect()
    }

    fn builder(&self, env: &Env) -> Builder {
        let log = Arc::new(ObjectLogStore::new(env, Arc::clone(&self.0), true));
        Db::builder("shared").env(env.clone()).stores(Arc::clone(&self.0), log).options(options())
    }
}

/// The handle of a process that goes on living.
type Held = Arc<Mutex<Option<Db>>>;

fn start(process: &Process, builder: Builder) -> Held {
    let held = Held::default();
    let there = Arc::clone(&held);
    let opened = process.run(async move {
        let db = builder.open().await.unwrap();
        db.default_keyspace().put(b"k", b"v").await.unwrap();
        *there.lock() = Some(db);
    });
    opened.unwrap();
    held
}

/// Whether the process can still write.
fn writes(process: &Process, held: &Held) -> Result<(), ErrorKind> {
    let db = held.lock().clone().unwrap();
    let put = process.run(async move { db.default_keyspace().put(b"k", b"later").await });
    put.unwrap().map_err(|error| error.kind())
}

fn presence(process: &Process, builder: Builder, wait_max: Duration) -> Presence {
    process.run(async move { builder.presence(wait_max).await.unwrap() }).unwrap()
}

fn open(process: &Process, builder: Builder) -> Result<(), tombolo::Error> {
    process.run(async move { builder.open().await?.close().await }).unwrap()
}

#[test]
fn on_one_host_it_is_known_at_once_who_writes() {
    let world = World::new(1);
    let host = world.add_host("db7");
    let (writer, other) = (host.process("orders"), host.process("prompt"));
    let never = || local(&other.env()).take_over(TakeOver::Never);
    assert_eq!(presence(&other, local(&other.env()), Duration::ZERO), Presence::Nobody);
    let held = start(&writer, local(&writer.env()));

    let began = world.now();
    let Presence::Alive(who, Seen::Process) = presence(&other, local(&other.env()), Duration::ZERO) else {
        panic!("its process runs");
    };
    assert_eq!((who.host.as_str(), who.program.as_str()), ("db7", "orders"));
    assert_eq!(who.process, writer.env().process_facts().process);
    let refused = open(&other, never()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InUse);
    for word in ["orders", "db7", "2026-01-01", &format!("process {}", who.process)] {
        assert!(refused.message().contains(word), "{word}: {refused}");
    }
    assert!(refused.next_step().unwrap().contains("TakeOver::Always"), "{refused}");
    let create = open(&other, never().mode(OpenMode::Create)).unwrap_err();
    assert_eq!(create.kind(), ErrorKind::AlreadyExists);
    assert!(world.now().since(began) < Duration::from_millis(100), "nobody was waited for");
    assert_eq!(writes(&writer, &held), Ok(()), "nobody has disturbed it");

    open(&other, local(&other.env()).take_over(TakeOver::Always)).unwrap();
    assert_eq!(writes(&writer, &held), Err(ErrorKind::Fenced));

    let next = host.process("next");
    let _held = start(&next, local(&next.env()));
    next.kill();
    assert!(matches!(presence(&other, local(&other.env()), Duration::ZERO), Presence::Dead(_)));
    open(&other, never()).unwrap();
    assert!(matches!(presence(&other, local(&other.env()), Duration::ZERO), Presence::Closed(_)));
    open(&other, never()).unwrap();

    // Its number may be another's after a start of the host.
    let last = host.process("last");
    let _held = start(&last, local(&last.env()));
    host.power_loss();
    let after = host.process("after");
    assert!(matches!(presence(&after, local(&after.env()), Duration::ZERO), Presence::Dead(_)));
}

#[test]
fn a_writer_on_another_host_is_asked_for_a_sign_of_life() {
    for idle in [0, 3600] {
        let world = World::new(2);
        let shared = Shared::new(&world);
        let writer = world.add_host("far").process("orders");
        let prompt = world.add_host("near").process("prompt");
        let held = start(&writer, shared.builder(&writer.env()));
        world.run_for(Duration::from_secs(idle));
        let at_once = presence(&prompt, shared.builder(&prompt.env()), Duration::ZERO);
        assert!(matches!(at_once, Presence::Unknown(_)), "{at_once:?}");

        let began = world.now();
        let asked = presence(&prompt, shared.builder(&prompt.env()), Presence::WAIT_MAX);
        let Presence::Alive(who, Seen::Answered(_)) = asked else { panic!("{asked:?}") };
        assert_eq!(who.host, "far");
        assert!(world.now().since(began) <= Duration::from_secs(62), "it looks once a minute");
        let never = shared.builder(&prompt.env()).take_over(TakeOver::Never);
        assert_eq!(open(&prompt, never.clone()).unwrap_err().kind(), ErrorKind::InUse);
        assert_eq!(writes(&writer, &held), Ok(()));
        assert_eq!(shared.left(&world), Vec::<String>::new(), "what asked is gone");

        let closing = held.lock().take().unwrap();
        writer.run(async move { closing.close().await.unwrap() }).unwrap();
        let began = world.now();
        open(&prompt, never).unwrap();
        assert!(world.now().since(began) < Duration::from_secs(1), "it has closed, and says so");
    }
}

#[test]
fn a_writer_that_gives_no_sign_is_dead_after_its_stated_silence() {
    let world = World::new(3);
    let shared = Shared::new(&world);
    let writer = world.add_host("far").process("orders");
    let prompt = world.add_host("near").process("prompt");
    let held = start(&writer, shared.builder(&writer.env()));
    writer.pause();
    let some = presence(&prompt, shared.builder(&prompt.env()), Duration::from_secs(20));
    assert!(matches!(some, Presence::Unknown(_)), "{some:?}");
    let began = world.now();
    open(&prompt, shared.builder(&prompt.env()).take_over(TakeOver::Never)).unwrap();
    let took = world.now().since(began);
    assert!(took >= Presence::WAIT_MAX && took < Presence::WAIT_MAX + Duration::from_secs(10), "{took:?}");
    // The claim alone makes it safe.
    writer.resume();
    assert_eq!(writes(&writer, &held), Err(ErrorKind::Fenced));
}

/// Somebody who asks would not take over: nobody is handed over to.
#[test]
fn a_writer_does_not_hand_over_to_who_only_asks() {
    let world = World::new(7);
    let shared = Shared::new(&world);
    let writer = world.add_host("far").process("orders");
    let prompt = world.add_host("near").process("prompt");
    let held = start(&writer, shared.builder(&writer.env()));
    world.run_for(Duration::from_secs(3600));
    let asking = shared.builder(&prompt.env());
    prompt
        .spawn(TaskClass::Foreground, "ask", async move {
            let _presence = asking.presence(Presence::WAIT_MAX).await;
        })
        .detach();
    world.run_for(Duration::from_millis(900));
    let db = held.lock().clone().unwrap();
    let handed = writer.run(async move { db.hand_over().await }).unwrap();
    assert_eq!(handed.map_err(|error| error.kind()), Err(ErrorKind::NotFound));
    assert_eq!(writes(&writer, &held), Ok(()), "it is the writer still");
}

/// Whatever a writer puts into the chain while it is asked is a sign as well.
#[test]
fn a_writer_at_work_is_seen_sooner_than_it_answers() {
    let world = World::new(4);
    let shared = Shared::new(&world);
    let writer = world.add_host("far").process("orders");
    let prompt = world.add_host("near").process("prompt");
    let held = start(&writer, shared.builder(&writer.env()));
    // It looks once a minute by now.
    world.run_for(Duration::from_secs(3600));
    let db = held.lock().clone().unwrap();
    let env = writer.env();
    let work = async move {
        for number in 0u32..100 {
            db.default_keyspace().put(number.to_be_bytes(), b"v").await.unwrap();
            db.flush().await.unwrap();
            env.sleep(Duration::from_secs(1)).await;
        }
    };
    writer.spawn(TaskClass::Foreground, "work", work).detach();
    let began = world.now();
    let seen = presence(&prompt, shared.builder(&prompt.env()), Presence::WAIT_MAX);
    assert!(matches!(seen, Presence::Alive(_, Seen::Answered(_))), "{seen:?}");
    assert!(world.now().since(began) < Duration::from_secs(5));
}

#[test]
fn what_a_process_has_open_it_does_not_open_again_by_accident() {
    let world = World::new(5);
    let process = world.process("orders");
    let env = process.env();
    let run = async move {
        let kind = |opened: Result<Db, tombolo::Error>| opened.map(drop).map_err(|error| error.kind());
        let first = local(&env).open().await.unwrap();
        for take_over in [TakeOver::Never, TakeOver::FromOthers] {
            let second = local(&env).take_over(take_over).open().await;
            assert_eq!(kind(second), Err(ErrorKind::InUse));
            let destroyed = local(&env).take_over(take_over).destroy().await;
            assert_eq!(destroyed.map(drop).map_err(|error| error.kind()), Err(ErrorKind::InUse));
        }
        first.default_keyspace().put(b"k", b"v").await.unwrap();
        let second = local(&env).take_over(TakeOver::Always).open().await.unwrap();
        assert_eq!(
            first.default_keyspace().put(b"k", b"w").await.map_err(|error| error.kind()),
            Err(ErrorKind::Fenced)
        );
        // A handle that is fenced, closed or dropped is not open.
        second.close().await.unwrap();
        let third = local(&env).open().await.unwrap();
        drop(third);
        let fourth = local(&env).open().await.unwrap();
        assert_eq!(fourth.default_keyspace().get(b"k").await.unwrap().as_deref(), Some(&b"v"[..]));
        // Another process takes it, as one does that was started to replace this one.
        let other = Db::builder("file:///other").env(env.clone()).options(options());
        other.open().await.unwrap().close().await.unwrap();
        fourth.close().await.unwrap();
    };
    process.run(run).unwrap();
}

#[test]
fn a_process_takes_over_from_another_unless_it_is_told_not_to() {
    let world = World::new(6);
    let (old, new) = (world.process("old"), world.process("new"));
    let held = start(&old, local(&old.env()));
    open(&new, local(&new.env())).unwrap();
    assert_eq!(writes(&old, &held), Err(ErrorKind::Fenced));
    // The handle that was fenced here does not stand in the way of a new one.
    open(&old, local(&old.env())).unwrap();
}

fn ask(process: &Process, builder: Builder, ask: Ask) -> Result<Answered, tombolo::Error> {
    process.run(async move { builder.ask(ask).await }).unwrap()
}

#[test]
fn a_writer_does_what_it_is_asked_with_no_code_of_its_own() {
    for idle in [0, 3600] {
        let world = World::new(8);
        let shared = Shared::new(&world);
        let writer = world.add_host("far").process("orders");
        let prompt = world.add_host("near").process("prompt");
        let asked = |question| ask(&prompt, shared.builder(&prompt.env()), question);
        assert_eq!(asked(Ask::Flush).unwrap_err().kind(), ErrorKind::NotFound);
        let held = start(&writer, shared.builder(&writer.env()));
        let db = || held.lock().clone().unwrap();
        world.run_for(Duration::from_secs(idle));

        let began = world.now();
        let flushed = asked(Ask::Flush).unwrap();
        assert!(world.now().since(began) <= Duration::from_secs(62), "it looks once a minute");
        assert_eq!(
            (flushed.epoch, flushed.fact("tables_before"), flushed.fact("tables")),
            (db().epoch(), Some("0"), Some("1"))
        );
        assert_eq!(db().stats().flushes, 1, "it is done once");
        let began = world.now();
        asked(Ask::Compact).unwrap();
        let made = asked(Ask::Checkpoint("monday".into())).unwrap();
        assert!(world.now().since(began) <= Duration::from_secs(10), "who asks again is heard sooner");
        assert_eq!((made.fact("name"), made.fact("entries")), (Some("monday"), Some("1")));
        let again = asked(Ask::Checkpoint("monday".into())).unwrap_err();
        assert_eq!(again.kind(), ErrorKind::AlreadyExists, "{again}");
        assert!(again.next_step().is_some() && again.message().contains("monday"), "{again}");
        let properties = asked(Ask::Properties).unwrap();
        assert_eq!(properties.fact("epoch"), Some(db().epoch().0.to_string().as_str()));
        assert_eq!(shared.left(&world), Vec::<String>::new());
        assert_eq!(writes(&writer, &held), Ok(()));
    }
}

#[test]
fn a_writer_of_the_same_host_is_woken() {
    let world = World::new(11);
    let host = world.add_host("db7");
    let (writer, prompt) = (host.process("orders"), host.process("prompt"));
    let held = start(&writer, local(&writer.env()));
    world.run_for(Duration::from_secs(3600));
    for flushes in 1..4 {
        let began = world.now();
        ask(&prompt, local(&prompt.env()), Ask::Flush).unwrap();
        assert!(world.now().since(began) < Duration::from_secs(2));
        assert_eq!(writes(&writer, &held), Ok(()));
        assert_eq!(held.lock().as_ref().unwrap().stats().flushes, flushes);
        world.run_for(Duration::from_secs(3600));
    }
}

/// A handle that is closed or dropped is not kept open by what was asked of it.
#[test]
fn who_closes_does_not_wait_for_questions() {
    for closes in [true, false] {
        let world = World::new(9);
        let shared = Shared::new(&world);
        let writer = world.add_host("far").process("orders");
        let prompt = world.add_host("near").process("prompt");
        let held = start(&writer, shared.builder(&writer.env()));
        world.run_for(Duration::from_secs(3600));
        let builder = shared.builder(&prompt.env());
        let answered = Arc::new(Mutex::new(None));
        let there = Arc::clone(&answered);
        let asking =
            async move { *there.lock() = Some(builder.ask(Ask::Flush).await.map_err(|error| error.kind())) };
        prompt.spawn(TaskClass::Foreground, "ask", asking).detach();
        world.run_for(Duration::from_millis(700));
        let db = held.lock().take().unwrap();
        if closes {
            writer.run(async move { db.close().await.unwrap() }).unwrap();
        } else {
            writer.run(async move { drop(db) }).unwrap();
        }
        world.run_for(Duration::from_secs(100));
        assert_eq!(answered.lock().clone(), Some(Err(ErrorKind::OutcomeUnknown)));
        assert_eq!(shared.left(&world), Vec::<String>::new());
        // It is not open any more.
        open(&writer, shared.builder(&writer.env())).unwrap();
    }
}

/// It may be done, and the writer clears it away.
#[test]
fn what_somebody_asked_who_died_does_not_stay() {
    let world = World::new(10);
    let shared = Shared::new(&world);
    let writer = world.add_host("far").process("orders");
    let prompt = world.add_host("near").process("prompt");
    let held = start(&writer, shared.builder(&writer.env()));
    world.run_for(Duration::from_secs(3600));
    writer.pause();
    let builder = shared.builder(&prompt.env());
    prompt
        .spawn(TaskClass::Foreground, "ask", async move {
            let _never = builder.ask(Ask::Checkpoint("late".into())).await;
        })
        .detach();
    world.run_for(Duration::from_secs(5));
    prompt.kill();
    assert_eq!(shared.left(&world).len(), 2, "the question, and the record");
    writer.resume();
    world.run_for(Duration::from_secs(300));
    assert_eq!(shared.left(&world), Vec::<String>::new());
    assert_eq!(writes(&writer, &held), Ok(()));
}
