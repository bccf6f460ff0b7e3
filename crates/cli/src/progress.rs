//! Bars for work that may take long, on a terminal alone.

use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Output;

/// A bar that counts bytes; hidden where nobody watches. `verb` says what was done with them.
pub fn bar(verb: &str, output: &Output) -> ProgressBar {
    if !output.is_watched() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(0);
    let template = format!("{{spinner}} {verb} {{bytes}} of {{total_bytes}} {{wide_bar}} {{eta}}");
    if let Ok(style) = ProgressStyle::with_template(&template) {
        bar.set_style(style);
    }
    bar
}
