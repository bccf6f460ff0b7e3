//! What a type is made of, in words: a keyspace keeps it, and is refused under another type.

use xxhash_rust::xxh3::xxh3_64;

/// Most bytes of a description that are kept as text beside its hash.
const TEXT_BYTES_MAX: usize = 1500;

/// Says what a type is made of. Types with the same description have the same bytes.
///
/// Derived, it has the names of fields and variants in it: who renames one keeps its old name with
/// `#[key(name = "old")]` or `#[value(name = "old")]`.
pub trait Describe {
    /// Adds what the type is made of.
    fn describe(shape: &mut Shape);
}

/// The description of a type, as it is made.
#[derive(Debug, Default)]
pub struct Shape {
    text: String,
    /// Those that are being described: one within itself is named, and not described again.
    open: Vec<&'static str>,
}

impl Shape {
    /// The description of `T`.
    pub fn of<T: Describe + ?Sized>() -> Shape {
        let mut shape = Shape::default();
        shape.add::<T>();
        shape
    }

    /// Adds a text.
    pub fn text(&mut self, text: &str) {
        self.text.push_str(text);
    }

    /// Adds a type.
    pub fn add<T: Describe + ?Sized>(&mut self) {
        let name = std::any::type_name::<T>();
        if let Some(at) = self.open.iter().rposition(|open| *open == name) {
            let up = self.open.len() - at;
            self.text.push_str(&format!("^{up}"));
            return;
        }
        self.open.push(name);
        T::describe(self);
        self.open.pop();
    }

    /// Adds a field.
    pub fn field<T: Describe + ?Sized>(&mut self, name: &str) {
        self.text(name);
        self.text(": ");
        self.add::<T>();
        self.text(", ");
    }

    /// The whole description.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its hash.
    fn hash(&self) -> u64 {
        xxh3_64(self.text.as_bytes())
    }

    /// As much of it as is kept.
    fn start(&self) -> &str {
        let longest = self.text.len().min(TEXT_BYTES_MAX);
        let end = (0..=longest).rev().find(|end| self.text.is_char_boundary(*end));
        self.text.get(..end.unwrap_or(0)).unwrap_or_default()
    }
}

/// What a keyspace keeps of the types of its keys and values: their hashes, and what they are made
/// of, in words.
pub(crate) fn types_of<K: Describe, V: Describe + ?Sized>() -> String {
    let (key, value) = (Shape::of::<K>(), Shape::of::<V>());
    format!("{:016x} {:016x} {} => {}", key.hash(), value.hash(), key.start(), value.start())
}

macro_rules! described {
    ($($type:ty),*) => {$(
        impl Describe for $type {
            fn describe(shape: &mut Shape) {
                shape.text(stringify!($type));
            }
        }
    )*};
}

described!(u8, u16, u32, u64, u128, i8, i16, i32, i64, i128, f32, f64, bool, char, (), str);

impl Describe for String {
    fn describe(shape: &mut Shape) {
        shape.text("str");
    }
}

impl Describe for [u8] {
    fn describe(shape: &mut Shape) {
        shape.text("bytes");
    }
}

impl Describe for bytes::Bytes {
    fn describe(shape: &mut Shape) {
        shape.text("bytes");
    }
}

macro_rules! around {
    ($($type:ident, $text:literal;)*) => {$(
        impl<T: Describe> Describe for $type<T> {
            fn describe(shape: &mut Shape) {
                shape.text(concat!($text, "<"));
                shape.add::<T>();
                shape.text(">");
            }
        }
    )*};
}

use std::cmp::Reverse;

use crate::key::NullsLast;

around! {
    Option, "option";
    Reverse, "reverse";
    NullsLast, "nulls_last";
    Vec, "list";
}

impl<T: Describe + ?Sized> Describe for Box<T> {
    fn describe(shape: &mut Shape) {
        T::describe(shape);
    }
}

impl<T: Describe, const N: usize> Describe for [T; N] {
    fn describe(shape: &mut Shape) {
        shape.text("[");
        shape.add::<T>();
        shape.text(&format!("; {N}]"));
    }
}

impl<K: Describe, V: Describe> Describe for std::collections::BTreeMap<K, V> {
    fn describe(shape: &mut Shape) {
        shape.text("map<");
        shape.add::<K>();
        shape.text(", ");
        shape.add::<V>();
        shape.text(">");
    }
}

macro_rules! tuples {
    ($(($($name:ident),+);)*) => {$(
        impl<$($name: Describe),+> Describe for ($($name,)+) {
            fn describe(shape: &mut Shape) {
                shape.text("(");
                $(shape.add::<$name>(); shape.text(", ");)+
                shape.text(")");
            }
        }
    )*};
}

tuples! {
    (A);
    (A, B);
    (A, B, C);
    (A, B, C, D);
    (A, B, C, D, E);
    (A, B, C, D, E, F);
    (A, B, C, D, E, F, G);
    (A, B, C, D, E, F, G, H);
}
