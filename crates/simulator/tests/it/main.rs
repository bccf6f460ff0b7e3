//! A bounded number of seeds of every scenario; more by `cargo xtask simulate`.

#[cfg(feature = "mutants")]
mod mutants;
mod scenarios;
