//! The database that is read: in memory, opened at a store of any latency.

use std::sync::Arc;
use std::time::Duration;

use tombolo::{Db, Env, OpenMode, Options};
use tombolo_storage::layer::flow::FlowObjectStore;
use tombolo_storage::layer::throttle::{Latency, Throttle, ThrottleObjectStore};
use tombolo_storage::{Epoch, LogStore, ObjectInfo, ObjectStore, Purpose, Request, Uri};

use super::far::Far;
use super::work::{Writing, fill, settle};
use crate::failure::{Failure, Result};
use crate::text;

/// Latencies that are drawn to find out what can be had.
const DRAWS: usize = 100_000;

/// See the module.
pub(super) struct Place {
    pub(super) env: Env,
    uri: String,
    objects: Arc<dyn ObjectStore>,
    logs: Arc<dyn LogStore>,
    shape: String,
    memory_bytes: u64,
}

/// Memory for reading, for so many bytes of keys and values: most blocks are not in it, all filters
/// and indexes are.
fn memory_bytes(data_bytes: u64) -> u64 {
    (data_bytes / 8).clamp(4 << 20, 64 << 20)
}

impl Place {
    /// Fills a database, and lets it settle.
    pub(super) fn load(keys: u64, value_bytes: usize, seed: u64) -> Result<Place> {
        let env = Env::real();
        let registry = crate::database::registry();
        let uri = format!("mem://latency-{}-{seed}", std::process::id());
        let parsed = Uri::parse(&uri)?;
        let objects = registry.open_object_store(&env, &parsed)?;
        let logs = registry.open_log_store(&env, &parsed, None, &objects)?;
        let db = Db::builder(&uri)
            .stores(Arc::clone(&objects), Arc::clone(&logs))
            .mode(OpenMode::Create)
            .open()
            .wait()?;
        fill(&db, Writing::Random, keys, value_bytes, seed)?;
        settle(&db)?;
        let shape = shape_of(&db);
        db.close().wait()?;
        let memory_bytes = memory_bytes(keys * (20 + value_bytes as u64));
        Ok(Place { env, uri, objects, logs, shape, memory_bytes })
    }

    /// Merges all tables, so that a key lies in one, and no filter passes it falsely elsewhere.
    pub(super) fn merge(&mut self) -> Result<()> {
        let stores = (Arc::clone(&self.objects), Arc::clone(&self.logs));
        let db = Db::builder(&self.uri).stores(stores.0, stores.1).mode(OpenMode::Open).open().wait()?;
        db.compact().wait()?;
        self.shape = shape_of(&db);
        Ok(db.close().wait()?)
    }

    pub(super) fn shape(&self) -> &str {
        &self.shape
    }

    fn throttled(&self, latency: Latency) -> Arc<dyn ObjectStore> {
        Arc::new(ThrottleObjectStore::new(
            &self.env,
            Arc::clone(&self.objects),
            Throttle { latency, ..Throttle::default() },
        ))
    }

    /// The store as it is, and what lies in it that is large.
    pub(super) fn raw(&self, latency: Latency) -> Result<(Arc<dyn ObjectStore>, Vec<ObjectInfo>)> {
        let listed = self.env.block_on(self.objects.list(
            Request::new(Purpose::Verify, Epoch::NONE),
            "",
            None,
            1000,
        ))?;
        let large: Vec<_> = listed.objects.into_iter().filter(|object| object.length > 1 << 20).collect();
        if large.is_empty() {
            return Err(Failure::Usage("no table is larger than a megabyte: say a larger --num".into()));
        }
        Ok((self.throttled(latency), large))
    }

    /// Opens the database as one that finds such a store at its URI.
    pub(super) fn open(&self, latency: Latency) -> Result<Far> {
        let hedged = tombolo_storage::layer::hedge::HedgeObjectStore::new(&self.env, self.throttled(latency));
        self.open_on(Arc::new(FlowObjectStore::new(&self.env, Arc::new(hedged))))
    }

    /// Opens it so that all requests are made one after another.
    pub(super) fn open_one_by_one(&self, latency: Latency) -> Result<Far> {
        self.open_on(Arc::new(FlowObjectStore::one_by_one(&self.env, self.throttled(latency))))
    }

    fn open_on(&self, objects: Arc<dyn ObjectStore>) -> Result<Far> {
        let memory = format!("memory_bytes={}", self.memory_bytes);
        let options = Options::parse([memory.as_str(), "automatic_compaction=false"])?;
        let builder = Db::builder(&self.uri)
            .env(self.env.clone())
            .stores(objects, Arc::clone(&self.logs))
            .options(options);
        let db = builder.mode(OpenMode::Open).open().wait()?;
        let keyspace = db.default_keyspace();
        Ok(Far { db, keyspace })
    }

    /// The least ratio of the 99th percentile to the median that a second request for one read in
    /// twenty reaches, with the best delay.
    pub(super) fn least_p99(&self, latency: Latency) -> f64 {
        let draw = || latency.draw(&self.env).as_secs_f64();
        let first = |number| first(&self.env, latency, number);
        let pairs: Vec<(f64, f64)> = (0..DRAWS).map(|number| (first(number), draw())).collect();
        let mut firsts: Vec<f64> = pairs.iter().map(|(first, _)| *first).collect();
        firsts.sort_by(f64::total_cmp);
        let median = firsts[DRAWS / 2].max(1e-9);
        let p99_with = |delay: f64| {
            let mut took: Vec<f64> = pairs
                .iter()
                .map(|(first, second)| if *first > delay { first.min(delay + second) } else { *first })
                .collect();
            took.sort_by(f64::total_cmp);
            took[DRAWS / 100 * 99]
        };
        // Delays that one read in twenty exceeds, or fewer.
        let least = [0.95, 0.96, 0.97, 0.98]
            .map(|share| p99_with(firsts[share_of(DRAWS, share)]))
            .into_iter()
            .fold(f64::MAX, f64::min);
        least / median
    }

    /// See [`least_at_once`].
    pub(super) fn least_at_once(&self, latency: Latency, requests: f64) -> f64 {
        least_at_once(&self.env, latency, requests)
    }
}

/// What a request takes in seconds: one in as many as there are nodes goes to the slow one, the
/// second request for it does not.
fn first(env: &Env, latency: Latency, number: usize) -> f64 {
    let nodes = usize::try_from(latency.nodes).unwrap_or(usize::MAX);
    let is_slow = nodes > 0 && number.is_multiple_of(nodes);
    (latency.draw(env) + if is_slow { latency.slow_node } else { Duration::ZERO }).as_secs_f64()
}

/// The ratio of medians that so many requests (a mean) at once have to the same one after another:
/// the slowest of them to their sum. Who makes fewer of them, or some twice, can be below.
fn least_at_once(env: &Env, latency: Latency, requests: f64) -> f64 {
    let calls = || {
        (1..=DRAWS)
            .map(|call| share_of(call, requests)..share_of(call + 1, requests))
            .filter(|range| !range.is_empty())
    };
    let median = |of: &dyn Fn(&mut dyn Iterator<Item = f64>) -> f64| {
        let mut took: Vec<f64> =
            calls().map(|range| of(&mut range.map(|number| first(env, latency, number)))).collect();
        took.sort_by(f64::total_cmp);
        took.get(took.len() / 2).copied().unwrap_or(0.0)
    };
    median(&|each| each.fold(0.0, f64::max)) / median(&|each| each.sum()).max(1e-9)
}

fn shape_of(db: &Db) -> String {
    let stats = db.stats();
    let levels: Vec<_> = stats.tables_by_level.iter().map(u64::to_string).collect();
    format!("{} in tables by level: {}", text::bytes(stats.table_bytes), levels.join(" "))
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a small number")]
fn share_of(count: usize, share: f64) -> usize {
    (count as f64 * share) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_at_once_take_as_long_as_the_slowest() {
        let env = Env::real();
        let least = |latency, requests| least_at_once(&env, latency, requests);
        let steady = Latency::fixed(Duration::from_millis(25));
        assert!((least(steady, 4.0) - 0.25).abs() < 0.001 && (least(steady, 1.0) - 1.0).abs() < 0.001);
        // Half of the calls make two, half three.
        assert!((0.33..0.51).contains(&least(steady, 2.5)));
        // The slowest of several is beyond the median.
        assert!((0.3..0.45).contains(&least(Latency::S3, 4.0)), "{}", least(Latency::S3, 4.0));
        assert_eq!(least(steady, 0.0), 0.0, "no requests");
    }
}
