//! What a RocksDB database says of itself in its newest OPTIONS file, and what of it is refused.

use std::path::Path;

use tombolo::{Error, ErrorKind, Result};

/// The name of the comparator whose order ours is.
const BYTEWISE: &str = "leveldb.BytewiseComparator";

/// What one column family says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Family {
    pub(crate) name: String,
    comparator: String,
    merge_operator: String,
    compaction_filter: String,
}

/// What the file says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Survey {
    families: Vec<Family>,
    has_two_phases: bool,
}

/// What the caller knows of the database.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Known {
    pub(crate) operator: bool,
    pub(crate) ttl: bool,
    pub(crate) nothing_prepared: bool,
}

fn refused(what: String, advice: &str) -> Error {
    Error::new(ErrorKind::Unsupported, what).advice(advice)
}

/// Reads the newest OPTIONS file of a directory; says nothing of a database without one.
///
/// # Errors
/// Those of the operating system.
pub(crate) fn survey(directory: &Path) -> Result<Survey> {
    let failed = |error| Error::io(error, "reading a RocksDB database", directory.display());
    let mut newest: Option<(u64, std::path::PathBuf)> = None;
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let number = name
            .to_str()
            .and_then(|name| name.strip_prefix("OPTIONS-"))
            .and_then(|number| number.parse::<u64>().ok());
        if let Some(number) = number
            && newest.as_ref().is_none_or(|(newest, _)| number > *newest)
        {
            newest = Some((number, entry.path()));
        }
    }
    match newest {
        Some((_, path)) => Ok(parse(&std::fs::read_to_string(path).map_err(failed)?)),
        None => Ok(Survey::default()),
    }
}

fn parse(text: &str) -> Survey {
    let mut survey = Survey::default();
    let mut in_family = false;
    for line in text.lines().map(str::trim) {
        if let Some(section) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            let name = section.strip_prefix("CFOptions ").map(|name| name.trim_matches('"'));
            in_family = name.is_some();
            if let Some(name) = name {
                survey.families.push(Family { name: name.to_owned(), ..Family::default() });
            }
            continue;
        }
        let Some((name, value)) = line.split_once('=') else { continue };
        match (name, survey.families.last_mut().filter(|_| in_family)) {
            ("comparator", Some(family)) => value.clone_into(&mut family.comparator),
            ("merge_operator", Some(family)) => value.clone_into(&mut family.merge_operator),
            ("compaction_filter" | "compaction_filter_factory", Some(family)) if value != "nullptr" => {
                family.compaction_filter.push_str(value);
            }
            ("allow_2pc", None) => survey.has_two_phases = value == "true",
            _ => {}
        }
    }
    survey
}

impl Survey {
    /// Refuses what would be carried over wrongly.
    ///
    /// # Errors
    /// `Unsupported`, which names the unknown thing.
    pub(crate) fn check(&self, known: Known) -> Result<()> {
        for family in &self.families {
            let Family { name, comparator, merge_operator, compaction_filter } = family;
            let named = |text: &str| !text.is_empty() && text != "nullptr";
            if comparator.contains("u64ts") {
                let what = format!("column family {name} has timestamps in its keys ({comparator})");
                return Err(refused(
                    what,
                    "copy one version of each key to a column family without them first",
                ));
            }
            if named(comparator) && !comparator.contains(BYTEWISE) {
                let what = format!("column family {name} is ordered by {comparator}");
                return Err(refused(what, "write its keys in a form whose bytes have that order first"));
            }
            let is_ttl = [merge_operator, compaction_filter].iter().any(|text| text.contains("Ttl"));
            if is_ttl && !known.ttl {
                let what = format!("column family {name} was written by RocksDB's TTL wrapper");
                return Err(refused(what, "say how long its values live: --ttl SECONDS, 0 for ever"));
            }
            if named(merge_operator) && !merge_operator.contains("Ttl") && !known.operator {
                let what = format!("column family {name} has the merge operator {merge_operator}");
                return Err(refused(what, "name it as RocksDB's library knows it: --merge-operator NAME"));
            }
        }
        if self.has_two_phases && !known.nothing_prepared {
            return Err(refused(
                "the database takes transactions in two phases, of which some may be prepared".to_owned(),
                "end them, and say so: --nothing-prepared",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "[Version]\n  rocksdb_version=7.8.3\n[DBOptions]\n  allow_2pc=false\n\
        [CFOptions \"default\"]\n  comparator=leveldb.BytewiseComparator\n  merge_operator=nullptr\n\
        [TableOptions/BlockBasedTable \"default\"]\n  block_size=4096\n\
        [CFOptions \"other\"]\n  merge_operator=nullptr\n  compaction_filter=nullptr\n";

    #[test]
    fn what_would_be_carried_over_wrongly_is_refused_by_name() {
        let check = |text: &str, known| parse(text).check(known);
        check(TEXT, Known::default()).unwrap();
        assert_eq!(parse(TEXT).families.len(), 2);
        for (from, to, told) in [
            ("leveldb.Bytewise", "rocksdb.ReverseBytewise", "rocksdb.ReverseBytewiseComparator"),
            ("BytewiseComparator\n", "BytewiseComparator.u64ts\n", "timestamps"),
            ("merge_operator=nullptr", "merge_operator={id=StringAppendOperator;}", "StringAppendOperator"),
            ("compaction_filter=nullptr", "compaction_filter={id=TtlCompactionFilter;}", "TTL"),
            ("allow_2pc=false", "allow_2pc=true", "prepared"),
        ] {
            let text = TEXT.replacen(from, to, 1);
            let error = check(&text, Known::default()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Unsupported);
            assert!(error.to_string().contains(told), "{error}");
        }
        let all = Known { operator: true, ttl: true, nothing_prepared: true };
        check(&TEXT.replace("merge_operator=nullptr", "merge_operator={id=X;}"), all).unwrap();
        check(&TEXT.replace("allow_2pc=false", "allow_2pc=true"), all).unwrap();
    }
}
