//! An object store and the log beside it, opened by URI, over a loss of power and a takeover.

use std::sync::Arc;

use bytes::Bytes;
use tombolo_env::Env;
use tombolo_env::simulated::{Crash, World};
use tombolo_storage::conformance::log::{MemoryChain, append, entry};
use tombolo_storage::log_memory::Uncounted;
use tombolo_storage::{
    ConfigurationChain, Epoch, ErrorKind, Incarnation, Life, Log, LogContext, LogEntry, LogOffset, LogStore,
    ObjectKind, ObjectName, ObjectStore, Placement, Purpose, Registry, Request, Result, Uri,
};

struct Pair {
    env: Env,
    objects: Arc<dyn ObjectStore>,
    log: Arc<dyn LogStore>,
    chain: Arc<MemoryChain>,
}

fn open(env: &Env, uri: &str, chain: &Arc<MemoryChain>) -> Result<Pair> {
    let (registry, uri) = (Registry::default(), Uri::parse(uri)?);
    let objects = registry.open_object_store(env, &uri)?;
    let log = registry.open_log_store(env, &uri, None, &objects)?;
    Ok(Pair { env: env.clone(), objects, log, chain: Arc::clone(chain) })
}

impl Pair {
    fn context(&self, epoch: u64) -> LogContext {
        let chain: Arc<dyn ConfigurationChain> = Arc::<MemoryChain>::clone(&self.chain);
        let (env, objects) = (self.env.clone(), Arc::clone(&self.objects));
        LogContext {
            env,
            incarnation: Incarnation(1),
            database: 1,
            epoch: Epoch(epoch),
            chain,
            objects,
            memory: Arc::new(Uncounted),
        }
    }

    fn begin(&self, epoch: u64) -> Result<Arc<dyn Log>> {
        self.env.block_on(self.log.open(&self.context(epoch), 1))
    }

    fn put(&self, name: &str) -> Result<()> {
        let (name, placement) = (ObjectName::new(name)?, Placement::new(ObjectKind::Table, Life::Long));
        let request = Request::new(Purpose::Flush, Epoch(1));
        self.env
            .block_on(self.objects.put_if_absent(request, &name, placement, Bytes::from_static(b"table")))
            .map(drop)
    }

    /// Fences every log of older epochs and reads it.
    fn recover(&self, epoch: u64) -> Result<Vec<LogEntry>> {
        let context = self.context(epoch);
        let mut entries = Vec::new();
        for record in self.chain.named() {
            if record.id.epoch >= context.epoch {
                continue;
            }
            self.env.block_on(async {
                let sealed = self.log.fence(&context, &record, LogOffset::ZERO).await?;
                let mut reader = self.log.read(&context, &record, LogOffset::ZERO, sealed).await?;
                while let Some((entry, _)) = reader.next().await? {
                    entries.push(entry);
                }
                Ok::<_, tombolo_storage::Error>(())
            })?;
        }
        Ok(entries)
    }

    fn names(&self) -> Result<Vec<String>> {
        let request = Request::new(Purpose::Open, Epoch::NONE);
        let page = self.env.block_on(self.objects.list(request, "", None, 100))?;
        Ok(page.objects.iter().map(|info| info.name.to_string()).collect())
    }
}

/// Objects and entries in turn, each noted when it was acknowledged; ends at the first error.
fn work(
    env: &Env,
    uri: &str,
    chain: &Arc<MemoryChain>,
    alive: impl Fn() -> bool,
    noted: &mut (u64, u64),
) -> Result<()> {
    let pair = open(env, uri, chain)?;
    let log = pair.begin(1)?;
    for number in 1..=6 {
        let end = append(env, &*log, 0, &entry(number, 300))?;
        log.sync(0, end)?;
        if alive() {
            noted.0 = number;
        }
        pair.put(&format!("0000000000000001/table/{number}"))?;
        if alive() {
            noted.1 = number;
        }
    }
    Ok(())
}

#[test]
fn what_was_acknowledged_survives_a_loss_of_power_at_any_operation() {
    for form in ["mapped", "written"] {
        let uri = format!("file:///data/db?form={form}");
        let mut number = 0;
        loop {
            number += 1;
            let world = World::new(number);
            let (process, chain) = (world.process("writer"), Arc::<MemoryChain>::default());
            process.crash_at(number, Crash::PowerLoss);
            let mut noted = (0, 0);
            let env = process.env();
            // The crash ends the work with an error: the calls are synchronous.
            let outcome = work(&env, &uri, &chain, || process.is_alive(), &mut noted);
            if process.is_alive() {
                outcome.expect("no crash, no error");
                assert!(number > 60, "the work took only {number} operations");
                break;
            }
            let successor = world.process("successor");
            let pair = open(&successor.env(), &uri, &chain).expect("opened");
            let entries = pair.recover(2).expect("recovered");
            let expected: Vec<LogEntry> =
                (1..=entries.len() as u64).map(|number| entry(number, 300)).collect();
            assert_eq!(entries, expected, "{form}, operation {number}: entries in order");
            assert!(
                entries.len() as u64 >= noted.0,
                "{form}, operation {number}: {} of {} entries",
                entries.len(),
                noted.0
            );
            let names = pair.names().expect("listed");
            assert!(names.len() as u64 >= noted.1, "{form}, operation {number}: {names:?} of {}", noted.1);
            assert!(
                names.iter().all(|name| name.contains("/table/")),
                "the log's files are no objects: {names:?}"
            );
            let log = pair.begin(2).expect("the next epoch");
            let end = append(&successor.env(), &*log, 0, &entry(1, 10)).expect("appended");
            log.sync(0, end).expect("synced");
        }
    }
}

#[test]
fn a_takeover_stops_the_former_writer_on_every_pair() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let env = Env::real();
    let path = directory.path().display();
    for uri in [
        format!("file://{path}/mapped?form=mapped"),
        format!("file://{path}/written?form=written"),
        "mem://takeover".into(),
    ] {
        let chain = Arc::<MemoryChain>::default();
        let first = open(&env, &uri, &chain).expect("opened");
        let log = first.begin(1).expect("begun");
        let end = append(&env, &*log, 0, &entry(1, 50)).expect("appended");
        log.sync(0, end).expect("synced");
        let second = open(&env, &uri, &chain).expect("opened");
        assert_eq!(second.recover(2).expect("recovered"), [entry(1, 50)], "{uri}");
        let refused = append(&env, &*log, 0, &entry(2, 50)).expect_err("fenced");
        assert_eq!(refused.kind(), ErrorKind::Fenced, "{uri}: {refused}");
        assert_eq!(env.block_on(log.confirm()).expect_err("fenced").kind(), ErrorKind::Fenced, "{uri}");
        // The first writer's late objects are garbage, and no damage.
        first.put("0000000000000001/table/late").expect("put");
        assert_eq!(second.recover(2).expect("recovered again"), [entry(1, 50)], "{uri}");
    }
}

#[test]
fn identities_tell_stores_apart() {
    let env = Env::real();
    let chain = Arc::<MemoryChain>::default();
    let identity = |uri: &str| open(&env, uri, &chain).expect(uri).log.identity();
    assert_eq!(identity("mem://a"), identity("mem://a"));
    assert_ne!(identity("mem://a"), identity("mem://b"));
    let survival = open(&env, "file:///tmp/nowhere", &chain).expect("opened").log.survival();
    assert!(
        !survival.accepted.is_empty()
            && !survival.durable.is_empty()
            && survival.accepted != survival.durable
    );
}
