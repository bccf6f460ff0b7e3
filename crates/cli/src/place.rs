//! Places as people name them at the prompt: URIs, and paths of this host; and which of them a
//! database is made in.

use std::path::{Path, PathBuf};

use tombolo_storage::Uri;

use crate::failure::{Failure, Result};

/// Reads a place: a URI as it is, and a path as the URI of its directory, whatever characters are
/// in it. A path begins with `/`, `./` or `../`: a bare word is more often a slip.
///
/// # Errors
/// Says why a path cannot be used.
pub fn place(text: &str) -> std::result::Result<String, String> {
    let is_path = text.starts_with('/') || [".", ".."].contains(&text) || starts_beside(text);
    if !is_path {
        return Ok(text.to_owned());
    }
    let uri = Uri::from_path(without_up(Path::new(text))).map_err(|error| error.to_string())?;
    Ok(uri.to_string())
}

fn starts_beside(text: &str) -> bool {
    text.starts_with("./") || text.starts_with("../")
}

/// A path without `..`, where the file system can say what it means.
fn without_up(path: &Path) -> PathBuf {
    let goes_up = |part: std::path::Component<'_>| part == std::path::Component::ParentDir;
    if !path.components().any(goes_up) {
        return path.to_path_buf();
    }
    // Only the end of the path may be missing yet.
    for parent in path.ancestors() {
        if let (Ok(parent_there), Ok(rest)) = (parent.canonicalize(), path.strip_prefix(parent))
            && !rest.components().any(goes_up)
        {
            return parent_there.join(rest);
        }
    }
    path.to_path_buf()
}

/// What a database, its nodes and its trials name in the directory of a store; `lost+found` is the
/// file system's own.
const OURS: [&str; 6] = ["incarnation", "nodes", "probe", "registry", "tmp", "lost+found"];

fn is_ours(name: &str) -> bool {
    let is_life = name.len() == 16 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_life || OURS.contains(&name) || name.starts_with('.')
}

/// Refuses to make a database in the root of this host, and in a directory that holds other things:
/// that was rarely meant.
///
/// # Errors
/// `Usage`, which says what to do if it was.
pub fn check_new(store: &str) -> Result<()> {
    let uri = Uri::parse(store)?;
    if uri.scheme != "file" {
        return Ok(());
    }
    let path = uri.path()?;
    let refuse = |why: String| {
        Err(Failure::Usage(format!(
            "no database is made in {}: {why}; name a directory of its own, {}/orders for example, or say \
            --among-others if that is meant",
            path.display(),
            store.trim_end_matches('/')
        )))
    };
    if path == Path::new("/") {
        return refuse("it is the root of this host".to_owned());
    }
    // A path that is missing, or is no directory, is left to opening.
    let Ok(entries) = std::fs::read_dir(&path) else { return Ok(()) };
    let names = entries.filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()));
    match names.filter(|name| !is_ours(name)).min() {
        Some(name) => refuse(format!("{name:?} lies there, which is no database's")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_become_uris_and_all_else_stays() {
        for (text, uri) in [
            ("/data/50%", "file:///data/50%25"),
            ("/data/a?b#c", "file:///data/a%3Fb%23c"),
            ("/data/my orders", "file:///data/my%20orders"),
            ("/tmp/../tmp/none", "file:///tmp/none"),
            ("file:///data/50%25", "file:///data/50%25"),
            ("s3://bucket/x?region=eu", "s3://bucket/x?region=eu"),
            ("orders", "orders"),
            ("", ""),
        ] {
            assert_eq!(place(text).as_deref(), Ok(uri), "{text}");
        }
        assert!(place("./orders").unwrap().ends_with("/orders"));
        assert!(place("/no/such/../x").is_err());
    }

    #[test]
    fn a_database_wants_a_directory_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let uri = |name: &str| place(folder.path().join(name).to_str().unwrap()).unwrap();
        assert!(check_new(&uri("none")).is_ok() && check_new(&uri("")).is_ok());
        for name in ["incarnation", "0000000000000001", "lost+found", ".Trash"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        assert!(check_new(&uri("")).is_ok());
        std::fs::write(folder.path().join("notes.txt"), "mine").unwrap();
        let refused = check_new(&uri("")).unwrap_err().to_string();
        assert!(refused.contains("notes.txt") && refused.contains("--among-others"), "{refused}");
        assert!(check_new("file:///").is_err() && check_new("file:///.//").is_err());
        assert!(check_new("mem://x").is_ok());
    }
}
