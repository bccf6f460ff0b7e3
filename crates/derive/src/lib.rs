//! The derive macros of `tombolo-typed`, which re-exports them and says what they are for.

mod describe;
mod key;
mod parse;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Makes a structure or an enumeration a key: its fields in their order.
///
/// - `#[key(prefix(Name(field, …)))]` on a structure: a structure `Name` of its first fields, for
///   scans of ranges.
/// - `#[key(number = 9)]` on a variant: its number, which rises from variant to variant.
/// - `#[key(name = "old")]` on a field or variant: the name by which a keyspace knows it.
#[proc_macro_derive(Key, attributes(key))]
pub fn key(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    key::derive(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Makes a type one of values: `#[value(zerocopy)]` or `#[value(rkyv)]` says in which form.
///
/// `#[value(name = "old")]` on a field or variant: the name by which a keyspace knows it.
#[proc_macro_derive(Value, attributes(value))]
pub fn value(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    describe::derive_value(&input).unwrap_or_else(|error| error.to_compile_error()).into()
}

/// Says what a type is made of, which types of values need that are part of others.
#[proc_macro_derive(Describe, attributes(value))]
pub fn describe(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    describe::derive(&input, "value").unwrap_or_else(|error| error.to_compile_error()).into()
}
