//! The attributes that the macros know.

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::{Attribute, Error, Expr, Ident, Lit, LitInt, LitStr, Result, Token};

/// What the attributes of a type, a field or a variant say.
#[derive(Default)]
pub struct Said {
    /// Another name in descriptions.
    pub name: Option<String>,
    /// The number of a variant.
    pub number: Option<u8>,
    /// Structures of first fields.
    pub prefixes: Vec<Prefix>,
    /// The form of a value.
    pub form: Option<Ident>,
}

/// A structure of first fields.
pub struct Prefix {
    /// Its name.
    pub name: Ident,
    /// The fields.
    pub fields: Vec<Ident>,
}

/// Where an attribute stands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Place {
    Type,
    Field,
    Variant,
}

/// Reads the attributes called `of`.
pub fn said(attributes: &[Attribute], of: &str, place: Place) -> Result<Said> {
    let mut said = Said::default();
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident(of)) {
        attribute.parse_nested_meta(|meta| {
            let word = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
            match (word.as_str(), place) {
                ("name", Place::Field | Place::Variant) => {
                    said.name = Some(meta.value()?.parse::<LitStr>()?.value());
                    Ok(())
                }
                ("number", Place::Variant) if of == "key" => {
                    said.number = Some(meta.value()?.parse::<LitInt>()?.base10_parse()?);
                    Ok(())
                }
                ("prefix", Place::Type) if of == "key" => meta.parse_nested_meta(|meta| {
                    let name = meta.path.require_ident()?.clone();
                    let content;
                    syn::parenthesized!(content in meta.input);
                    let fields = Punctuated::<Ident, Token![,]>::parse_terminated(&content)?;
                    said.prefixes.push(Prefix { name, fields: fields.into_iter().collect() });
                    Ok(())
                }),
                ("zerocopy" | "rkyv", Place::Type) if of == "value" => {
                    said.form = Some(meta.path.require_ident()?.clone());
                    Ok(())
                }
                _ => Err(meta.error("nothing that is known here")),
            }
        })?;
    }
    Ok(said)
}

/// The number that an explicit discriminant gives a variant.
pub fn discriminant(expression: &Expr) -> Result<u8> {
    match expression {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Int(number) => number.base10_parse(),
            other => Err(Error::new(other.span(), "a number from 0 to 255 is expected")),
        },
        other => Err(Error::new(other.span(), "a number in digits, from 0 to 255, is expected")),
    }
}
