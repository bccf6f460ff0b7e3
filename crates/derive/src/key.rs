//! Keys.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, Field, Fields, Ident, Result, Visibility, parse_quote};

use crate::describe::{self, bounded, numbers};
use crate::parse::{Place, Prefix, said};

/// Implements `Key` and `Describe`, and makes the types of prefixes.
pub fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let prefixes = said(&input.attrs, "key", Place::Type)?.prefixes;
    let (encode, decode) = match &input.data {
        Data::Struct(data) => of_struct(&data.fields),
        Data::Enum(data) => of_enum(data)?,
        Data::Union(_) => return Err(Error::new(input.span(), "a union is no key")),
    };
    let described = describe::derive(input, "key")?;
    let made = prefixes.iter().map(|prefix| of_prefix(input, prefix)).collect::<Result<Vec<_>>>()?;
    let name = &input.ident;
    let generics = bounded(&input.generics, &parse_quote!(::tombolo_typed::Key));
    let (of_impl, of_type, condition) = generics.split_for_impl();
    Ok(quote! {
        #described

        #[automatically_derived]
        impl #of_impl ::tombolo_typed::Key for #name #of_type #condition {
            fn encode(&self, key: &mut ::tombolo_typed::KeyEncoder) {
                #encode
            }

            fn decode(
                key: &mut ::tombolo_typed::KeyDecoder<'_>,
            ) -> ::core::result::Result<Self, ::tombolo_typed::KeyError> {
                #decode
            }
        }

        #(#made)*
    })
}

fn of_struct(fields: &Fields) -> (TokenStream, TokenStream) {
    let places: Vec<_> = fields.members().collect();
    let encode = quote!(#(::tombolo_typed::Key::encode(&self.#places, key);)*);
    let decode = quote!(::core::result::Result::Ok(Self {
        #(#places: ::tombolo_typed::Key::decode(key)?,)*
    }));
    let nothing = if places.is_empty() { quote!(let _ = key;) } else { TokenStream::new() };
    (quote!(#nothing #encode), quote!(#nothing #decode))
}

fn of_enum(data: &syn::DataEnum) -> Result<(TokenStream, TokenStream)> {
    if data.variants.is_empty() {
        return Err(Error::new(data.enum_token.span(), "an enumeration without variants has no keys"));
    }
    let numbers = numbers(data, "key")?;
    let (mut encoding, mut decoding) = (Vec::new(), Vec::new());
    for (variant, number) in data.variants.iter().zip(&numbers) {
        let name = &variant.ident;
        let members: Vec<_> = variant.fields.members().collect();
        let names: Vec<Ident> = (0..members.len()).map(|number| format_ident!("field_{number}")).collect();
        encoding.push(quote! {
            Self::#name { #(#members: #names,)* } => {
                key.put_u8(#number);
                #(::tombolo_typed::Key::encode(#names, key);)*
            }
        });
        decoding.push(quote! {
            #number => Self::#name { #(#members: ::tombolo_typed::Key::decode(key)?,)* },
        });
    }
    let encode = quote!(match self { #(#encoding)* });
    let decode = quote! {
        ::core::result::Result::Ok(match key.one_of(&[#(#numbers),*], "the number of a variant")? {
            #(#decoding)*
            _ => return ::core::result::Result::Err(key.expected("the number of a variant")),
        })
    };
    Ok((encode, decode))
}

/// A structure of the first fields.
fn of_prefix(input: &DeriveInput, prefix: &Prefix) -> Result<TokenStream> {
    let Data::Struct(syn::DataStruct { fields: Fields::Named(fields), .. }) = &input.data else {
        return Err(Error::new(prefix.name.span(), "prefixes are made of structures with named fields"));
    };
    if let Some(parameter) = input.generics.type_params().next() {
        return Err(Error::new(parameter.span(), "prefixes are made of structures without parameters"));
    }
    if prefix.fields.is_empty() || prefix.fields.len() > fields.named.len() {
        return Err(Error::new(prefix.name.span(), "a prefix has the first fields: at least one"));
    }
    let mut first: Vec<&Field> = Vec::new();
    for (field, named) in fields.named.iter().zip(&prefix.fields) {
        if field.ident.as_ref() != Some(named) {
            let message = "a prefix has the first fields, in their order";
            return Err(Error::new(named.span(), message));
        }
        first.push(field);
    }
    let names: Vec<_> = first.iter().filter_map(|field| field.ident.as_ref()).collect();
    let kinds: Vec<_> = first.iter().map(|field| &field.ty).collect();
    let seen: Vec<&Visibility> = first.iter().map(|field| &field.vis).collect();
    let (name, of, visible) = (&prefix.name, &input.ident, &input.vis);
    let about = format!("The first fields of `{of}`: all keys that begin with them.");
    let docs: Vec<_> = names.iter().map(|name| format!("As in `{of}`: `{name}`.")).collect();
    Ok(quote! {
        #[doc = #about]
        #[derive(Clone, Debug, PartialEq)]
        #visible struct #name {
            #(#[doc = #docs] #seen #names: #kinds,)*
        }

        #[automatically_derived]
        impl ::tombolo_typed::PrefixOf<#of> for #name {
            fn encode_prefix(&self, key: &mut ::tombolo_typed::KeyEncoder) {
                #(::tombolo_typed::Key::encode(&self.#names, key);)*
            }

            fn decode_prefix(
                key: &mut ::tombolo_typed::KeyDecoder<'_>,
            ) -> ::core::result::Result<Self, ::tombolo_typed::KeyError> {
                ::core::result::Result::Ok(Self {
                    #(#names: ::tombolo_typed::Key::decode(key)?,)*
                })
            }
        }
    })
}
