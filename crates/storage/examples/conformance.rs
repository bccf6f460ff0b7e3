//! Puts a store through the conformance suites of both interfaces, by its URI: for stores that no
//! test of the project can bring along.
//!
//! `cargo run -p tombolo-storage --features cloud,hdfs --example conformance -- URI [URI OF THE LOG]`
//!
//! Needs a prefix of its own; objects are removed again, seals of its logs stay.

use std::process::ExitCode;
use std::sync::Arc;

use tombolo_env::Env;
use tombolo_storage::conformance::log::{LOG_CHECKS, LogSubject};
use tombolo_storage::conformance::object_store;
use tombolo_storage::probe::exclusive;
use tombolo_storage::{Registry, Uri};

fn run(store: &str, log: Option<&str>) -> Result<(), Box<dyn std::error::Error>> {
    let (env, registry) = (Env::real(), Registry::with_defaults());
    let store = Uri::parse(store)?;
    let log = log.map(Uri::parse).transpose()?;
    let objects = registry.open_object_store(&env, &store)?;
    let logs = registry.open_log_store(&env, &store, log.as_ref(), &objects)?;
    let began = env.now();
    env.block_on(exclusive::put_if_absent(&env, &objects))?;
    println!(
        "put-if-absent: one of {} won each of {} races; {:.1?}",
        exclusive::RACERS,
        exclusive::RACES,
        env.now().since(began)
    );
    let began = env.now();
    env.block_on(object_store(&env, Arc::clone(&objects)))?;
    println!("objects: every promise kept; {:.1?}", env.now().since(began));
    let subject = LogSubject { env: env.clone(), store: logs, objects };
    for (name, check) in LOG_CHECKS {
        let began = env.now();
        check(&subject);
        println!("log: {name}; {:.1?}", env.now().since(began));
    }
    Ok(())
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(store) = arguments.first() else {
        eprintln!("conformance: name a store, as a URI, and its log if it is another");
        return ExitCode::from(2);
    };
    match run(store, arguments.get(1).map(String::as_str)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("conformance: {error}");
            ExitCode::FAILURE
        }
    }
}
