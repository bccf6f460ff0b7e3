//! The chain as a process follows it that has no claim: readers, and who stands by.

use std::sync::Arc;

use tombolo_env::Env;
use tombolo_storage::{Epoch, Error, ErrorKind, ObjectStore, Purpose, Result};

use super::io::{Io, RetryLimit};
use super::load_tip;
use crate::manifest::chain::follow::{Follow, Followed};
use crate::manifest::chain::load::{Load, Proof};
use crate::manifest::chain::open::not_found;
use crate::manifest::chain::{Tip, missing};

/// A proven tip, brought up to date on demand (rule 3).
#[derive(Debug)]
pub(crate) struct ChainFollower {
    io: Io,
    tip: Tip,
}

impl ChainFollower {
    /// Loads the newest state and proves it.
    ///
    /// # Errors
    /// As [`super::load`].
    pub(crate) async fn open(env: &Env, store: &Arc<dyn ObjectStore>) -> Result<ChainFollower> {
        let io =
            Io { env: env.clone(), store: Arc::clone(store), epoch: Epoch::NONE, purpose: Purpose::Manifest };
        let tip = load_tip(&Io { purpose: Purpose::Open, ..io.clone() }).await?;
        Ok(ChainFollower { io, tip })
    }

    /// The newest proven tip.
    pub(crate) fn tip(&self) -> &Tip {
        &self.tip
    }

    /// The store as this process uses it.
    pub(crate) fn io(&self) -> &Io {
        &self.io
    }

    /// Whatever was in the chain when this was called is in the tip when it returns. One read and
    /// one list when nothing is new.
    ///
    /// # Errors
    /// `NotFound` once the database is destroyed; `Corrupt`; those of the store: the tip stays.
    pub(crate) async fn advance(&mut self) -> Result<()> {
        let mut follow = Follow::new(self.tip.clone(), true);
        self.tip = match self.io.run(&mut follow, RetryLimit::Bounded).await.flatten()? {
            Followed::Current(tip) => tip,
            Followed::Unchanged => {
                return Err(Error::new(ErrorKind::Bug, "a confirmation was asked for and not made"));
            }
            Followed::Lost => {
                let mut load = Load::new(self.tip.incarnation, Proof::List);
                let loaded = self.io.run(&mut load, RetryLimit::Bounded).await.flatten()?;
                loaded.ok_or_else(|| missing(self.tip.incarnation, self.tip.slot))?
            }
        };
        if self.tip.state.is_destroyed() {
            return Err(not_found("the database was destroyed"));
        }
        Ok(())
    }
}
