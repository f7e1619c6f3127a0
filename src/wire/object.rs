//! How an object of the protocol becomes a struct: the macros `object!` and `words!`, and [`Nullable`].
//!
//! Serde's derive would accept an array for a struct, `{"manual": null}` for a word and `null` for an optional member. The
//! protocol refuses all three, so structs are written in a small notation that is close to the page they come from:
//!
//! | member | in the struct | on the wire |
//! | --- | --- | --- |
//! | `name: T,` | `T` | always there |
//! | `name?: T,` | `Option<T>` | absent or a `T`; `null` is an error |
//! | `name \| null: T,` | `Nullable<T>` | absent, `null` or a `T` |
//! | `name \| empty: T,` | `T` | left out when empty |
//!
//! `strict` objects (requests) refuse unknown members; `open` ones (answers) ignore them, so that an old client can talk to
//! a new server. The published schemas are closed for both.
//!
//! Structs of requests can also be read by `plain::ReadPlain`, if the request is plain: it reads each member into an
//! `Option` of its own (`read`), and then makes the struct of these (`finish`).
//!
//! Each struct has a private twin that derives `Deserialize` and `JsonSchema`, because neither derive lets a macro say "this
//! type without null" about an `Option`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::value::MapAccessDeserializer;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A member of a merge patch: absent keeps the present value, null removes it, and a value replaces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nullable<T> {
    /// The member is not there.
    #[default]
    Absent,
    /// The member is `null`.
    Null,
    /// The member has a value.
    Value(T),
}

impl<T> Nullable<T> {
    /// Is the member absent?
    pub const fn is_absent(&self) -> bool {
        matches!(self, Nullable::Absent)
    }

    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Nullable::Value(value) => Some(value),
            Nullable::Absent | Nullable::Null => None,
        }
    }
}

impl<T> From<Option<T>> for Nullable<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Nullable::Null, Nullable::Value)
    }
}

impl<T: Serialize> Serialize for Nullable<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Nullable::Absent | Nullable::Null => serializer.serialize_none(),
            Nullable::Value(value) => value.serialize(serializer),
        }
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Nullable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<T>::deserialize(deserializer).map(Nullable::from)
    }
}

impl<T: JsonSchema> JsonSchema for Nullable<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        Option::<T>::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        Option::<T>::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Option::<T>::json_schema(generator)
    }
}

/// An optional member of a twin: absent or a value, never null. It becomes an `Option` in the struct.
pub(super) struct Opt<T>(pub Option<T>);

impl<T> Default for Opt<T> {
    fn default() -> Self {
        Opt(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Opt<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        T::deserialize(deserializer).map(|value| Opt(Some(value)))
    }
}

impl<T: JsonSchema> JsonSchema for Opt<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }
    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }
    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

/// Reads a `V` by way of its twin `T`, from an object and nothing else.
pub(super) struct ObjectOnly<T, V>(PhantomData<(T, V)>);

impl<T, V> ObjectOnly<T, V> {
    pub(super) const fn new() -> Self {
        Self(PhantomData)
    }
}

impl<'de, T: Deserialize<'de>, V: From<T>> serde::de::Visitor<'de> for ObjectOnly<T, V> {
    type Value = V;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<V, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map)).map(V::from)
    }
}

/// Defines a struct of the protocol; the notation is in the header of this file. Generates `new(required members…)`.
macro_rules! object {
    (strict $(#[$meta:meta])* $name:ident { $($body:tt)* }) => {
        $crate::wire::object::object!(@next [[$(#[$meta])*] $name [deny_unknown_fields] []] [] [] [] $($body)*);
    };
    (open $(#[$meta:meta])* $name:ident { $($body:tt)* }) => {
        $crate::wire::object::object!(@next [[$(#[$meta])*] $name [] [deny_unknown_fields]] [] [] [] $($body)*);
    };
    // Optional.
    (@next $head:tt [$($done:tt)*] $wanted:tt [$($rest_default:tt)*]
        $(#[$meta:meta])* $field:ident ? : $type:ty, $($rest:tt)*) => {
        $crate::wire::object::object!(@next $head [$($done)* {
            [$(#[$meta])*] $field
            [Option<$type>] [#[serde(skip_serializing_if = "Option::is_none")]]
            [$crate::wire::object::Opt<$type>] [#[serde(default)]] [.0]
            [$type] []
        }] $wanted [$($rest_default)* $field] $($rest)*);
    };
    // Nullable.
    (@next $head:tt [$($done:tt)*] $wanted:tt [$($rest_default:tt)*]
        $(#[$meta:meta])* $field:ident | null : $type:ty, $($rest:tt)*) => {
        $crate::wire::object::object!(@next $head [$($done)* {
            [$(#[$meta])*] $field
            [$crate::wire::object::Nullable<$type>]
            [#[serde(skip_serializing_if = "crate::wire::object::Nullable::is_absent")]]
            [$crate::wire::object::Nullable<$type>]
            [#[serde(default, skip_serializing_if = "crate::wire::object::Nullable::is_absent")]] []
            [$crate::wire::object::Nullable<$type>] [.unwrap_or_default()]
        }] $wanted [$($rest_default)* $field] $($rest)*);
    };
    // Left out when empty.
    (@next $head:tt [$($done:tt)*] $wanted:tt [$($rest_default:tt)*]
        $(#[$meta:meta])* $field:ident | empty : $type:ty, $($rest:tt)*) => {
        $crate::wire::object::object!(@next $head [$($done)* {
            [$(#[$meta])*] $field
            [$type] [#[serde(skip_serializing_if = "crate::wire::object::IsEmpty::is_empty")]]
            [$type] [#[serde(default, skip_serializing_if = "crate::wire::object::IsEmpty::is_empty")]] []
            [$type] [.unwrap_or_default()]
        }] $wanted [$($rest_default)* $field] $($rest)*);
    };
    // Always there.
    (@next $head:tt [$($done:tt)*] [$($wanted:tt)*] $rest_default:tt
        $(#[$meta:meta])* $field:ident : $type:ty, $($rest:tt)*) => {
        $crate::wire::object::object!(@next $head [$($done)* {
            [$(#[$meta])*] $field [$type] [] [$type] [] []
            [$type] [.ok_or($crate::wire::plain::NotPlain)?]
        }] [$($wanted)* ($field $type)] $rest_default $($rest)*);
    };
    (@next [[$($meta:tt)*] $name:ident [$($strict:tt)*] [$($closed:tt)*]]
        [$({
            [$($doc:tt)*] $field:ident
            [$own:ty] [$($own_attribute:tt)*]
            [$twin:ty] [$($twin_attribute:tt)*] [$($unwrap:tt)*]
            [$read:ty] [$($finish:tt)*]
        })*]
        [$(($wanted:ident $wanted_type:ty))*] [$($rest_default:ident)*]) => {
        $($meta)*
        #[derive(Debug, Clone, PartialEq, serde::Serialize)]
        pub struct $name {
            $($($doc)* $($own_attribute)* pub $field: $own,)*
        }

        impl $name {
            /// Takes the members that must be there; all others are absent or empty.
            #[allow(clippy::too_many_arguments, clippy::new_without_default)]
            pub fn new($($wanted: $wanted_type),*) -> Self {
                Self { $($wanted,)* $($rest_default: Default::default(),)* }
            }
        }

        const _: () = {
            $($meta)*
            #[derive(serde::Deserialize, schemars::JsonSchema)]
            #[serde($($strict)*)]
            #[schemars($($closed)*)]
            struct Twin {
                $($($doc)* $($twin_attribute)* $field: $twin,)*
            }

            impl From<Twin> for $name {
                #[allow(unused_variables)]
                fn from(twin: Twin) -> Self {
                    Self { $($field: twin.$field $($unwrap)*,)* }
                }
            }

            impl<'de> serde::Deserialize<'de> for $name {
                fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                    deserializer.deserialize_map($crate::wire::object::ObjectOnly::<Twin, Self>::new())
                }
            }

            $crate::wire::object::object!(@plain [$($strict)*] $name [$({$field [$read] [$($finish)*]})*]);

            impl schemars::JsonSchema for $name {
                fn schema_name() -> std::borrow::Cow<'static, str> {
                    std::borrow::Cow::Borrowed(stringify!($name))
                }
                fn schema_id() -> std::borrow::Cow<'static, str> {
                    std::borrow::Cow::Borrowed(concat!(module_path!(), "::", stringify!($name)))
                }
                fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                    <Twin as schemars::JsonSchema>::json_schema(generator)
                }
            }
        };
    };
    // Only requests can be read as plain ones.
    (@plain [] $name:ident $members:tt) => {};
    (@plain [deny_unknown_fields] $name:ident [$({$field:ident [$read:ty] [$($finish:tt)*]})*]) => {
        impl $crate::wire::plain::ReadPlain for $name {
            #[allow(unused_variables)]
            fn read_plain(
                plain: &mut $crate::wire::plain::Plain<'_>,
            ) -> Result<Box<Self>, $crate::wire::plain::NotPlain> {
                $(let mut $field: Option<$read> = None;)*
                plain.members(|plain, member| match member {
                    $(member if member == const { $crate::wire::object::unraw(stringify!($field)) } => {
                        plain.once(&mut $field)
                    })*
                    _ => Err($crate::wire::plain::NotPlain),
                })?;
                Ok(Box::new(Self { $($field: $field $($finish)*,)* }))
            }
        }
    };
}
pub(crate) use object;

/// The name on the wire of a member whose name is a keyword in Rust.
pub(super) const fn unraw(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', rest @ ..] => match std::str::from_utf8(rest) {
            Ok(name) => name,
            Err(_) => name, // The rest of a text after two ASCII characters is a text.
        },
        _ => name,
    }
}

/// A type that an answer leaves out when there is nothing in it.
pub trait IsEmpty {
    /// Is there nothing in it?
    fn is_empty(&self) -> bool;
}

impl<T> IsEmpty for Vec<T> {
    fn is_empty(&self) -> bool {
        self.is_empty()
    }
}

impl<T: IsEmpty> IsEmpty for Box<T> {
    fn is_empty(&self) -> bool {
        T::is_empty(self)
    }
}

/// Defines an enum whose values are words on the wire.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$doc])* $variant,)* }

        impl $name {
            /// All values, in the order of the protocol.
            pub const ALL: &'static [$name] = &[$($name::$variant),*];
            /// Their words, in the same order.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The word on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $($name::$variant => $word,)* }
            }

            /// The value of a word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some($name::$variant),)* _ => None }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                Self::from_word(text).ok_or_else(|| $crate::wire::object::not_a_word(text, Self::WORDS))
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                const EXPECTED: &str = concat!("one of" $(, " `", $word, "`")*);
                $crate::wire::values::text::parse_text(deserializer, EXPECTED, <Self as std::str::FromStr>::from_str)
            }
        }

        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }
            fn schema_name() -> std::borrow::Cow<'static, str> {
                std::borrow::Cow::Borrowed(stringify!($name))
            }
            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": Self::WORDS })
            }
        }
    };
}
pub(crate) use words;

/// Says that a text is not one of the words allowed here.
pub(crate) fn not_a_word(text: &str, words: &[&str]) -> String {
    let shown = super::values::text::shortened(text);
    format!("must be {}, not {shown:?}", one_of(words))
}

/// `"a", "b" or "c"`.
pub(crate) fn one_of(words: &[&str]) -> String {
    match words {
        [] => "nothing".to_owned(),
        [only] => format!("{only:?}"),
        [first @ .., last] => {
            let first: Vec<String> = first.iter().map(|word| format!("{word:?}")).collect();
            format!("{} or {last:?}", first.join(", "))
        }
    }
}
