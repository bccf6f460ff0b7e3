//! The client, and another one when it falls silent.
//!
//! The crate hdfs-native keeps one connection to a NameNode, on which all requests travel, and
//! waits for their answers without end. So each is waited for with a limit here; when it passes,
//! the connection is taken for dead and the client replaced. A client's own tasks (its connections,
//! the renewal of leases) run on a runtime of its own and end with it, once the last request that
//! it serves has.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use hdfs_native::{Client, ClientBuilder};
use parking_lot::Mutex;

use super::failure::Failure;
use crate::backend::remote::Runtime;
use crate::{Error, ErrorKind, Result};

/// What a client is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) url: String,
    /// In the order given: the last of a name counts. Beats what the Hadoop configuration says.
    pub(super) configuration: Vec<(String, String)>,
    pub(super) user: Option<String>,
    pub(super) replication: Option<u32>,
    pub(super) timeout: Duration,
}

/// A client, and what it runs on.
#[derive(Debug)]
pub(super) struct Connected {
    pub(super) client: Client,
    generation: u64,
    // After the client: it ends what that left behind.
    _runtime: Runtime,
}

/// The client of the day. Safe to call from many tasks.
#[derive(Debug)]
pub(super) struct Cluster {
    settings: Settings,
    current: Mutex<Arc<Connected>>,
}

impl Connected {
    fn new(settings: &Settings, generation: u64) -> Result<Connected> {
        let runtime = Runtime::start("tombolo-hdfs")?;
        let ended = || Error::new(ErrorKind::Closed, "the runtime ended while a client was made");
        let mut builder = ClientBuilder::new()
            .with_url(&settings.url)
            .with_config(settings.configuration.iter().map(|(name, value)| (name.clone(), value.clone())))
            .with_io_runtime(runtime.handle().ok_or_else(ended)?);
        if let Some(user) = &settings.user {
            builder = builder.with_user(user);
        }
        let client =
            builder.build().map_err(|error| Failure::judge(&error).error("opening HDFS", &settings.url))?;
        Ok(Connected { client, generation, _runtime: runtime })
    }
}

impl Cluster {
    /// Sends nothing.
    ///
    /// # Errors
    /// What the Hadoop configuration has wrong.
    pub(super) fn open(settings: Settings) -> Result<Cluster> {
        let current = Mutex::new(Arc::new(Connected::new(&settings, 0)?));
        Ok(Cluster { settings, current })
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Keep it as long as anything that it made is used.
    pub(super) fn connected(&self) -> Arc<Connected> {
        Arc::clone(&self.current.lock())
    }

    /// One request.
    pub(super) async fn ask<T, F>(
        &self,
        request: impl FnOnce(Arc<Connected>) -> F,
    ) -> std::result::Result<T, Failure>
    where
        F: Future<Output = hdfs_native::Result<T>>,
    {
        let connected = self.connected();
        self.wait(&connected, 1, request(Arc::clone(&connected))).await
    }

    /// Waits for what `connected` does, so many times the usual limit.
    pub(super) async fn wait<T>(
        &self,
        connected: &Connected,
        times: u32,
        work: impl Future<Output = hdfs_native::Result<T>>,
    ) -> std::result::Result<T, Failure> {
        match tokio::time::timeout(self.settings.timeout * times, work).await {
            Ok(done) => done.map_err(|error| Failure::judge(&error)),
            Err(_) => {
                self.replace(connected.generation);
                Err(Failure::silence())
            }
        }
    }

    /// Makes another client in the place of one that fell silent, unless that was done already.
    fn replace(&self, generation: u64) {
        let mut current = self.current.lock();
        if current.generation != generation {
            return;
        }
        match Connected::new(&self.settings, generation + 1) {
            Ok(connected) => {
                tracing::debug!(url = %self.settings.url, "the connection to HDFS fell silent; another is \
                    made");
                *current = Arc::new(connected);
            }
            // The one that there is may come to its senses.
            Err(error) => tracing::warn!(%error, "no other client for HDFS could be made"),
        }
    }
}
