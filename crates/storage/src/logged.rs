//! What was logged of a condition that lasts, so that it is logged when it begins and when it
//! changes, and not at each attempt.

use crate::{Error, ErrorKind};

/// The kinds of errors that were told since it last went well.
#[derive(Debug, Default)]
pub struct LoggedErrors(Vec<ErrorKind>);

impl LoggedErrors {
    /// Whether an attempt that failed with `error` is worth a line: none with an error of that kind
    /// has been since it last went well.
    pub fn is_news(&mut self, error: &Error) -> bool {
        let is_news = !self.0.contains(&error.kind());
        if is_news {
            self.0.push(error.kind());
        }
        is_news
    }

    /// An attempt went well. Whether that is news.
    pub fn is_over(&mut self) -> bool {
        let was_told = !self.0.is_empty();
        self.0.clear();
        was_told
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_told_when_it_begins_when_it_changes_and_when_it_comes_back() {
        let mut logged = LoggedErrors::default();
        let [slow, full] =
            [ErrorKind::Retry, ErrorKind::OutOfSpace].map(|kind| Error::new(kind, "an attempt failed"));
        assert!(!logged.is_over(), "nothing was wrong");
        assert_eq!(
            [&slow, &slow, &full, &slow, &full].map(|error| logged.is_news(error)),
            [true, false, true, false, false]
        );
        assert!(logged.is_over() && !logged.is_over());
        assert!(logged.is_news(&slow));
    }
}
