//! What happens in the background, on standard error: for those who ask for it, and for processes
//! that serve others.

use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{fmt, registry};

/// Shows events from this degree of detail on; 0 shows none. Libraries below ours warn only.
pub fn show(verbosity: u8) {
    let ours = match verbosity {
        0 => return,
        1 => LevelFilter::INFO,
        2 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    // All crates of ours begin with that name.
    let targets = Targets::new().with_target("tombolo", ours).with_default(LevelFilter::WARN);
    // A closed standard error is no failure: what cannot be written there is not complained of
    // there, which would panic.
    let lines = fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_target(false)
        .log_internal_errors(false);
    // Another subscriber is there in no command of ours.
    let _already = registry().with(targets).with(lines).try_init();
}
