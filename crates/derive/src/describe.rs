//! Descriptions of types, and values.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Fields, Generics, Result, parse_quote};

use crate::parse::{Place, said};

/// Implements `Describe`, with the attributes called `of`.
pub fn derive(input: &DeriveInput, of: &str) -> Result<TokenStream> {
    let body = match &input.data {
        Data::Struct(data) => {
            let fields = fields(&data.fields, of)?;
            quote!(shape.text("struct { "); #fields shape.text("}");)
        }
        Data::Enum(data) => {
            let mut all = TokenStream::new();
            for (variant, number) in data.variants.iter().zip(numbers(data, of)?) {
                let name = said(&variant.attrs, of, Place::Variant)?.name;
                let name = name.unwrap_or_else(|| variant.ident.to_string());
                let head = format!("{number} {name} {{ ");
                let fields = fields(&variant.fields, of)?;
                all.extend(quote!(shape.text(#head); #fields shape.text("}, ");));
            }
            quote!(shape.text("enum { "); #all shape.text("}");)
        }
        Data::Union(_) => return Err(Error::new(input.span(), "a union is neither key nor value")),
    };
    let name = &input.ident;
    let generics = bounded(&input.generics, &parse_quote!(::tombolo_typed::Describe));
    let (of_impl, of_type, condition) = generics.split_for_impl();
    Ok(quote! {
        #[automatically_derived]
        impl #of_impl ::tombolo_typed::Describe for #name #of_type #condition {
            fn describe(shape: &mut ::tombolo_typed::Shape) {
                #body
            }
        }
    })
}

/// The numbers of variants: places, unless they say another.
pub fn numbers(data: &syn::DataEnum, of: &str) -> Result<Vec<u8>> {
    let mut numbers: Vec<u8> = Vec::with_capacity(data.variants.len());
    for variant in &data.variants {
        let stated = match (&variant.discriminant, said(&variant.attrs, of, Place::Variant)?.number) {
            (_, Some(number)) => Some(number),
            // Values may have any; their bytes are not in its order.
            (Some((_, expression)), None) if of == "key" => Some(crate::parse::discriminant(expression)?),
            _ => None,
        };
        let last = numbers.last().copied();
        let next = last.map_or(Some(0), |last| last.checked_add(1));
        let number = stated
            .or(next)
            .ok_or_else(|| Error::new(variant.span(), "more variants than numbers: at most 256"))?;
        if last.is_some_and(|last| number <= last) {
            return Err(Error::new(variant.span(), "numbers of variants must rise, as their order does"));
        }
        numbers.push(number);
    }
    Ok(numbers)
}

fn fields(fields: &Fields, of: &str) -> Result<TokenStream> {
    let mut all = TokenStream::new();
    for (number, field) in fields.iter().enumerate() {
        let name = said(&field.attrs, of, Place::Field)?.name;
        let name = name.or_else(|| field.ident.as_ref().map(ToString::to_string));
        let (name, kind) = (name.unwrap_or_else(|| number.to_string()), &field.ty);
        all.extend(quote!(shape.field::<#kind>(#name);));
    }
    Ok(all)
}

/// Generics whose types are all of a trait.
pub fn bounded(generics: &Generics, bound: &syn::TypeParamBound) -> Generics {
    let mut generics = generics.clone();
    for parameter in generics.type_params_mut() {
        parameter.bounds.push(bound.clone());
    }
    generics
}

/// Implements `Describe` and `Value`.
pub fn derive_value(input: &DeriveInput) -> Result<TokenStream> {
    let form = said(&input.attrs, "value", Place::Type)?.form.ok_or_else(|| {
        Error::new(input.span(), "a form is expected: #[value(zerocopy)] or #[value(rkyv)]")
    })?;
    if let Some(parameter) = input.generics.type_params().next() {
        return Err(Error::new(parameter.span(), "a value of a generic type: wrap it in a type of its own"));
    }
    let form = if form == "rkyv" { format_ident!("Rkyv") } else { format_ident!("Zerocopy") };
    let described = derive(input, "value")?;
    let name = &input.ident;
    let (of_impl, of_type, condition) = input.generics.split_for_impl();
    Ok(quote! {
        #described

        #[automatically_derived]
        impl #of_impl ::tombolo_typed::Value for #name #of_type #condition {
            type Form = ::tombolo_typed::#form;
        }
    })
}
