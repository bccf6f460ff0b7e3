mod harness;
#[cfg(feature = "mutants")]
mod mutants;
mod promises;
mod speed;
mod takeover;
