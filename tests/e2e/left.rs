//! What a node left on its disk of a register that is moved to another place, or was moved before.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::redis::Redis;
use crate::server::{Server, Starting, allod};

fn run(arguments: &[&str]) -> (bool, String) {
    let Output { status, stdout, stderr } = Command::new(allod()).args(arguments).output().unwrap();
    (status.success(), String::from_utf8_lossy(&stdout).into_owned() + &String::from_utf8_lossy(&stderr))
}

/// A node that acknowledges changes once they are on its disk, because no replica is there.
fn degrading(url: &str, data: &Path) -> Server {
    let environment = [("ALLOD_STORE__REDIS_REPLICAS", "1"), ("ALLOD_STORE__REDIS_DEGRADE", "true")];
    let environment = environment.map(|(key, value)| (key.to_owned(), value.to_owned())).to_vec();
    let text = data.display().to_string();
    Starting::with_environment(data, &["serve", "--redis", url, "--data", &text], environment).ready()
}

/// The files of the directory whose names begin like this.
fn files(data: &Path, begins: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with(begins)).collect()
}

#[test]
fn what_a_node_left_on_its_disk_and_the_register_has_is_put_aside_by_its_move_also_when_that_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let Some(redis) = Redis::start(directory.path(), &[]) else { return };
    let url = redis.url();
    let [node, to] = ["node", "files"].map(|name| directory.path().join(name));
    let server = degrading(&url, &node);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "a"]);
    server.kill();
    let [left] = &files(&node, "REDO-")[..] else { panic!("it has its disk in place of a replica") };
    let bytes = std::fs::read(left).unwrap();
    assert!(bytes.len() > 100);
    let (node_text, to_text) = (node.display().to_string(), to.display().to_string());
    let moving = ["migrate", &url, &to_text, "--node-data", &node_text, "--yes"];
    let (done, said) = run(&moving);
    let [past] = &files(&node, "PAST-")[..] else { panic!("{said}") };
    assert!(done && said.contains(&format!("put aside: {}", past.display())), "{said}");
    assert!(!left.exists() && std::fs::read(past).unwrap() == bytes, "{said}");

    // The register was moved without anybody naming that directory, so no start at the new place would bring what lies there.
    std::fs::rename(past, left).unwrap();
    let (done, said) = run(&moving);
    assert!(done && said.contains("put aside: ") && said.contains("was moved before"), "{said}");
    assert!(!left.exists());
    let (done, said) = run(&moving);
    assert!(done && !said.contains("put aside: ") && said.contains("was moved before"), "{said}");

    // Another directory is in its place: the real one is not mounted. A server that was started there would begin an empty register.
    let unmounted = directory.path().join("unmounted");
    std::fs::rename(&to, &unmounted).unwrap();
    std::fs::create_dir(&to).unwrap();
    std::fs::write(left, &bytes).unwrap();
    let (done, said) = run(&moving);
    assert!(!done && said.contains("holds no register") && said.contains("that it is mounted"), "{said}");
    std::fs::remove_dir_all(&to).unwrap();
    std::fs::rename(&unmounted, &to).unwrap();
    let server = Server::start(&to);
    assert!(server.allod_ok(&["ip", "list"]).contains("10.0.0.1"));
    server.stop();
}

#[test]
fn a_register_that_lacks_what_a_node_left_on_its_disk_is_not_moved_before_that_node_brought_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut redis) = Redis::start(directory.path(), &[]) else { return };
    let url = redis.url();
    let [node, to] = ["node", "files"].map(|name| directory.path().join(name));
    let server = degrading(&url, &node);
    server.allod_ok(&["network", "create", "lan", "--subnet", "10.0.0.0/24"]);
    redis.ask(&["SAVE"]);
    server.allod_ok(&["ip", "allocate", "lan", "--owner", "a"]);
    server.kill();
    redis.crash();
    let (node_text, to_text) = (node.display().to_string(), to.display().to_string());
    for how in ["--dry-run", "--yes"] {
        let (done, said) = run(&["migrate", &url, &to_text, "--node-data", &node_text, how]);
        assert!(!done && said.contains("REDO-") && said.contains("is not known to have them"), "{said}");
        assert!(said.contains("Start that node once more") && !to.exists(), "{said}");
    }
    degrading(&url, &node).kill();
    let (done, said) = run(&["migrate", &url, &to_text, "--node-data", &node_text, "--yes"]);
    assert!(done && said.contains("put aside: ") && files(&node, "REDO-").is_empty(), "{said}");
    let server = Server::start(&to);
    assert!(server.allod_ok(&["ip", "list"]).contains("10.0.0.1"));
    server.stop();
}
