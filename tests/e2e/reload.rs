//! A running server reads its configuration again: SIGHUP, and `allod reload`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::redis::send_signal;
use crate::server::{Server, Starting, allod};

/// The longest wait for a line of the log.
const LOG_WAIT_MAX: Duration = Duration::from_secs(60);

/// A server and its configuration file.
struct Configured {
    /// None once it was stopped.
    server: Option<Server>,
    directory: TempDir,
}

impl Configured {
    fn starts(text: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut configured = Self { server: None, directory };
        configured.says(text);
        let [data, file] = [configured.data(), configured.file()].map(|path| path.display().to_string());
        let server = Starting::with_arguments(&configured.data(), &["serve", "--data", &data, "--config", &file]);
        configured.server = Some(server.ready());
        configured
    }

    fn data(&self) -> PathBuf {
        self.directory.path().join("data")
    }

    fn file(&self) -> PathBuf {
        self.directory.path().join("server.toml")
    }

    fn says(&self, text: &str) {
        std::fs::write(self.file(), text).unwrap();
    }

    fn server(&self) -> &Server {
        self.server.as_ref().expect("it runs")
    }

    /// Stops the server, and returns everything that it logged.
    fn stop(mut self) -> String {
        self.server.take().expect("it runs").stop();
        std::fs::read_to_string(self.data().with_extension("log")).unwrap()
    }
}

fn hang_up(server: &Server) {
    send_signal(server.pid(), "-HUP");
}

/// Waits until the log has this text this many times.
#[track_caller]
fn logged(server: &Server, text: &str, times: usize) {
    let begun = Instant::now();
    while server.log_text().matches(text).count() < times {
        assert!(begun.elapsed() < LOG_WAIT_MAX, "no {times} × {text:?} in {}", server.log_text());
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_hangup_switches_the_log_level_and_names_what_waits_for_a_start() {
    let configured = Configured::starts("[log]\nlevel = \"warn\"\n");
    let server = configured.server();
    assert_eq!(server.log_text(), "", "nothing to warn of");

    configured.says("[log]\nlevel = \"debug\"\nformat = \"json\"\n[server]\nmax_connections = 7\n");
    hang_up(server);
    logged(server, "these keys were changed", 1);
    let log = server.log_text();
    assert!(log.contains("the log level is switched from=\"warn\" to=\"debug\""), "{log}");
    assert!(
        log.contains("keys=\"log.format, server.max_connections\"")
            || log.contains("keys=\"server.max_connections, log.format\""),
        "{log}"
    );

    // A less talkative level again: the switch is logged while the old level still allows it.
    configured.says("[log]\nlevel = \"error\"\n");
    hang_up(server);
    logged(server, "the log level is switched from=\"debug\" to=\"error\"", 1);
    server.allod_ok(&["server", "ping"]);
    let log = configured.stop();
    assert!(!log.contains("stopped"), "level `error` is in force: {log}");
}

#[test]
fn a_file_that_is_wrong_or_gone_changes_nothing() {
    let configured = Configured::starts("[log]\nlevel = \"info\"\n");
    let server = configured.server();
    let wrong =
        ["[log]\nlevel = \"a=b=c\"\n", "[log]\nlevel = \"debgu\"\n", "[log]\nlevel = \"error\"\nlewel = 1\n", "[log\n"];
    for (at, text) in wrong.iter().enumerate() {
        configured.says(text);
        hang_up(server);
        logged(server, "ERROR", at + 1);
    }
    std::fs::remove_file(configured.file()).unwrap();
    hang_up(server);
    logged(server, "ERROR", wrong.len() + 1);
    let log = server.log_text();
    assert_eq!(log.matches("the configuration is refused, nothing changed").count(), wrong.len() + 1, "{log}");
    assert!(log.contains("`log.level` is \"a=b=c\"") || log.contains("`log.level` is \\\"a=b=c\\\""), "{log}");
    assert!(log.contains("`log.level` is \"debgu\"") || log.contains("`log.level` is \\\"debgu\\\""), "{log}");
    assert!(log.contains("did you mean `log.level`?") && log.contains("cannot read the configuration"), "{log}");
    let log = configured.stop();
    assert!(log.contains("stopped"), "level `info` is in force: {log}");
}

#[test]
fn a_hangup_ends_no_server_also_where_no_file_was_named() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let server = Server::start(&data);
    hang_up(&server);
    logged(&server, "there is nothing to read again", 1);
    server.allod_ok(&["server", "ping"]);
    server.stop();
}

#[test]
fn a_server_whose_log_nobody_reads_any_more_goes_on_and_stops_as_it_should() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    // As after the terminal or the other end of a pipe is gone: stderr can no longer be written.
    let config = directory.path().join("server.toml");
    std::fs::write(&config, "[log]\nlevel = \"info\"\n").unwrap();
    let mut child = Command::new(allod())
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"])
        .args([&data, Path::new("--config"), &config])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let address = line.strip_prefix("ready tcp=").and_then(|rest| rest.split_once(" http=")).unwrap().0.to_owned();
    drop(child.stderr.take());
    std::fs::write(&config, "nonsense = 1\n").unwrap();
    for _ in 0..3 {
        send_signal(child.id(), "-HUP");
        let ping = Command::new(allod()).args(["server", "ping", "--server", &address]).output().unwrap();
        assert!(ping.status.success(), "{ping:?}");
    }
    send_signal(child.id(), "-TERM");
    assert_eq!(child.wait().unwrap().code(), Some(0), "it stops as it should");
}

#[test]
fn reload_asks_a_server_and_harms_nothing_else() {
    let configured = Configured::starts("");
    let server = configured.server();
    configured.says("[log]\nlevel = \"debug\"\n");
    server.allod_ok(&["reload", &server.pid().to_string()]);
    logged(server, "the log level is switched from=\"info\" to=\"debug\"", 1);

    configured.says("[log]\nlevle = \"debug\"\n");
    let wrong = server.allod(&["reload", &server.pid().to_string()]);
    assert_eq!(wrong.status.code(), Some(1));
    let said = String::from_utf8_lossy(&wrong.stderr).into_owned();
    assert!(said.contains("levle") && said.contains(&configured.file().display().to_string()), "{said}");
    std::fs::remove_file(configured.file()).unwrap();
    assert_eq!(server.allod(&["reload", &server.pid().to_string()]).status.code(), Some(1));

    let mut other = Command::new("sleep").arg("600").spawn().unwrap();
    let refused = server.allod(&["reload", &other.id().to_string()]);
    let still_there = other.try_wait().unwrap().is_none();
    other.kill().unwrap();
    other.wait().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("not a server that listens for that signal"), "{said}");
    assert!(still_there);
    let gone = server.allod(&["reload", &other.id().to_string()]);
    assert_eq!(gone.status.code(), Some(1));
    let log = configured.stop();
    assert!(!log.contains("is refused, nothing changed"), "it was asked nevertheless:\n{log}");
}

#[test]
fn a_variable_that_is_no_text_and_no_setting_stands_in_the_way_of_no_start_and_no_reload() {
    let directory = tempfile::tempdir().unwrap();
    let [data, file] = ["data", "server.toml"].map(|name| directory.path().join(name));
    std::fs::write(&file, "").unwrap();
    let (serve, program) = ([OsStr::new("serve"), OsStr::new("--data"), data.as_os_str()], allod());
    let mut arguments = vec![OsStr::from_bytes(b"X=\xff"), program.as_os_str()];
    arguments.extend(serve.into_iter().chain([OsStr::new("--config"), file.as_os_str()]));
    let server = Starting::of(Path::new("env"), &data, &arguments, Vec::new()).ready();
    std::fs::write(&file, "[log]\nlevel = \"debug\"\n").unwrap();
    server.allod_ok(&["reload", &server.pid().to_string()]);
    logged(&server, "the log level is switched from=\"info\" to=\"debug\"", 1);
    server.stop();
}

#[test]
fn a_setting_that_is_no_text_is_refused_by_name_before_a_start() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut serve = Command::new(allod());
    serve.args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"]).arg(&data);
    let refused = serve.env("ALLOD_SERVER__NODE", OsStr::from_bytes(b"\xff")).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && said.contains("`ALLOD_SERVER__NODE` is not UTF-8"), "{said}");
    assert!(!data.exists(), "{said}");

    // The same holds for a flag: a mangled name would be another directory.
    let mut serve = Command::new(allod());
    serve
        .args(["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--data"])
        .arg(OsStr::from_bytes(b"d\xff"));
    let refused = serve.current_dir(directory.path()).output().unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(64) && said.contains("'--data <DIR>': must be UTF-8"), "{said}");
}

#[test]
fn reload_of_a_server_without_a_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&directory.path().join("data"));
    let refused = server.allod(&["reload", &server.pid().to_string()]);
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("without `--config`"), "{said}");
    server.stop();
}
