//! Deployments over real sockets: the use cases that the documents promise, and everything else that the protocol's page
//! says.

mod dealt;
mod durable;
mod dynamic;
mod ends;
mod large;
mod let_go;
mod limits;
mod parts;
mod plans;
mod promises;
mod refusals;
mod use_cases;

use serde_json::{Value, json};

use crate::support::Client;

/// Instances that each wish any address of `lan`.
fn automatic(ids: &[&str]) -> Value {
    ids.iter().map(|id| json!({"id": id, "networks": [{"network": "lan"}]})).collect()
}

/// Instances that each wish a given address of `lan`.
fn named(wishes: &[(&str, &str)]) -> Value {
    let instance =
        |(id, address): &(&str, &str)| json!({"id": id, "networks": [{"network": "lan", "address": address}]});
    wishes.iter().map(instance).collect()
}

/// A deployment, and the client that manages it.
struct Deployment<'a> {
    client: &'a mut Client,
    name: &'static str,
}

impl<'a> Deployment<'a> {
    fn of(client: &'a mut Client, name: &'static str) -> Self {
        Self { client, name }
    }

    fn params(&self, instances: &Value) -> Value {
        json!({"deployment": self.name, "instances": instances})
    }

    fn plan(&mut self, instances: &Value) -> Value {
        let params = self.params(instances);
        self.client.ok("deployment.plan", params)
    }

    fn apply(&mut self, instances: &Value) -> Value {
        let params = self.params(instances);
        self.client.ok("deployment.apply", params)
    }

    fn refused(&mut self, instances: &Value) -> Value {
        let params = self.params(instances);
        let answer = self.client.call("deployment.apply", params);
        assert!(answer["error"]["data"]["kind"].is_string(), "{answer}");
        answer["error"].clone()
    }

    fn groups(&mut self, groups: &Value) -> Value {
        self.client.ok("deployment.apply", json!({"deployment": self.name, "groups": groups}))
    }

    fn commit(&mut self, applied: &Value) -> Vec<String> {
        self.settle("deployment.commit", applied, None)
    }

    fn revert(&mut self, applied: &Value) -> Vec<String> {
        self.settle("deployment.revert", applied, None)
    }

    /// Ends a plan, and returns the addresses that were released.
    fn settle(&mut self, method: &str, applied: &Value, instances: Option<&[&str]>) -> Vec<String> {
        let mut params = json!({"deployment": self.name, "plan": applied["plan"]});
        if let Some(instances) = instances {
            params["instances"] = json!(instances);
        }
        let done = self.client.ok(method, params);
        addresses_of(&done["released"])
    }

    fn get(&mut self) -> Value {
        self.client.ok("deployment.get", json!({"deployment": self.name}))
    }

    /// Current and obsolete addresses of an instance.
    fn held(&mut self, id: &str) -> (Vec<String>, Vec<String>) {
        let all = self.get();
        let found = all["instances"].as_array().unwrap().iter().find(|instance| instance["id"] == id);
        found.map_or_else(Default::default, |instance| {
            (addresses_of(&instance["reservations"]), addresses_of(&instance["obsolete"]))
        })
    }
}

fn addresses_of(list: &Value) -> Vec<String> {
    list.as_array().unwrap().iter().map(|entry| entry["address"].as_str().unwrap().to_owned()).collect()
}

/// State and address of one wish of one instance.
fn slot(answer: &Value, instance: usize, network: usize) -> (String, String) {
    let slot = &answer["instances"][instance]["networks"][network];
    let address = slot["reservation"]["address"].as_str().unwrap_or_default();
    (slot["state"].as_str().unwrap().to_owned(), address.to_owned())
}

/// State and address of every wish of every instance.
fn slots(answer: &Value) -> Vec<(String, String)> {
    let instances = answer["instances"].as_array().unwrap().iter().enumerate();
    let of = |(at, instance): (usize, &Value)| {
        let count = instance["networks"].as_array().unwrap().len();
        (0..count).map(|which| slot(answer, at, which)).collect::<Vec<_>>()
    };
    instances.flat_map(of).collect()
}

fn is(state: &str, address: &str) -> (String, String) {
    (state.to_owned(), format!("10.0.0.{address}"))
}
