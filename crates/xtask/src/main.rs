//! Habits of the project.
fn main() {}
