//! How a database is opened.

use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use tombolo::{Builder, Db, Env, OpenMode, Options, Registry, Result, TakeOver};

use crate::boundary::{handle, handle_mut, invalid};
use crate::callbacks::{FoldOperands, FreeState, OperatorCallbacks, State, TellEvent, ToldByEvents};
use crate::{guarded, text};

/// A database is opened, and created if there is none.
pub const TOMBOLO_CREATE_OR_OPEN: c_int = 0;
/// A database is created; there must be none.
pub const TOMBOLO_CREATE: c_int = 1;
/// A database is opened; there must be one.
pub const TOMBOLO_OPEN: c_int = 2;

/// The database is taken from whichever process has it; not from a handle of this process.
pub const TOMBOLO_TAKE_OVER_OTHERS: c_int = 0;
/// The database is taken from whichever handle has it.
pub const TOMBOLO_TAKE_OVER_ALWAYS: c_int = 1;
/// Opening fails with `InUse` when somebody has the database.
pub const TOMBOLO_TAKE_OVER_NEVER: c_int = 2;

/// How databases are opened: settings, the log, operators, who is told of events.
#[derive(Default)]
pub struct OpenOptions {
    options: Options,
    mode: OpenMode,
    take_over: TakeOver,
    log: Option<String>,
    listener: Option<Arc<ToldByEvents>>,
    operators: Vec<OperatorCallbacks>,
}

impl OpenOptions {
    /// A builder for a database at `uri`, with the world that it is to run in.
    pub(crate) fn builder(&self, uri: &str, env: &Env) -> Builder {
        let mut registry = Registry::with_defaults();
        tombolo_near_compute_log::register(&mut registry, Ok(None));
        let mut builder = Db::builder(uri)
            .env(env.clone())
            .registry(registry)
            .mode(self.mode)
            .take_over(self.take_over)
            .options(self.options.clone());
        if let Some(log) = &self.log {
            builder = builder.log(log.clone());
        }
        if let Some(listener) = &self.listener {
            builder = builder.listener(Arc::clone(listener) as Arc<dyn tombolo::Listener>);
        }
        for operator in &self.operators {
            builder = builder.operator(operator.name.clone(), operator.operator());
        }
        builder
    }
}

/// Options as they are by default.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_options_create() -> Option<Box<OpenOptions>> {
    Some(Box::default())
}

/// Databases that were opened with them stay open.
#[unsafe(no_mangle)]
pub extern "C" fn tombolo_options_destroy(options: Option<Box<OpenOptions>>) {
    drop(options);
}

/// Sets a setting of the database by its name: `memory_bytes` and others.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_options_set(
    options: Option<&mut OpenOptions>,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || handle_mut(options, "options")?.options.set(text!(name)?, text!(value)?));
}

/// Whether opening may create: `TOMBOLO_CREATE_OR_OPEN` is the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_options_set_mode(
    options: Option<&mut OpenOptions>,
    mode: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        handle_mut(options, "options")?.mode = match mode {
            TOMBOLO_CREATE_OR_OPEN => OpenMode::CreateOrOpen,
            TOMBOLO_CREATE => OpenMode::Create,
            TOMBOLO_OPEN => OpenMode::Open,
            _ => return Err(invalid("there is no such mode of opening").expected("0, 1 or 2").found(mode)),
        };
        Ok(())
    });
}

/// From whom opening may take the database: `TOMBOLO_TAKE_OVER_OTHERS` is the default.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_options_set_take_over(
    options: Option<&mut OpenOptions>,
    take_over: c_int,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        handle_mut(options, "options")?.take_over = match take_over {
            TOMBOLO_TAKE_OVER_OTHERS => TakeOver::default(),
            TOMBOLO_TAKE_OVER_ALWAYS => TakeOver::Always,
            TOMBOLO_TAKE_OVER_NEVER => TakeOver::Never,
            _ => {
                return Err(invalid("there is no such way to take over")
                    .expected("0, 1 or 2")
                    .found(take_over));
            }
        };
        Ok(())
    });
}

/// The log store, as a URI. A database is always opened with the log that it was created with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_options_set_log(
    options: Option<&mut OpenOptions>,
    uri: *const c_char,
    error: *mut *mut c_char,
) {
    guarded!(error, (), || {
        handle_mut(options, "options")?.log = Some(text!(uri)?.to_owned());
        Ok(())
    });
}

/// A merge operator for keyspaces whose setting `operator` names it, as `name@version`.
/// `free_state` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_options_add_operator(
    options: Option<&mut OpenOptions>,
    name: *const c_char,
    version: u32,
    fold: FoldOperands,
    state: *mut c_void,
    free_state: FreeState,
    error: *mut *mut c_char,
) {
    // Also after an error the state is freed: once, whatever happens.
    let state = State::new(state, free_state);
    guarded!(error, (), || {
        let operator = OperatorCallbacks::new(text!(name)?, version, fold, state)?;
        handle_mut(options, "options")?.operators.push(operator);
        Ok(())
    });
}

/// Who is told of flushes, compactions, stalls, trouble and takeover, one after the other, on a
/// thread of the engine: for the program's log. `free_state` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tombolo_options_set_listener(
    options: Option<&mut OpenOptions>,
    tell: TellEvent,
    state: *mut c_void,
    free_state: FreeState,
    error: *mut *mut c_char,
) {
    let state = State::new(state, free_state);
    guarded!(error, (), || {
        let listener = Arc::new(ToldByEvents::new(tell, state)?);
        handle_mut(options, "options")?.listener = Some(listener);
        Ok(())
    });
}

/// The options to open with: a null pointer says the defaults.
pub(crate) fn or_default<T>(
    options: Option<&OpenOptions>,
    work: impl FnOnce(&OpenOptions) -> Result<T>,
) -> Result<T> {
    match handle(options, "options") {
        Ok(options) => work(options),
        Err(_) => work(&OpenOptions::default()),
    }
}
