//! What goes on beside a fight: checkpoints become clones that are looked at and destroyed, and
//! garbage is collected under the writers.

use std::ffi::OsString;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tombolo::{Db, Env, ErrorKind};
use tombolo_storage::Uri;

use super::oracle::{Place, Sight};
use super::script;
use super::writer::{check_kind, parse_checkpoint};
use crate::database::{self, HowArguments};
use crate::failure::{Failure, Result};

/// Time between two rounds.
const PAUSE: Duration = Duration::from_millis(400);

/// A database beside which things go on.
#[derive(Debug)]
pub struct Beside {
    /// The database.
    pub store: Uri,
    /// How it is opened.
    pub how: HowArguments,
    /// Clones made and looked at.
    pub clones: AtomicU64,
    /// Sweeps that ended well.
    pub sweeps: AtomicU64,
}

impl Beside {
    /// Until `over`; tells `seen` what clones hold, with what must be in them.
    pub fn run(
        &self,
        over: &AtomicBool,
        mut seen: impl FnMut(usize, Place, Sight) -> Result<()>,
    ) -> Result<()> {
        let mut turn = 0u64;
        while !over.load(Ordering::Relaxed) {
            turn += 1;
            self.clone_one(turn, &mut seen).or_else(check_kind)?;
            self.sweep()?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn builder(&self) -> Result<tombolo::Builder> {
        database::builder(&self.store.to_string(), &self.how)
    }

    /// Makes a clone of the newest checkpoint, looks at it, and takes both away.
    fn clone_one(&self, turn: u64, seen: &mut impl FnMut(usize, Place, Sight) -> Result<()>) -> Result<()> {
        let checkpoints = self.builder()?.checkpoints().wait()?;
        let Some((name, least)) = checkpoints.iter().rev().find_map(|checkpoint| {
            let name = checkpoint.name.clone();
            parse_checkpoint(&name).map(|least| (name, least))
        }) else {
            return Ok(());
        };
        let mut target = self.store.clone();
        target.rest = format!("{}-clone-{}-{turn}", target.rest.trim_end_matches('/'), std::process::id());
        let target = target.to_string();
        let (source, new) =
            (self.builder()?.at_checkpoint(&name), database::builder(&target, &HowArguments::default())?);
        // Each other one shares the tables instead of copying them.
        let made = if turn.is_multiple_of(2) { source.share_to(new) } else { source.restore_to(new) };
        match made.wait() {
            Ok(()) => {
                let clone = Db::builder(&target).env(Env::real()).open().wait()?;
                for (thread, sight) in script::look(&clone, &clone.snapshot())?.into_iter().enumerate() {
                    seen(thread, least.get(thread).copied().unwrap_or_default(), sight)?;
                }
                clone.close().wait()?;
                Db::builder(&target).destroy().wait()?;
                self.clones.fetch_add(1, Ordering::Relaxed);
            }
            // Its maker was killed over it, and its successor has swept it.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        for checkpoint in checkpoints {
            match self.builder()?.delete_checkpoint(&checkpoint.name).wait() {
                Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
                _ => {}
            }
        }
        Ok(())
    }

    /// `tombolo gc --delete`, in a process of its own as people run it.
    fn sweep(&self) -> Result<()> {
        let arguments: [OsString; 3] = ["gc".into(), self.store.to_string().into(), "--delete".into()];
        let program = std::env::current_exe().map_err(|error| Failure::io(error, "finding this program"))?;
        let ran = Command::new(program).args(arguments).stdin(Stdio::null()).output();
        let ran = ran.map_err(|error| Failure::io(error, "starting gc"))?;
        match ran.status.code() {
            Some(0) => {
                self.sweeps.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            // Passing trouble: in the next round.
            Some(7) => Ok(()),
            _ => Err(Failure::Check(format!(
                "gc ended with {}: {}",
                ran.status,
                String::from_utf8_lossy(&ran.stderr)
            ))),
        }
    }
}
