//! Counts what takeovers of logs did with regions: nothing that a client sees tells it, so it is
//! heard from the log's own events.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};

/// Where those events are from.
const TARGET: &str = "tombolo_near_compute_log::fence";

/// A listener that hears nothing else.
#[derive(Clone, Debug, Default)]
pub(super) struct Takeovers(Arc<[AtomicU64; 2]>);

impl Takeovers {
    /// Regions kept, and regions copied to.
    pub(super) fn regions(&self) -> (u64, u64) {
        (self.0[0].load(Ordering::Relaxed), self.0[1].load(Ordering::Relaxed))
    }
}

impl Visit for &Takeovers {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "kept" => self.0[0].fetch_add(value, Ordering::Relaxed),
            "copied" => self.0[1].fetch_add(value, Ordering::Relaxed),
            _ => 0,
        };
    }

    fn record_debug(&mut self, _field: &Field, _value: &dyn std::fmt::Debug) {}
}

impl Subscriber for Takeovers {
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        if self.enabled(metadata) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target() == TARGET
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}

    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}

    fn event(&self, event: &Event<'_>) {
        event.record(&mut &*self);
    }

    fn enter(&self, _span: &Id) {}

    fn exit(&self, _span: &Id) {}
}
