//! Checks against the published OpenRPC document: params of successful requests, results, and the data of errors.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, OnceLock};

use allod::wire::openrpc;
use jsonschema::Validator;
use serde_json::{Value, json};

/// The document's contents, ready for checks.
pub static PUBLISHED: LazyLock<Published> = LazyLock::new(Published::new);

pub struct Published {
    /// Schemas of params and result by method.
    methods: HashMap<String, (Judge, Judge)>,
    error_data: Judge,
    /// Schemas of the params of notifications, by method.
    notifications: HashMap<String, Judge>,
    /// Error codes by kind.
    codes: HashMap<String, i64>,
}

/// A schema that is compiled at its first use: each is compiled with everything to which it may refer, and most tests meet
/// few methods.
struct Judge {
    schema: Value,
    components: Arc<Value>,
    compiled: OnceLock<Validator>,
}

impl Published {
    fn new() -> Self {
        let document: Value = serde_json::from_str(openrpc::document()).unwrap();
        let components = Arc::new(document["components"].clone());
        let judge = |schema: &Value| Judge {
            schema: schema.clone(),
            components: Arc::clone(&components),
            compiled: OnceLock::new(),
        };
        let methods = document["methods"].as_array().unwrap().iter();
        let methods = methods.map(|method| {
            let (params, result) = (judge(&method["x-params"]), judge(&method["result"]["schema"]));
            (method["name"].as_str().unwrap().to_owned(), (params, result))
        });
        let errors = components["errors"].as_object().unwrap().iter();
        let notifications = document["x-notifications"].as_array().unwrap().iter();
        let notifications = notifications.map(|notification| {
            let name = notification["name"].as_str().unwrap().to_owned();
            (name, judge(&notification["x-params"]))
        });
        Self {
            methods: methods.collect(),
            notifications: notifications.collect(),
            error_data: judge(&document["x-error-data"]),
            codes: errors.map(|(kind, error)| (kind.clone(), error["code"].as_i64().unwrap())).collect(),
        }
    }

    /// Checks a notification, including its envelope.
    #[allow(dead_code, reason = "not every suite watches")]
    pub fn judge_notification(&self, envelope: &Value) -> Result<(), String> {
        let members = envelope.as_object().map_or(0, serde_json::Map::len);
        let method = envelope["method"].as_str().unwrap_or_default();
        let of_params = self.notifications.get(method).ok_or(format!("{envelope} is not published"))?;
        if members != 3 || envelope["jsonrpc"] != "2.0" {
            return Err(format!("envelope {envelope}"));
        }
        of_params.valid(&envelope["params"], method)
    }

    /// Checks a request and its answer, including the envelope.
    pub fn judge(&self, method: &str, params: &Value, envelope: &Value) -> Result<(), String> {
        let (of_params, of_result) = self.methods.get(method).ok_or(format!("{method} is not published"))?;
        let members: Vec<&str> = envelope.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
        let known = members.iter().all(|name| ["jsonrpc", "id", "result", "error"].contains(name));
        match (envelope.get("result"), envelope.get("error")) {
            _ if !known || members.len() != 3 || envelope["jsonrpc"] != "2.0" => Err(format!("envelope {envelope}")),
            (Some(result), None) => {
                of_params.valid(params, "params")?;
                of_result.valid(result, "result")
            }
            (None, Some(error)) => {
                self.error_data.valid(&error["data"], "error data")?;
                let code = error["data"]["kind"].as_str().and_then(|kind| self.codes.get(kind));
                let said = error["message"].as_str().is_some_and(|message| !message.is_empty());
                if code == error["code"].as_i64().as_ref() && code.is_some() && said {
                    Ok(())
                } else {
                    Err(format!("code, kind or message of {error}"))
                }
            }
            _ => Err(format!("neither or both of result and error: {envelope}")),
        }
    }
}

impl Judge {
    fn compile(&self) -> Validator {
        let whole = json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "allOf": [self.schema],
            "components": *self.components,
        });
        jsonschema::validator_for(&whole).unwrap()
    }

    fn valid(&self, instance: &Value, what: &str) -> Result<(), String> {
        match self.compiled.get_or_init(|| self.compile()).iter_errors(instance).next() {
            None => Ok(()),
            Some(error) => Err(format!("{what} against the published schema: {}: {error}", error.instance_path)),
        }
    }
}
