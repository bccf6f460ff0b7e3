//! A reader whose rounds its owner makes: what it shows stays until the next one.

use std::sync::Arc;
use std::time::Duration;

use tombolo_storage::{Error, ErrorKind, Result};

use super::follow::Follower;
use super::{Begun, FollowRequest, How, ReaderOptions, begin, tasks};
use crate::engine::Engine;
use crate::manifest::State;
use crate::manifest::chain::Tip;

/// See the module's documentation. Its pins are renewed until it is closed or dropped.
pub(crate) struct Driven {
    engine: Arc<Engine>,
    follower: Follower,
}

impl Driven {
    /// Opens it, and makes the first round. Without a log store, or of a log that only its own
    /// process can read, it shows what tables hold.
    ///
    /// # Errors
    /// As [`super::open`].
    pub(crate) async fn open(request: FollowRequest) -> Result<Driven> {
        let lease = match request.how {
            How::Follow(options) => options.lease,
            How::Look => ReaderOptions::default().lease,
        };
        let options = ReaderOptions { lag_max: Duration::MAX, lease, ..ReaderOptions::default() };
        let how = How::Follow(options);
        let Begun { engine, following, follower, pins, reader } =
            begin(FollowRequest { how, ..request }).await?;
        let Some(follower) = follower else {
            return Err(Error::new(ErrorKind::Bug, "a reader that makes rounds has a follower"));
        };
        let mut driven = Driven { engine, follower };
        driven.follower.refuse_streams("a mirror")?;
        match driven.follower.round().await {
            Err(error) if error.kind() == ErrorKind::Unsupported && driven.follower.reads_logs() => {
                tracing::warn!(%error, "what the log holds is not shown before it is in tables");
                driven.follower.without_logs();
                driven.follower.round().await?;
            }
            round => round?,
        }
        tasks::keep(&driven.engine, &following, pins, reader.lease);
        Ok(driven)
    }

    /// Comes up to date.
    ///
    /// # Errors
    /// As a reader's rounds.
    pub(crate) async fn round(&mut self) -> Result<()> {
        self.follower.round().await
    }

    /// What reads what it shows.
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    /// The state whose tables it shows, all of them pinned.
    pub(crate) fn state(&self) -> &Arc<State> {
        self.follower.state()
    }

    /// The newest that it has seen of the chain.
    pub(crate) fn tip(&self) -> &Tip {
        self.follower.tip()
    }

    /// Whether what it shows beyond tables is nothing but entries of keyspaces that the state has.
    ///
    /// # Errors
    /// `Unsupported` for settings of a later version.
    pub(crate) fn shows_entries_alone(&self) -> Result<bool> {
        let view = self.engine.view_owned();
        let has_tables = view.waiting.iter().any(|sealed| sealed.ingested.is_some());
        Ok(!has_tables && !self.follower.changes_keyspaces()?)
    }

    /// Gives its pins back.
    pub(crate) async fn close(&self) {
        self.follower.release_all().await;
        self.engine.abandon();
    }
}

impl Drop for Driven {
    fn drop(&mut self) {
        self.engine.abandon();
    }
}
