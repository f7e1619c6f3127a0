//! Runs the commands that `deploy/README.md` gives for a Redis that went back, as they stand.

use std::process::Command;

use serde_json::json;

use super::redis::Redis;
use super::run::{Nodes, Setting, eventually, insist};

const PAGE: &str = include_str!("../../deploy/README.md");

/// The commands of the first console block after `from`, as a shell reads them, for this server.
fn commands(from: &str, redis: &Redis) -> String {
    let (_, rest) = PAGE.split_once(from).unwrap_or_else(|| panic!("the page says nothing of {from}"));
    let (_, block) = rest.split_once("```console\n").unwrap();
    let (block, _) = block.split_once("```").unwrap();
    let lines = block.lines().map(|line| line.strip_prefix("$ ").unwrap());
    lines.map(|line| line.replace("-p 6379", &format!("-p {}", redis.port()))).collect::<Vec<_>>().join("\n")
}

fn typed(redis: &Redis) -> Vec<String> {
    let script = commands("### The store is lost", redis);
    let output = Command::new("bash").args(["-c", &script]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{script}: {printed}");
    printed.lines().map(str::to_owned).collect()
}

/// The log names one shard, and it is not shard 0, which stands at the same batch everywhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_data_that_is_furthest_ahead_is_found_by_what_the_page_says_to_type() {
    let directory = tempfile::tempdir().unwrap();
    let Some(primary) = Redis::replicating(directory.path(), "primary", None) else { return };
    let replica = Redis::replicating(directory.path(), "replica", Some(primary.port())).unwrap();
    eventually("the replica follows", || replica.follows()).await;
    let nodes = Nodes::over(directory, primary, Setting::default());
    let mut client = nodes.client(0).await;
    let mut shard = json!(0);
    for number in 0.. {
        let name = format!("n{number}");
        insist(
            &mut client,
            "network.create",
            &json!({"name": name, "subnets": [{"cidr": format!("10.0.{number}.0/24")}]}),
        )
        .await;
        shard = insist(&mut client, "cluster.locate", &json!({"network": name})).await["shard"].clone();
        if shard != 0 {
            eventually("the replica has it", || replica.of_heads("seq") == nodes.redis.of_heads("seq")).await;
            replica.ask(&["REPLICAOF", "NO", "ONE"]);
            insist(&mut client, "ip.allocate", &json!({"network": name, "owner": "only at the primary"})).await;
            break;
        }
    }
    let (ahead, behind) = (typed(&nodes.redis), typed(&replica));
    assert_eq!((ahead.len(), behind.len()), (4, 4), "{ahead:?}");
    let differ: Vec<(&String, &String)> = ahead.iter().zip(&behind).filter(|(one, other)| one != other).collect();
    let [(ahead, behind)] = differ[..] else { panic!("{differ:?}") };
    let numbers = |line: &str| -> (String, Vec<u64>) {
        let (shard, numbers) = line.split_once(": ").unwrap();
        (shard.to_owned(), numbers.split(' ').map(|number| number.parse().unwrap()).collect())
    };
    let ((name, ahead), (_, behind)) = (numbers(ahead), numbers(behind));
    assert_eq!(name, format!("shard {shard}"));
    assert_eq!((ahead[0], ahead[1]), (behind[0], behind[1] + 1));
}
