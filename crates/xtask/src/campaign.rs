//! Campaigns: tests too long for the check, each with what it protects and how long it takes.
//!
//! `cargo xtask check` runs before each commit and is short. Tests that it leaves
//! out for that are in this list, by name. `nightly` runs all of them, one after the other.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use clap::Args;

use crate::built::FEATURES;

/// Runs all others.
const NIGHTLY: &str = "nightly";

/// Options of `campaign`.
#[derive(Args)]
pub struct Arguments {
    /// The campaign; `--list` names them. `nightly` runs all.
    #[arg(required_unless_present = "list")]
    name: Option<String>,
    /// With `nightly`: leave this campaign out; may be given several times.
    #[arg(long = "skip", value_name = "NAME")]
    skip: Vec<String>,
    /// Name the campaigns, what each protects and how long it takes.
    #[arg(long)]
    list: bool,
}

/// A program that a campaign runs.
enum Program {
    /// `cargo` with these words, as thoroughly as tests can.
    Deep(&'static [&'static str]),
    /// As `Deep`, with a variable that says for how long.
    For((&'static str, &'static str), &'static [&'static str]),
    /// `cargo xtask` with these words.
    Habit(&'static [&'static str]),
}

struct Campaign {
    name: &'static str,
    /// What it would notice, and the check would not.
    protects: &'static str,
    /// How long it usually takes on two cores, its build included.
    minutes: u32,
    runs: &'static [Program],
}

use Program::{Deep, For, Habit};

const CAMPAIGNS: &[Campaign] = &[
    Campaign {
        name: "plain",
        protects: "clippy, rustdoc and all tests on the crates as people build them, without mutants, cloud, \
            rdma; rustdoc on programs; clippy and rustdoc on HDFS; traces as Parquet",
        minutes: 14,
        runs: &[
            Deep(&["clippy", "--workspace", "--all-targets", "--", "-D", "warnings"]),
            Deep(&[
                "clippy",
                "-p",
                "tombolo-storage",
                "--all-targets",
                "--features",
                "hdfs",
                "--",
                "-D",
                "warnings",
            ]),
            Deep(&[
                "clippy",
                "-p",
                "tombolo-cli",
                "-p",
                "tombolo-lab",
                "--all-targets",
                "--features",
                "tombolo-cli/parquet",
                "--",
                "-D",
                "warnings",
            ]),
            Deep(&["test", "-p", "tombolo-lab", "--features", "parquet", "--lib", "--", "export::"]),
            Deep(&["doc", "--no-deps", "--workspace"]),
            Deep(&["doc", "--no-deps", "-p", "tombolo-storage", "--features", "hdfs"]),
            Deep(&["test", "--workspace", "--no-fail-fast"]),
        ],
    },
    Campaign {
        name: "deep",
        protects: "all tests with every feature, at full depth: every byte damaged, more seeds and worlds",
        minutes: 15,
        runs: &[Deep(&["test", "--workspace", "--no-fail-fast", "--features", FEATURES])],
    },
    Campaign {
        name: "isolation",
        protects: "a thousand histories of transactions for each isolation, with takeovers",
        minutes: 6,
        runs: &[Deep(&[
            "test",
            "-p",
            "tombolo",
            "--features",
            "mutants",
            "--test",
            "it",
            "--",
            "isolation::",
            "transactions::",
        ])],
    },
    Campaign {
        name: "bank",
        protects: "the total of a bank and each transfer, through kills and takeovers for an hour",
        minutes: 65,
        runs: &[For(
            ("TOMBOLO_BANK_SECONDS", "3600"),
            &["test", "-p", "tombolo", "--features", "mutants", "--test", "it", "--", "bank::"],
        )],
    },
    Campaign {
        name: "feed",
        protects: "the change feed through a thousand takeovers, two hundred points restored of backups",
        minutes: 4,
        runs: &[Deep(&[
            "test",
            "-p",
            "tombolo",
            "--features",
            "mutants",
            "--test",
            "it",
            "--",
            "changes::",
            "backups::",
        ])],
    },
    Campaign {
        name: "keyspaces",
        protects: "a million keyspaces made and dropped in one go, at most 1.5 KB of memory for each",
        minutes: 10,
        runs: &[For(
            ("KEYSPACES", "1000000"),
            &["test", "-p", "tombolo", "--test", "it", "--", "memory::as_many_keyspaces"],
        )],
    },
    Campaign {
        name: "model",
        protects: "models of the manifest chain and of deletion, searched deeper than by the tests",
        minutes: 20,
        runs: &[Habit(&["model"])],
    },
    Campaign {
        name: "simulate",
        protects: "20,000 histories of the whole engine, a million of the protocol of segments",
        minutes: 35,
        runs: &[
            Habit(&["simulate", "--histories", "20000"]),
            Habit(&["simulate", "--scenario", "segments", "--runs", "1000000"]),
        ],
    },
    Campaign {
        name: "mutants",
        protects: "each rule that a scenario guards is missed when it is taken out, by optimised code too",
        minutes: 6,
        runs: &[Habit(&["simulate", "--mutants"])],
    },
    Campaign {
        name: "metamorphic",
        protects: "one history under every set of options gives one result",
        minutes: 5,
        runs: &[Habit(&["metamorphic"])],
    },
    Campaign {
        name: "fuzz",
        protects: "decoders under libFuzzer, a minute for each target",
        minutes: 18,
        runs: &[Habit(&["fuzz"])],
    },
    Campaign {
        name: "miri",
        protects: "modules with unsafe code, and those without locks, under miri",
        minutes: 20,
        runs: &[Habit(&["miri"])],
    },
    Campaign {
        name: "crash",
        protects: "acknowledged writes of a real process that is killed again and again",
        minutes: 10,
        runs: &[Habit(&["crash", "--rounds", "100"])],
    },
    Campaign {
        name: "fight",
        protects: "acknowledged writes of two real writers that are paused and killed",
        minutes: 5,
        runs: &[Habit(&["fight"])],
    },
    Campaign {
        name: "real",
        protects: "conformance, histories, kills and fights on real servers, HDFS and etcd among them",
        minutes: 60,
        runs: &[Habit(&["real"])],
    },
    Campaign {
        name: "rdma",
        protects: "writes by a network card to the memory of nodes",
        minutes: 15,
        runs: &[Habit(&["rdma"])],
    },
    Campaign {
        name: "zoned",
        protects: "a zoned NVMe device in a guest, its power cut 50 times; a simulated one at each operation; what \
            flash is spared",
        minutes: 50,
        runs: &[
            Habit(&["simulate", "--scenario", "zones", "--whole"]),
            Habit(&["zoned", "--measure"]),
            Habit(&["zoned", "--cuts", "50"]),
        ],
    },
    Campaign {
        name: "preload",
        protects: "SQLite, Redis and RocksDB under the preload library, killed in a loop",
        minutes: 30,
        runs: &[Habit(&["preload"])],
    },
    Campaign {
        name: "soak",
        protects: "an hour of load, faults and kills within the memory that was given",
        minutes: 65,
        runs: &[Habit(&["soak"])],
    },
];

/// Runs the campaign that is named.
pub fn run(root: &Path, arguments: &Arguments) -> Result<(), String> {
    if arguments.list {
        for Campaign { name, protects, minutes, .. } in CAMPAIGNS {
            println!("{name:<12} {minutes:>4} min  {protects}");
        }
        let all: u32 = CAMPAIGNS.iter().map(|campaign| campaign.minutes).sum();
        println!("{NIGHTLY:<12} {all:>4} min  all of them, one after the other");
        return Ok(());
    }
    let name = arguments.name.as_deref().unwrap_or(NIGHTLY);
    for named in arguments.skip.iter().map(String::as_str).chain([name]) {
        if named != NIGHTLY && !CAMPAIGNS.iter().any(|campaign| campaign.name == named) {
            return Err(format!("there is no campaign {named:?}: `cargo xtask campaign --list` names them"));
        }
    }
    let is_wanted = |campaign: &&Campaign| {
        (name == NIGHTLY && !arguments.skip.iter().any(|skip| skip == campaign.name)) || name == campaign.name
    };
    let mut failed = Vec::new();
    for campaign in CAMPAIGNS.iter().filter(is_wanted) {
        println!("── {}: {} ({} min)", campaign.name, campaign.protects, campaign.minutes);
        let begun = Instant::now();
        let outcome: Result<(), String> = campaign.runs.iter().try_for_each(|program| run_one(root, program));
        let took = begun.elapsed().as_secs_f64() / 60.0;
        match outcome {
            Ok(()) => println!("── {} passed in {took:.1} min", campaign.name),
            Err(error) => {
                println!("── {} FAILED in {took:.1} min: {error}", campaign.name);
                failed.push(campaign.name);
            }
        }
    }
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

/// What cargo is told beside its words: rustdoc goes on after a broken link unless it is denied.
fn variables(words: &[&str]) -> Option<(&'static str, &'static str)> {
    (words.first() == Some(&"doc")).then_some(("RUSTDOCFLAGS", "-D warnings"))
}

fn run_one(root: &Path, program: &Program) -> Result<(), String> {
    let (mut command, words) = match program {
        Deep(words) | For(_, words) => {
            let mut command = Command::new(env!("CARGO"));
            // Optimised, in a place of its own: the check's build stays as it is.
            command.env("TOMBOLO_DEEP", "1").env("CARGO_PROFILE_TEST_OPT_LEVEL", "1");
            command.env("CARGO_TARGET_DIR", root.join("target/campaign"));
            command.envs(variables(words));
            if let For((name, value), _) = program {
                command.env(name, value);
            }
            (command, words)
        }
        Habit(words) => {
            let own = std::env::current_exe().map_err(|error| format!("finding this program: {error}"))?;
            (Command::new(own), words)
        }
    };
    println!("$ {} {}", if matches!(program, Habit(_)) { "cargo xtask" } else { "cargo" }, words.join(" "));
    let status = command.args(*words).current_dir(root).status();
    let status = status.map_err(|error| format!("cannot start {}: {error}", words.join(" ")))?;
    if status.success() { Ok(()) } else { Err(format!("{} ended with {status}", words.join(" "))) }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn every_habit_of_a_campaign_is_one() {
        for campaign in CAMPAIGNS {
            assert_ne!(campaign.name, NIGHTLY);
            for run in campaign.runs {
                let Habit(words) = run else { continue };
                let line = ["cargo xtask"].iter().chain(words.iter());
                let parsed = crate::Arguments::try_parse_from(line);
                assert!(
                    parsed.is_ok(),
                    "{}: {:?}",
                    campaign.name,
                    parsed.err().map(|error| error.to_string())
                );
            }
        }
    }

    #[test]
    fn a_warning_ends_all_that_looks_for_warnings() {
        for run in CAMPAIGNS.iter().flat_map(|campaign| campaign.runs) {
            let Deep(words) = run else { continue };
            match words[0] {
                "clippy" => assert!(words.ends_with(&["--", "-D", "warnings"]), "{words:?}"),
                "doc" => assert_eq!(variables(words), Some(("RUSTDOCFLAGS", "-D warnings"))),
                _ => assert_eq!(variables(words), None),
            }
        }
    }

    #[test]
    fn names_that_are_none_are_refused() {
        let arguments = |name: &str, skip: &str| Arguments {
            name: Some(name.to_owned()),
            skip: vec![skip.to_owned()],
            list: false,
        };
        let root = Path::new("/nowhere");
        assert!(run(root, &arguments("nothing", "fuzz")).is_err_and(|error| error.contains("nothing")));
        assert!(run(root, &arguments(NIGHTLY, "none")).is_err_and(|error| error.contains("none")));
    }
}
