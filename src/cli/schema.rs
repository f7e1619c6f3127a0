//! The types of members according to the published schemas of methods.

use std::sync::LazyLock;

use serde_json::Value;

use crate::wire::openrpc;

/// The type of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Text: addresses, names, counts.
    Text {
        /// Null clears it.
        or_null: bool,
    },
    /// A number.
    Number,
    /// True or false.
    Flag,
    /// A list.
    List {
        /// Its items are texts.
        of_text: bool,
    },
    /// An object.
    Object,
}

static DOCUMENT: LazyLock<Value> = LazyLock::new(|| serde_json::from_str(openrpc::document()).unwrap_or(Value::Null));

/// The type of the member at `path` (`owner`, `set.note`) of a method's params; none if it is unknown or not unique.
pub fn kind_of(method: &str, path: &str) -> Option<Kind> {
    let methods = DOCUMENT.get("methods")?.as_array()?;
    let mut schema = methods.iter().find(|known| known["name"] == method)?.get("x-params")?;
    for step in path.splitn(2, '.') {
        schema = inside(schema, step)?;
    }
    kind(schema)
}

/// Follows references, and the choice between one schema and null.
fn resolved(schema: &Value) -> &Value {
    let mut schema = schema;
    // Our document has no cycles of plain references; the bound protects against any others.
    for _ in 0..16 {
        if let Some(name) = schema.get("$ref").and_then(Value::as_str) {
            let Some(pointed) = name.strip_prefix('#').and_then(|pointer| DOCUMENT.pointer(pointer)) else { break };
            schema = pointed;
        } else if let Some(only) = only_choice(schema) {
            schema = only;
        } else {
            break;
        }
    }
    schema
}

/// The only member of `anyOf`, `oneOf` or `allOf` that is not null.
fn only_choice(schema: &Value) -> Option<&Value> {
    let choices = ["anyOf", "oneOf", "allOf"].into_iter().find_map(|word| schema.get(word)?.as_array())?;
    let mut choices = choices.iter().filter(|choice| choice["type"] != "null");
    choices.next().filter(|_| choices.next().is_none())
}

fn inside<'a>(schema: &'a Value, member: &str) -> Option<&'a Value> {
    let schema = resolved(schema);
    schema.get("properties").and_then(|members| members.get(member)).or_else(|| {
        // Labels and tags: any key, and one type of value.
        schema.get("additionalProperties").filter(|values| values.is_object())
    })
}

fn may_be_null(schema: &Value) -> bool {
    let listed = |types: &Value| types.as_array().is_some_and(|types| types.iter().any(|kind| kind == "null"));
    let chosen = ["anyOf", "oneOf"].into_iter().filter_map(|word| schema.get(word)?.as_array());
    listed(&schema["type"])
        || chosen.flatten().any(|choice| choice["type"] == "null")
        || listed(&resolved(schema)["type"])
}

fn kind(schema: &Value) -> Option<Kind> {
    let or_null = may_be_null(schema);
    let schema = resolved(schema);
    let of_type = match &schema["type"] {
        Value::String(kind) => kind.as_str(),
        Value::Array(kinds) => {
            let mut kinds = kinds.iter().filter_map(Value::as_str).filter(|&kind| kind != "null");
            kinds.next().filter(|_| kinds.next().is_none())?
        }
        _ => return None,
    };
    match of_type {
        "string" => Some(Kind::Text { or_null }),
        "integer" | "number" => Some(Kind::Number),
        "boolean" => Some(Kind::Flag),
        "array" => {
            let of_text = schema.get("items").and_then(kind).is_some_and(|item| matches!(item, Kind::Text { .. }));
            Some(Kind::List { of_text })
        }
        "object" => Some(Kind::Object),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_the_kind_that_the_table_says() {
        let text = Some(Kind::Text { or_null: false });
        for (method, path, expected) in [
            ("ip.allocate", "owner", text),
            ("ip.allocate", "slot", text),
            ("ip.allocate", "must_create", Some(Kind::Flag)),
            ("ip.allocate", "wait_seconds", Some(Kind::Number)),
            ("ip.allocate", "labels.tier", text),
            ("ip.acquire", "ips", Some(Kind::List { of_text: false })),
            ("subnet.add", "zones", Some(Kind::List { of_text: true })),
            ("ip.transfer", "to.owner", text),
            ("subnet.modify", "set.gateway", Some(Kind::Text { or_null: true })),
            ("ip.get", "no_such_member", None),
            ("no.such_method", "owner", None),
        ] {
            assert_eq!(kind_of(method, path), expected, "{method} {path}");
        }
    }
}
