//! What `tombolo doctor` says of a flash cache before it is used. Nothing is made, locked or
//! changed.

use std::path::Path;

use tombolo_env::{Env, FileSystemKind};
use tombolo_storage::facts::Fact;

use super::{is_own_name, writer};
use crate::options::Options;

const NAME: &str = "flash cache";
const SPACE: &str = "flash cache space";

/// Facts about the flash cache that the settings name; nothing when they name none.
pub fn facts(env: &Env, options: &Options) -> Vec<Fact> {
    let Some((directory, bytes)) = options.flash_cache() else { return Vec::new() };
    // A missing directory will be made.
    let Some(there) = directory.ancestors().find(|path| env.files().metadata(path).is_ok()) else {
        return vec![Fact::bad(
            NAME,
            format!("{} cannot be looked at", directory.display()),
            "name a directory that this process may use",
        )];
    };
    vec![place(env, &directory), space(env, there, &directory, bytes)]
}

/// What lies there, and on what.
fn place(env: &Env, directory: &Path) -> Fact {
    let there = directory.display();
    let found = match env.files().list_atomically(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Fact::fine(NAME, format!("{there}, not made yet"));
        }
        Err(error) => {
            return Fact::bad(
                NAME,
                format!("{there}: {error}"),
                "name a directory that this process may use",
            );
        }
    };
    if let Some(foreign) = found.iter().find(|entry| !is_own_name(&entry.name)) {
        let value = format!("{there} holds {:?}, which is not the cache's", foreign.name);
        return Fact::bad(NAME, value, "databases would go on without: name a directory of its own");
    }
    let regions = found.iter().filter(|entry| writer::region_number(&entry.name).is_some()).count();
    let value = format!("{there}, {regions} regions");
    match env.files().kind(directory) {
        Ok(FileSystemKind::Network(kind)) => Fact::warning(
            NAME,
            format!("{value}, on {kind}"),
            "it is meant for a local disk, nearer than the store",
        ),
        _ => Fact::fine(NAME, value),
    }
}

/// Whether the disk has room for it.
fn space(env: &Env, there: &Path, directory: &Path, bytes: u64) -> Fact {
    let own: u64 = env.files().list_atomically(directory).map_or(0, |entries| {
        let length =
            |name: &str| env.files().metadata(&directory.join(name)).map_or(0, |metadata| metadata.length);
        entries
            .iter()
            .filter(|entry| is_own_name(&entry.name) && !entry.is_directory)
            .map(|entry| length(&entry.name))
            .sum()
    });
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    match env.files().space(there) {
        Ok(space) => {
            let value = format!("{} of {}, with {} free", mib(own), mib(bytes), mib(space.available));
            if space.available.saturating_add(own) < bytes {
                Fact::warning(
                    SPACE,
                    value,
                    "it keeps what fits, and tries again every minute: set flash_cache_bytes to less, or \
                    free some",
                )
            } else {
                Fact::fine(SPACE, value)
            }
        }
        Err(error) => Fact::warning(SPACE, error.to_string(), "whether it fits is not known"),
    }
}

#[cfg(test)]
mod tests {
    use tombolo_env::simulated::World;
    use tombolo_storage::facts::Verdict;

    use super::*;

    #[test]
    fn a_place_that_will_not_do_is_told() {
        let world = World::new(1);
        let process = world.process("doctor");
        let env = process.env();
        let verdicts = |settings: &[&str]| -> Vec<Verdict> {
            facts(&env, &Options::parse(settings.iter().copied()).unwrap())
                .iter()
                .map(|fact| fact.verdict)
                .collect()
        };
        assert_eq!(verdicts(&[]), []);
        let settings = ["flash_cache_directory=/cache/flash", "flash_cache_bytes=8388608"];
        assert_eq!(verdicts(&settings), [Verdict::Fine, Verdict::Fine]);
        assert!(env.files().metadata(Path::new("/cache")).is_err(), "looking made a directory");
        env.files().create_directories(Path::new("/cache/flash")).unwrap();
        env.files().create_new(Path::new("/cache/flash/lock")).unwrap();
        world.host(0).set_capacity(Some(1 << 20));
        assert_eq!(verdicts(&settings), [Verdict::Fine, Verdict::Warning]);
        world.host(0).set_kind(FileSystemKind::Network("nfs".into()));
        assert_eq!(verdicts(&settings), [Verdict::Warning, Verdict::Warning]);
        env.files().create_new(Path::new("/cache/flash/letter")).unwrap();
        assert_eq!(verdicts(&settings), [Verdict::Bad, Verdict::Warning]);
    }
}
