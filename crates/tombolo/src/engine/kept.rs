//! A view that outlives the call that looked at it.

use std::ops::Deref;
use std::sync::Arc;

use super::{Engine, View};

/// Keeps a view for a read that waits for the store. When the read ends, and other tables have
/// taken the place of the view's meanwhile, collection looks again: perhaps nobody else keeps them.
#[derive(Debug)]
pub(crate) struct Kept {
    view: Arc<View>,
    /// Dropped last: it tells that the view is gone.
    end: End,
}

#[derive(Debug)]
struct End {
    engine: Arc<Engine>,
    is_behind: bool,
}

impl Kept {
    pub(crate) fn new(engine: &Arc<Engine>, view: Arc<View>) -> Kept {
        Kept { view, end: End { engine: Arc::clone(engine), is_behind: false } }
    }
}

impl Deref for Kept {
    type Target = View;

    fn deref(&self) -> &View {
        &self.view
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        self.end.is_behind = !Arc::ptr_eq(&self.view.version, &self.end.engine.view().version);
    }
}

impl Drop for End {
    fn drop(&mut self) {
        if self.is_behind {
            self.engine.work.raise();
        }
    }
}
