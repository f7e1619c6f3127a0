//! The protocol as an OpenRPC 1.3 document, from the table of methods and the types themselves.
//!
//! Answered by `rpc.discover` and `GET /openrpc.json`. Schemas are JSON Schema draft 7, as OpenRPC 1.3 requires, under
//! `components.schemas`. Objects are closed for params and results alike: members that are not in the schema are never sent.
//!
//! Notifications of the server are in `x-notifications`: name, summary, and the schema of their params.
//!
//! Beyond OpenRPC each method has `x-access` (`read`, `write`) and `x-span`. Its params are repeated as one object in
//! `x-params`, so that a request can be validated as a whole.

use std::sync::LazyLock;

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

use super::PROTOCOL_VERSION;
use super::errors::{ErrorData, ErrorKind};
use super::methods::{Access, Method, Span};
use super::nouns::{BookmarkNotification, CursorLostNotification, EventNotification, LaggedNotification};

const DESCRIPTION: &str = "A register of who holds which address. JSON-RPC 2.0 over TCP, one JSON value per line; \
    the same over POST /rpc. Params are by name; unknown members are refused.";

static DOCUMENT: LazyLock<String> = LazyLock::new(|| build().to_string());

/// The document as JSON text, made once.
pub fn document() -> &'static str {
    &DOCUMENT
}

fn build() -> Value {
    let mut settings = SchemaSettings::draft07();
    settings.definitions_path = "/components/schemas".into();
    settings.meta_schema = None;
    let mut generator = settings.into_generator();
    let methods: Vec<Value> = Method::ALL.iter().filter_map(|method| describe(*method, &mut generator)).collect();
    let notifications = notifications(&mut generator);
    let data = generator.subschema_for::<ErrorData>();
    let schemas = generator.take_definitions(true);
    json!({
        "openrpc": "1.3.2",
        "info": {
            "title": "allod",
            "description": DESCRIPTION,
            "version": format!("{PROTOCOL_VERSION}.0.0"),
            "license": { "name": "Apache-2.0" },
        },
        "methods": methods,
        "components": { "schemas": schemas, "errors": errors() },
        "x-error-data": data,
        "x-notifications": notifications,
    })
}

/// The notifications that are sent for a subscription.
fn notifications(generator: &mut SchemaGenerator) -> Vec<Value> {
    let one = |name: &str, summary: &str, params: schemars::Schema| json!({ "name": name, "summary": summary, "x-params": params });
    vec![
        one("event", "Something happened.", generator.subschema_for::<EventNotification>()),
        one("bookmark", "Nothing else happened up to there.", generator.subschema_for::<BookmarkNotification>()),
        one(
            "lagged",
            "The client is too far behind; the subscription has ended.",
            generator.subschema_for::<LaggedNotification>(),
        ),
        one(
            "cursor_lost",
            "The line of history was cut off, or is damaged; the subscription has ended.",
            generator.subschema_for::<CursorLostNotification>(),
        ),
    ]
}

/// Every kind of error as a component, named by its kind.
fn errors() -> Map<String, Value> {
    ErrorKind::ALL
        .iter()
        .map(|kind| {
            let data = json!({ "kind": kind, "retry": kind.retry() });
            let error = json!({ "code": kind.code(), "message": kind.as_str(), "data": data });
            (kind.as_str().to_owned(), error)
        })
        .collect()
}

fn describe(method: Method, generator: &mut SchemaGenerator) -> Option<Value> {
    let (params, result) = method.schemas(generator)?;
    let mut whole = params.to_value();
    // The transforms of the generator work on definitions only; a method's own object needs none of them.
    if let Some(object) = whole.as_object_mut() {
        object.remove("title");
        object.remove("description");
    }
    let required: Vec<&str> =
        whole["required"].as_array().map(|list| list.iter().filter_map(Value::as_str).collect()).unwrap_or_default();
    let descriptors: Vec<Value> = whole["properties"]
        .as_object()
        .into_iter()
        .flatten()
        .map(|(name, schema)| descriptor(name, schema, required.contains(&name.as_str())))
        .collect();
    let access = match method.access() {
        Access::Read => "read",
        Access::Write => "write",
    };
    let span = match method.span() {
        Span::Network => "network",
        Span::NetworkOrSeveral => "network_or_several",
        Span::Several => "several",
        Span::Server => "server",
    };
    let errors: Vec<Value> =
        ErrorKind::ALL.iter().map(|kind| json!({ "$ref": format!("#/components/errors/{kind}") })).collect();
    Some(json!({
        "name": method.name(),
        "summary": method.summary(),
        "paramStructure": "by-name",
        "params": descriptors,
        "result": { "name": "result", "schema": result },
        "errors": errors,
        "x-access": access,
        "x-span": span,
        "x-params": whole,
    }))
}

fn descriptor(name: &str, schema: &Value, required: bool) -> Value {
    let mut descriptor = json!({ "name": name, "required": required, "schema": schema });
    if let Some(description) = schema.get("description") {
        descriptor["description"] = description.clone();
    }
    descriptor
}
