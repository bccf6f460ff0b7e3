//! A script: what a process does with its engine, a step each, `verb name=value …`.
//!
//! | step | does |
//! |---|---|
//! | `open [cache=BYTES] [memtable=BYTES] [direct=1] [spaces=N] [apart=1]` | opens the database, or makes it; closes it first when it is open |
//! | `destroy` | closes it and removes its directory |
//! | `run NAME [threads=N] [count=N] [seconds=S] [durability=accepted] [settle=1] …` | a benchmark |
//! | `warm` | reads through all that will be read, so that it is in the cache |
//! | `flush`, `settle`, `compact` | moves memory to tables; waits for the background; merges everything |
//!
//! More of `run`: `nexts=N` entries after a seek, `stride=N` between the keys of a multi-get,
//! `batch=N` keys of a batch or a multi-get, `distribution=uniform|zipfian|latest|hotspot` of the
//! keys of YCSB and of merges, `ranges=N` and `width=N` ranges to delete and keys of each, `num=N`
//! and `value=BYTES` keys and bytes of values in the place of those of all steps. `apart` puts
//! large values apart.

use std::collections::BTreeMap;
use std::str::FromStr;

/// A step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What to do.
    pub verb: String,
    /// Its object: of `run`, the benchmark.
    pub name: Option<String>,
    options: BTreeMap<String, String>,
}

impl Step {
    /// The number of the option `name`, or `default`.
    pub fn number(&self, name: &str, default: u64) -> Result<u64, String> {
        let Some(text) = self.options.get(name) else { return Ok(default) };
        text.parse().map_err(|_| format!("{name}={text}: a number is expected, in step {self:?}"))
    }

    /// The text of the option `name`.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(String::as_str)
    }

    /// Whether the option `name` is set to something other than 0.
    pub fn is_set(&self, name: &str) -> bool {
        self.options.get(name).is_some_and(|text| text != "0")
    }
}

impl FromStr for Step {
    type Err = String;

    fn from_str(text: &str) -> Result<Step, String> {
        const KNOWN: &[(&str, &[&str])] = &[
            ("open", &["cache", "memtable", "direct", "spaces", "apart"]),
            ("destroy", &[]),
            (
                "run",
                &[
                    "threads",
                    "count",
                    "seconds",
                    "durability",
                    "settle",
                    "nexts",
                    "stride",
                    "beside",
                    "batch",
                    "distribution",
                    "ranges",
                    "width",
                    "num",
                    "value",
                ],
            ),
            ("warm", &[]),
            ("flush", &[]),
            ("settle", &[]),
            ("compact", &[]),
        ];
        let mut words = text.split_whitespace();
        let verb = words.next().unwrap_or_default();
        let Some((_, known)) = KNOWN.iter().find(|(known, _)| *known == verb) else {
            let verbs: Vec<_> = KNOWN.iter().map(|(known, _)| *known).collect();
            return Err(format!("{text:?}: steps begin with one of {}", verbs.join(", ")));
        };
        let mut step = Step { verb: verb.to_owned(), name: None, options: BTreeMap::new() };
        for word in words {
            match word.split_once('=') {
                None if verb == "run" && step.name.is_none() => step.name = Some(word.to_owned()),
                Some((name, value)) if known.contains(&name) => {
                    drop(step.options.insert(name.to_owned(), value.to_owned()))
                }
                _ => return Err(format!("{text:?}: {word:?} is none of {}", known.join(", "))),
            }
        }
        if verb == "run" && step.name.is_none() { Err(format!("{text:?}: run what?")) } else { Ok(step) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_are_read_and_wrong_ones_refused() {
        let step: Step = "run readrandom threads=2 seconds=3 settle=1".parse().unwrap();
        assert_eq!(
            (step.name.as_deref(), step.number("threads", 1), step.number("batch", 9)),
            (Some("readrandom"), Ok(2), Ok(9))
        );
        assert!(step.is_set("settle") && !step.is_set("direct"));
        for wrong in ["", "walk", "run", "run a b", "run a colour=red", "open threads=2", "warm x"] {
            assert!(wrong.parse::<Step>().is_err(), "{wrong:?}");
        }
        assert!("run a threads=x".parse::<Step>().unwrap().number("threads", 1).is_err());
    }
}
