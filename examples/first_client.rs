//! A first client: takes an address, loses nothing when the server is lost, gives the address back.
//!
//! ```console
//! $ cargo run --release --example first_client
//! ```
//!
//! Asks the server at 127.0.0.1:7400, or the nodes that ALLOD_SERVER names, with commas between them.

use allod::client::{Client, ClientError, Options, Told};
use serde_json::{Map, Value, json};

/// The members of an object.
fn members(object: Value) -> Map<String, Value> {
    object.as_object().cloned().unwrap_or_default()
}

/// The tour, against these addresses; what it has to say goes there, a line each time.
pub async fn tour(addresses: &str, mut say: impl FnMut(String)) -> Result<(), ClientError> {
    let client = Client::new(addresses.split(','), Options::default());

    // With `if_absent` it may be repeated, so the client does, should the answer be lost.
    let subnets = json!([{"cidr": "10.9.0.0/24", "gateway": "10.9.0.1"}]);
    client.call("network.create", members(json!({"name": "example", "subnets": subnets, "if_absent": true}))).await?;

    // What happens from here on, without gap or repeat, over as many connections as it takes.
    let mut watch = client.watch(members(json!({"network": "example"}))).await?;

    // Any number of calls may be in flight; a repeated one yields no second address. Names come back, uids do not: were there
    // another `web/0` tomorrow, with a uid of its own, this one's address would not be taken for its.
    let allocate = |owner: &str, uid: &str| {
        let ask = json!({"network": "example", "owner": owner, "owner_uid": uid});
        client.call("ip.allocate", members(ask))
    };
    let (web, db) = tokio::join!(allocate("web/0", "7d1f0c52"), allocate("db/0", "b3a9e644"));
    let (web, db) = (web?, db?);
    say(format!("web/0 has {}, db/0 has {}", web["interface"], db["interface"]));

    // By generation, so that it can be repeated too: it never frees what somebody else was given since.
    for held in [&web, &db] {
        let ask = json!({"network": "example", "address": held["address"], "if_generation": held["generation"]});
        match client.call("ip.release", members(ask)).await {
            Ok(released) => say(format!("released {}", released["released"])),
            // Nobody but a look at the server can tell; the error says where to look.
            Err(error @ ClientError::Unknown { .. }) => say(error.to_string()),
            Err(error) => return Err(error),
        }
    }

    let mut left = 2;
    while left > 0 {
        let Told::Event(event) = watch.next().await? else { continue };
        say(format!("{} {} {}", event["type"], event["address"], event["owner"]));
        left -= usize::from(event["type"] == "released");
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
#[allow(dead_code, reason = "a test has a main of its own")]
async fn main() -> Result<(), ClientError> {
    let addresses = std::env::var("ALLOD_SERVER").unwrap_or_else(|_| "127.0.0.1:7400".to_owned());
    tour(&addresses, |line| println!("{line}")).await
}
