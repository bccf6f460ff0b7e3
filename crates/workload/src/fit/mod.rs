//! Distributions and curves fitted to what was measured, and how well they fit.
//!
//! `counts → every family by maximum likelihood → distance of each → the nearest, else two
//! lognormals, else the measured quantiles themselves`. Curves of rates and of ranks are fitted by
//! least squares.

mod curve;
mod sine;
mod sizes;

pub use curve::{Curve, fit_ranks, least_squares};
pub use sine::{Sine, fit_sine};
pub use sizes::{FAR, Family, Fitted, Sizes, fit_sizes, normal_quantile, normal_share};

#[cfg(test)]
mod tests;
