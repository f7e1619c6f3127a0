//! The disk of Redis fills up while clients work. The disk is a small file system in memory that only the server sees.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::redis::Redis;
use super::redis::process::skips::skip;
use super::run::{Nodes, Run, Setting, eventually};
use super::seed::seed;

/// Size of the file system: enough for the append-only file of a short run.
const BYTES: usize = 12 << 20;

/// A mount namespace that contains the small file system. A sleeping process keeps it alive.
struct Disk {
    keeper: Child,
    place: PathBuf,
}

impl Disk {
    /// None where mounting is not allowed; the test is then reported as skipped.
    fn new(place: &Path) -> Option<Self> {
        std::fs::create_dir_all(place).unwrap();
        let script =
            format!("mount -t tmpfs -o size={BYTES} tmpfs '{}' && echo ready && exec sleep 600", place.display());
        let mut command = Command::new("unshare");
        command.args(["-rm", "sh", "-c", &script]).stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut keeper) = command.spawn() else {
            skip("there is no unshare");
            return None;
        };
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let disk = Self { keeper, place: place.to_owned() };
        if line.trim() != "ready" {
            skip("no file system may be mounted");
            return None;
        }
        Some(disk)
    }

    /// The prefix of a command that is to see the file system.
    fn entry(&self) -> Vec<String> {
        let pid = self.keeper.id().to_string();
        ["nsenter", "-t", &pid, "-U", "--preserve-credentials", "-m"].map(str::to_owned).to_vec()
    }

    /// The path of a file of it, as seen from outside.
    fn file(&self, name: &str) -> PathBuf {
        let inside = self.place.strip_prefix("/").unwrap();
        Path::new(&format!("/proc/{}/root", self.keeper.id())).join(inside).join(name)
    }

    /// Takes all the room that there is. A little may turn up later, because the kernel counts pages, and not exactly.
    fn fill(&self) {
        use std::io::Write;
        let mut file = std::fs::File::options().create(true).append(true).open(self.file("filler")).unwrap();
        let full = loop {
            if let Err(error) = file.write_all(&[0; 512]) {
                break error;
            }
        };
        assert_eq!(full.kind(), std::io::ErrorKind::StorageFull, "{full}");
    }

    fn free(&self) {
        std::fs::remove_file(self.file("filler")).unwrap();
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        // Both calls fail only if the process has ended already.
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_whose_disk_is_full_refuses_or_ends_and_nothing_that_was_acknowledged_is_lost() {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("disk");
    let Some(disk) = Disk::new(&place) else { return };
    let redis = ["--appendonly", "yes", "--appendfsync", "everysec", "--auto-aof-rewrite-percentage", "0"];
    let Some(redis) = Redis::start_in(&place, &redis, disk.entry()) else { return };
    let mut run = Run::begin(Nodes::over(directory, redis, Setting::default()), 4, seed()).await;
    run.gets_on(200, "at the start").await;
    // With `everysec` Redis reports the error, and goes on when there is room again.
    let refused = run.refusals();
    disk.fill();
    let says = |run: &Run| run.nodes.redis.text(&["INFO", "persistence"]).contains("aof_last_write_status:err");
    eventually("Redis says that its disk is full", || says(&run)).await;
    eventually("somebody is refused", || run.refusals() > refused).await;
    let mut grants = true;
    for _ in 0..20 {
        disk.fill();
        grants = run.load.more(1, Duration::from_secs(1)).await;
        if !grants {
            break;
        }
    }
    assert!(!grants, "it grants what is on no disk");
    disk.free();
    run.gets_on(200, "when there is room again").await;
    // With `always` Redis ends rather than go on with a file that lacks what it had to flush.
    run.nodes.redis.ask(&["CONFIG", "SET", "appendfsync", "always"]);
    run.gets_on(200, "with each change flushed").await;
    disk.fill();
    eventually("it ends", || run.nodes.redis.has_ended()).await;
    disk.free();
    run.nodes.redis.begin();
    run.gets_on(200, "after it was started again").await;
    run.end().await;
}
