//! What edits do to logs.

use std::sync::Arc;

use tombolo_format::manifest::{Edit, LogRole, MAIN_STREAM};
use tombolo_storage::{Epoch, Error, ErrorKind, LogId, LogOffset, Result};

use super::{EditError, LogState, Origin, State, refuse};

impl State {
    /// Whether there are streams beside the main one: keyspaces of them, or logs.
    pub fn has_streams(&self) -> bool {
        self.keyspaces().any(|keyspace| keyspace.stream != MAIN_STREAM)
            || self.logs.values().any(|log| matches!(log.role, LogRole::Stream(_)))
    }

    /// # Errors
    /// `Unsupported` with streams: `what` would not show them as they are.
    pub(crate) fn check_no_streams(&self, what: &str) -> Result<()> {
        if !self.has_streams() {
            return Ok(());
        }
        let message = format!("the database has streams beside the main one, and {what} does not know them");
        Err(Error::new(ErrorKind::Unsupported, message).advice(
            "open it for writing, which shows all of it; or move what its keyspaces of other streams hold to \
                some that were made without a stream, drop those, and close the database and open it again",
        ))
    }

    pub(super) fn apply_log_edit(
        &mut self,
        edit: &Edit,
        origin: Origin,
    ) -> std::result::Result<(), EditError> {
        let (epoch, lane) = match edit {
            Edit::LogNamed { epoch, lane, .. }
            | Edit::LogSealed { epoch, lane, .. }
            | Edit::LogReplayPoint { epoch, lane, .. }
            | Edit::LogTrimmed { epoch, lane, .. }
            | Edit::LogUnnamed { epoch, lane } => (*epoch, *lane),
            _ => return Ok(()),
        };
        let id = LogId { epoch: Epoch(epoch), lane };
        let logs = Arc::make_mut(&mut self.logs);
        match (edit, logs.get_mut(&id)) {
            (Edit::LogNamed { role, .. }, Some(log)) if *role != log.role => {
                return refuse(format!("log {epoch}/{lane} is of {:?}, now of {role:?}", log.role));
            }
            (Edit::LogNamed { configuration, .. }, Some(log)) => log.configuration = configuration.clone(),
            (Edit::LogNamed { role, configuration, .. }, None) => {
                if matches!(origin, Origin::Record(writer) if writer != id.epoch) {
                    return refuse(format!("a record of another epoch names a new log of epoch {epoch}"));
                }
                let log = LogState {
                    role: *role,
                    configuration: configuration.clone(),
                    sealed: None,
                    replay_point: LogOffset::ZERO,
                    trimmed: 0,
                };
                logs.insert(id, log);
            }
            (_, None) => return refuse(format!("log {epoch}/{lane} is not named")),
            (Edit::LogSealed { length, .. }, Some(log)) => match log.sealed {
                Some(sealed) if sealed.0 != *length => {
                    return refuse(format!(
                        "log {epoch}/{lane} was sealed at {sealed}, now at {}",
                        LogOffset(*length)
                    ));
                }
                _ if log.replay_point.0 > *length => {
                    return refuse(format!(
                        "log {epoch}/{lane} is sealed at {} below its replay point",
                        LogOffset(*length)
                    ));
                }
                _ => log.sealed = Some(LogOffset(*length)),
            },
            (Edit::LogReplayPoint { offset, .. }, Some(log)) => {
                if *offset < log.replay_point.0 || log.sealed.is_some_and(|sealed| sealed.0 < *offset) {
                    return refuse(format!(
                        "log {epoch}/{lane}: replay point {} does not fit {log:?}",
                        LogOffset(*offset)
                    ));
                }
                log.replay_point = LogOffset(*offset);
            }
            (Edit::LogTrimmed { entries, .. }, Some(log)) => {
                if *entries < log.trimmed {
                    return refuse(format!(
                        "log {epoch}/{lane}: {entries} entries given up do not fit {log:?}"
                    ));
                }
                log.trimmed = *entries;
            }
            (_, Some(_)) => {
                logs.remove(&id);
            }
        }
        Ok(())
    }
}
