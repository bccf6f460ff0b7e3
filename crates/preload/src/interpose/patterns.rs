//! Which paths are kept in the database.
//!
//! Patterns are absolute paths, separated by colons: `?` is one character and `*` any number of
//! them within a component, `**` as a component is any number of components. A pattern that begins
//! with `!` takes back what it matches.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// Most bytes of all patterns together.
const PATTERNS_BYTES_MAX: usize = 64 << 10;

/// See the module's documentation.
#[derive(Clone, Debug)]
pub struct Patterns {
    patterns: Vec<Pattern>,
    /// Directories below which nothing matches: those in which the database itself lies.
    excluded: Vec<PathBuf>,
}

#[derive(Clone, Debug)]
struct Pattern {
    takes_back: bool,
    directory: Vec<Vec<u8>>,
    name: Vec<u8>,
}

impl Patterns {
    /// # Errors
    /// The fault in `text`, for its author.
    pub fn parse(text: &OsStr, excluded: Vec<PathBuf>) -> Result<Patterns, String> {
        let bytes = text.as_bytes();
        if bytes.len() > PATTERNS_BYTES_MAX {
            return Err(format!("patterns of {} bytes, more than {PATTERNS_BYTES_MAX}", bytes.len()));
        }
        let written = bytes.split(|byte| *byte == b':').filter(|part| !part.is_empty());
        let patterns = written.map(Pattern::parse).collect::<Result<Vec<_>, _>>()?;
        if patterns.iter().all(|pattern| pattern.takes_back) {
            return Err("no pattern that matches a file, such as /var/lib/app/*.db".to_owned());
        }
        Ok(Patterns { patterns, excluded })
    }

    /// With the directories as they are without links, as far as they have no wild cards: what
    /// matches has none.
    pub fn resolved(mut self, resolve: impl Fn(&Path) -> Option<PathBuf>) -> Patterns {
        for pattern in &mut self.patterns {
            let plain = pattern.directory.iter().take_while(|part| is_plain(part)).count();
            if let Some(path) = resolve(&joined(&pattern.directory[..plain])) {
                pattern.directory.splice(..plain, path.components().filter_map(normal).map(<[u8]>::to_vec));
            }
        }
        self
    }

    /// Whether a path could match whose last component is `name`: cheap, for the many that do not.
    pub fn may_match(&self, name: &[u8]) -> bool {
        self.patterns.iter().any(|pattern| !pattern.takes_back && matches_name(&pattern.name, name))
    }

    /// Whether the file at `path`, absolute and without links, is kept in the database.
    pub fn matches(&self, path: &Path) -> bool {
        let mut directory: Vec<&[u8]> = path.components().filter_map(normal).collect();
        let Some(name) = directory.pop() else { return false };
        let matched = |takes_back| {
            let mut patterns = self.patterns.iter().filter(move |pattern| pattern.takes_back == takes_back);
            patterns.any(|pattern| {
                matches_name(&pattern.name, name) && matches_directory(&pattern.directory, &directory)
            })
        };
        matched(false) && !matched(true) && !self.is_excluded(path)
    }

    /// Whether the database itself lies around `path`.
    pub fn is_excluded(&self, path: &Path) -> bool {
        self.excluded.iter().any(|excluded| path.starts_with(excluded))
    }

    /// Whether a directory whose name is `name` could be one of a pattern's, or lead to one: cheap,
    /// for the many that do not.
    pub fn may_lead(&self, name: &[u8]) -> bool {
        let mut parts =
            self.patterns.iter().filter(|pattern| !pattern.takes_back).flat_map(|pattern| &pattern.directory);
        parts.any(|part| part == b"**" || matches_name(part, name))
    }

    /// What the directory at `path`, absolute and without links, has to do with files: for each
    /// pattern whose directory it is or leads to, the name that comes next, `None` for any or when
    /// the files themselves do.
    pub fn next_names(&self, path: &Path) -> impl Iterator<Item = Option<&OsStr>> {
        let directory: Vec<&[u8]> = path.components().filter_map(normal).collect();
        let is_excluded = self.is_excluded(path);
        let patterns = self.patterns.iter().filter(move |pattern| !pattern.takes_back && !is_excluded);
        let rests = patterns.filter_map(move |pattern| rest_behind(&pattern.directory, &directory));
        rests.map(|rest| rest.first().filter(|part| is_plain(part)).map(|part| OsStr::from_bytes(part)))
    }

    /// The directories of patterns that name theirs without wild cards.
    pub fn plain_directories(&self) -> impl Iterator<Item = PathBuf> {
        let patterns = self
            .patterns
            .iter()
            .filter(|pattern| !pattern.takes_back && pattern.directory.iter().all(|part| is_plain(part)));
        patterns.map(|pattern| joined(&pattern.directory))
    }
}

fn joined(directory: &[Vec<u8>]) -> PathBuf {
    let parts = directory.iter().map(|part| OsStr::from_bytes(part));
    std::iter::once(OsStr::new("/")).chain(parts).collect()
}

fn normal(component: Component<'_>) -> Option<&[u8]> {
    match component {
        Component::Normal(part) => Some(part.as_bytes()),
        _ => None,
    }
}

impl Pattern {
    fn parse(text: &[u8]) -> Result<Pattern, String> {
        let shown = text.escape_ascii();
        let (takes_back, path) = text.strip_prefix(b"!").map_or((false, text), |path| (true, path));
        let path =
            path.strip_prefix(b"/").ok_or_else(|| format!("the pattern {shown} is no absolute path"))?;
        let mut parts: Vec<Vec<u8>> = path.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
        if parts.iter().any(|part| part.is_empty() || part == b"." || part == b"..") {
            return Err(format!("the pattern {shown} has a component that is empty, . or .."));
        }
        let name = parts.pop().unwrap_or_default();
        if name == b"**" {
            return Err(format!("the pattern {shown} ends with **: say which files, ** / * for all of them"));
        }
        Ok(Pattern { takes_back, directory: parts, name })
    }
}

fn is_plain(part: &[u8]) -> bool {
    !part.iter().any(|byte| matches!(byte, b'*' | b'?'))
}

/// Linear in time but for what a `*` is tried at: the last one only.
fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < name.len() {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, read));
                at += 1;
            }
            Some(byte) if *byte == b'?' || *byte == name[read] => {
                at += 1;
                read += 1;
            }
            _ => match &mut star {
                Some((star_at, star_read)) => {
                    *star_read += 1;
                    at = *star_at + 1;
                    read = *star_read;
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

fn matches_directory(pattern: &[Vec<u8>], directory: &[&[u8]]) -> bool {
    match pattern.split_first() {
        None => directory.is_empty(),
        Some((first, rest)) if first == b"**" => {
            (0..=directory.len()).any(|skipped| matches_directory(rest, &directory[skipped..]))
        }
        Some((first, rest)) => directory
            .split_first()
            .is_some_and(|(name, below)| matches_name(first, name) && matches_directory(rest, below)),
    }
}

/// The part of a pattern's directory behind `directory`; `None` when that does not lead there.
fn rest_behind<'a>(pattern: &'a [Vec<u8>], directory: &[&[u8]]) -> Option<&'a [Vec<u8>]> {
    let Some((name, below)) = directory.split_first() else { return Some(pattern) };
    let (first, rest) = pattern.split_first()?;
    // Behind it there may be any directory.
    if first == b"**" {
        return Some(pattern);
    }
    if matches_name(first, name) { rest_behind(rest, below) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(text: &str) -> Patterns {
        Patterns::parse(OsStr::new(text), vec![PathBuf::from("/data/store")]).unwrap()
    }

    #[test]
    fn what_matches() {
        let patterns = patterns("/data/*.db:/data/*.db-wal:/logs/**/*.log:/x/?/a*b*c:!/logs/old/*");
        for path in [
            "/data/a.db",
            "/data/.db",
            "/data/a.db-wal",
            "/logs/1.log",
            "/logs/a/b/2.log",
            "/x/y/abc",
            "/x/y/a-b-b-c",
        ] {
            assert!(patterns.matches(Path::new(path)), "{path}");
        }
        for path in [
            "/data/a.dbx",
            "/data/sub/a.db",
            "/logs/old/1.log",
            "/x/yy/abc",
            "/x/y/ab",
            "/data",
            "/",
            "/data/store/1.db",
        ] {
            assert!(!patterns.matches(Path::new(path)), "{path}");
        }
        assert!(patterns.may_match(b"1.log") && !patterns.may_match(b"1.txt"));
        let plain: Vec<_> = patterns.plain_directories().collect();
        assert_eq!(plain, [PathBuf::from("/data"), PathBuf::from("/data")]);
    }

    #[test]
    fn links_in_directories_are_resolved_up_to_the_first_wild_card() {
        let resolve = |path: &Path| {
            Some(
                path.strip_prefix("/var/run").map_or(path.to_path_buf(), |rest| Path::new("/run").join(rest)),
            )
        };
        let patterns = patterns("/var/run/x/*.db:/var/run/*/a:/other/a:!/var/run/x/b*").resolved(resolve);
        for path in ["/run/x/1.db", "/run/y/a", "/other/a"] {
            assert!(patterns.matches(Path::new(path)), "{path}");
        }
        assert!(
            !patterns.matches(Path::new("/run/x/b.db")) && !patterns.matches(Path::new("/var/run/x/1.db"))
        );
    }

    #[test]
    fn which_directories_lead_to_files() {
        let patterns = patterns("/data/*.db:/logs/**/*.log:/x/?/a*:!/taken/back/*");
        let next = |path| patterns.next_names(Path::new(path)).collect::<Vec<_>>();
        assert_eq!(next("/"), [Some(OsStr::new("data")), Some(OsStr::new("logs")), Some(OsStr::new("x"))]);
        for path in ["/data", "/logs", "/logs/a/b", "/x", "/x/y"] {
            assert_eq!(next(path), [None], "{path}");
        }
        for path in ["/data/sub", "/data/store", "/x/yy", "/x/y/z", "/taken", "/other"] {
            assert!(next(path).is_empty(), "{path}");
        }
        assert!(patterns.may_lead(b"data") && patterns.may_lead(b"anything"));
    }

    #[test]
    fn what_is_refused() {
        for text in ["", "a.db", "/a/../b", "/a//b", "/a/**", "!/a/b", "/"] {
            assert!(Patterns::parse(OsStr::new(text), Vec::new()).is_err(), "{text:?}");
        }
    }
}
