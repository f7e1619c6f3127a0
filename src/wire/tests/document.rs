//! The published document, the table of methods, the kinds of errors and the examples agree.

use serde_json::{Value, json};

use super::examples::EXAMPLES;
use crate::wire::errors::{ErrorData, ErrorKind};
use crate::wire::methods::{Method, Params, Request, parse};
use crate::wire::{openrpc, params};

fn document() -> Value {
    serde_json::from_str(openrpc::document()).unwrap()
}

fn method<'a>(document: &'a Value, name: &str) -> &'a Value {
    let methods = document["methods"].as_array().unwrap();
    methods.iter().find(|method| method["name"] == name).unwrap_or_else(|| panic!("{name} is not in the document"))
}

/// A validator of one schema of the document, with the definitions it refers to.
fn validator(document: &Value, schema: &Value) -> jsonschema::Validator {
    let whole = json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "allOf": [schema],
        "components": document["components"],
    });
    jsonschema::validator_for(&whole).unwrap()
}

#[track_caller]
fn assert_valid(validator: &jsonschema::Validator, instance: &Value, what: &str) {
    let errors: Vec<String> =
        validator.iter_errors(instance).map(|error| format!("{}: {error}", error.instance_path)).collect();
    assert!(errors.is_empty(), "{what}: {errors:#?}");
}

/// The result read as its type and written again.
fn result_again(name: &str, result: &str) -> String {
    fn again<P: Params>(result: &str) -> String {
        let value: P::Result = serde_json::from_str(result).unwrap_or_else(|error| panic!("{result}: {error}"));
        serde_json::to_string(&value).unwrap()
    }
    macro_rules! by_name {
        ($($method:ident)*) => {
            match Method::from_name(name).unwrap() {
                $(Method::$method => again::<params::$method>(result),)*
                other => panic!("{other:?} has no struct of params"),
            }
        };
    }
    by_name!(IpAllocate IpClaim IpAcquire IpRelease IpRenew IpBind IpUnbind IpUpdate IpTransfer IpDecline IpGet IpFind
        IpList OwnerRelease ScopeRelease ClaimantMark ClaimantSweep NetworkCreate NetworkGet NetworkList NetworkUpdate
        NetworkDelete NetworkRestore NetworkUsage NetworkMap SubnetAdd SubnetModify SubnetMove SubnetRemove PoolAdd
        PoolModify PoolRemove ReservedAdd ReservedRemove RealmList ScopeList DeploymentPlan
        DeploymentApply DeploymentCommit DeploymentRevert DeploymentGet DeploymentList DeploymentDelete EventsWatch EventsUnwatch EventsHistory ServerInfo ServerPing ClusterNodes
        ClusterLocate ClusterDrain ClusterConflicts ClusterAccept SessionSet RpcDiscover)
}

#[test]
fn every_served_method_has_an_example_in_order() {
    let served: Vec<&str> =
        Method::ALL.iter().filter(|method| method.is_served()).map(|method| method.name()).collect();
    let examples: Vec<&str> = EXAMPLES.iter().map(|example| example.0).collect();
    assert_eq!(served, examples);
}

#[test]
fn examples_are_read_and_written_again_byte_for_byte() {
    for &(name, params, result) in EXAMPLES {
        let request = parse(name, params).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(request.method().name(), name);
        assert_eq!(request.params_json().unwrap(), params, "{name}");
        assert_eq!(result_again(name, result), result, "{name}");
    }
}

#[test]
fn examples_are_valid_by_the_published_schemas() {
    let document = document();
    for &(name, params, result) in EXAMPLES {
        let method = method(&document, name);
        let params: Value = serde_json::from_str(params).unwrap();
        assert_valid(&validator(&document, &method["x-params"]), &params, name);
        for descriptor in method["params"].as_array().unwrap() {
            if let Some(value) = params.get(descriptor["name"].as_str().unwrap()) {
                assert_valid(&validator(&document, &descriptor["schema"]), value, name);
            }
        }
        let result: Value = serde_json::from_str(result).unwrap();
        assert_valid(&validator(&document, &method["result"]["schema"]), &result, name);
    }
}

#[test]
fn schemas_are_closed_and_refuse_null_where_the_parser_does() {
    let document = document();
    for &(name, params, result) in EXAMPLES {
        let method = method(&document, name);
        let of_params = validator(&document, &method["x-params"]);
        let params: Value = serde_json::from_str(params).unwrap();
        let mut unknown = params.clone();
        unknown["no_such_member"] = json!(1);
        assert!(!of_params.is_valid(&unknown), "{name} takes unknown members");
        for member in params.as_object().unwrap().keys() {
            let mut nulled = params.clone();
            nulled[member] = Value::Null;
            let parsed = parse(name, &nulled.to_string()).is_ok();
            assert_eq!(of_params.is_valid(&nulled), parsed, "{name}: {member} of null");
        }
        let mut result: Value = serde_json::from_str(result).unwrap();
        if result.is_object() && name != "rpc.discover" {
            result["no_such_member"] = json!(1);
            assert!(
                !validator(&document, &method["result"]["schema"]).is_valid(&result),
                "{name} answers unknown members"
            );
        }
    }
}

#[test]
fn a_required_member_is_required_by_parser_and_schema_alike() {
    let document = document();
    for &(name, params, _) in EXAMPLES {
        let method = method(&document, name);
        let of_params = validator(&document, &method["x-params"]);
        let params: Value = serde_json::from_str(params).unwrap();
        for member in params.as_object().unwrap().keys() {
            let mut without = params.clone();
            without.as_object_mut().unwrap().remove(member);
            assert_eq!(of_params.is_valid(&without), parse(name, &without.to_string()).is_ok(), "{name}: no {member}");
        }
    }
}

#[test]
fn every_method_takes_a_deadline_and_every_write_a_dry_run_and_a_reason() {
    let document = document();
    for method in Method::ALL.iter().filter(|method| method.is_served()) {
        let described = self::method(&document, method.name());
        let members = &described["x-params"]["properties"];
        let writes = method.access() == crate::wire::methods::Access::Write;
        assert!(members.get("deadline_ms").is_some(), "{method:?}");
        assert_eq!(members.get("dry_run").is_some(), writes, "{method:?}");
        assert_eq!(members.get("reason").is_some(), writes, "{method:?}");
        assert_eq!(described["x-access"], if writes { "write" } else { "read" });
        assert_eq!(described["errors"].as_array().unwrap().len(), ErrorKind::ALL.len());
    }
}

#[test]
fn of_waiting_the_schema_takes_what_the_parser_takes() {
    let document = document();
    for &(name, params, _) in
        EXAMPLES.iter().filter(|(name, ..)| ["ip.allocate", "ip.claim", "ip.acquire"].contains(name))
    {
        let method = method(&document, name);
        let of_params = validator(&document, &method["x-params"]);
        for (seconds, taken) in
            [(json!(0), true), (json!(60), true), (json!(86_400), true), (json!(86_401), false), (json!(-1), false)]
        {
            let mut params: Value = serde_json::from_str(params).unwrap();
            params["wait_seconds"] = seconds;
            let parsed = parse(name, &params.to_string());
            assert_eq!((of_params.is_valid(&params), parsed.is_ok()), (taken, taken), "{params}: {parsed:?}");
        }
    }
}

#[test]
fn what_is_known_by_name_only_is_not_published() {
    let document = document();
    let names: Vec<&str> =
        document["methods"].as_array().unwrap().iter().map(|m| m["name"].as_str().unwrap()).collect();
    let served: Vec<&str> = Method::ALL.iter().filter(|m| m.is_served()).map(|m| m.name()).collect();
    assert_eq!(names, served);
    assert_eq!(Method::ALL.len(), Method::NAMES.len());
    for (method, name) in Method::ALL.iter().zip(Method::NAMES) {
        assert_eq!(Method::from_name(name), Some(*method));
    }
}

#[test]
fn every_reference_of_the_document_leads_somewhere() {
    fn walk<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
        match value {
            Value::Object(members) => members.iter().for_each(|(key, value)| match value.as_str() {
                Some(reference) if key == "$ref" => found.push(reference),
                _ => walk(value, found),
            }),
            Value::Array(entries) => entries.iter().for_each(|value| walk(value, found)),
            _ => {}
        }
    }
    let document = document();
    let mut references = Vec::new();
    walk(&document, &mut references);
    assert!(references.len() > 100);
    for reference in references {
        assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference} leads nowhere");
    }
}

#[test]
fn kinds_of_errors_are_published_with_their_codes() {
    let document = document();
    let mut codes = std::collections::BTreeSet::new();
    for kind in ErrorKind::ALL {
        assert!(codes.insert(kind.code()), "{kind} shares its code");
        assert_eq!(document["components"]["errors"][kind.as_str()]["code"], kind.code());
    }
    assert_eq!(document["components"]["errors"].as_object().unwrap().len(), ErrorKind::ALL.len());
    let data = serde_json::to_value(ErrorData::new(ErrorKind::Moved, ErrorKind::Moved.retry())).unwrap();
    assert_valid(&validator(&document, &document["x-error-data"]), &data, "error data");
}

#[test]
fn a_request_knows_its_network_and_what_it_may_change() {
    let request = |name, params| parse(name, params).unwrap();
    let allocate =
        request("ip.allocate", r#"{"network":"lan","owner":"a","dry_run":true,"reason":"r","deadline_ms":5}"#);
    assert_eq!(allocate.network().unwrap().to_string(), "lan");
    assert!(allocate.is_dry_run());
    assert_eq!(allocate.reason().unwrap().as_str(), "r");
    assert_eq!(allocate.deadline_ms(), Some(5));
    assert_eq!(request("ip.bind", r#"{"address":"10.0.0.1","scope":"s","claimant":"c"}"#).network(), None);
    let ping = Request::from(params::ServerPing::new());
    assert!(ping.network().is_none() && !ping.is_dry_run() && ping.reason().is_none());
}
