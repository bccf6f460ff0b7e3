//! Stores that keep bytes themselves. What only wraps another store is a [`crate::layer`].

pub mod local;
pub mod local_log;
pub mod memory;

use tombolo_env::Env;

use crate::{Error, ErrorKind, Request, Result};

/// Where every request begins: lets others run in a simulation, and turns back what comes too late.
pub(crate) async fn begin(env: &Env, request: Request, doing: &str) -> Result<()> {
    env.yield_now().await;
    match request.deadline {
        Some(deadline) if env.now() >= deadline => {
            Err(Error::new(ErrorKind::DeadlineExceeded, format!("the deadline passed before {doing} began; nothing took effect")))
        }
        _ => Ok(()),
    }
}
