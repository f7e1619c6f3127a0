//! The image, without a container engine: its Dockerfile is linted, its build context is complete, and what it ends up with
//! (the programs, the libraries of its base, nothing else) is enough to serve and to drive a server, as its user and by its
//! command.
//!
//! Not shown here: that the bases can be pulled, and that an engine builds the image.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::server::allod;
use crate::tools::{ROOT, files, here, load, needs, ok, read, skip};

/// The shared objects of `distroless/cc`: the C library, and what GCC's programs need.
const LIBRARIES_OF_THE_BASE: [&str; 8] = [
    "libc.so.6",
    "libm.so.6",
    "libgcc_s.so.1",
    "libdl.so.2",
    "libpthread.so.0",
    "librt.so.1",
    "ld-linux-x86-64.so.2",
    "ld-linux-aarch64.so.1",
];

/// The words, in JSON, of an instruction that occurs once in the Dockerfile.
fn words(instruction: &str) -> Vec<String> {
    let text = read("deploy/Dockerfile");
    let lines: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(instruction)?.strip_prefix(' ')).collect();
    assert_eq!(lines.len(), 1, "{instruction}");
    serde_json::from_str(lines[0]).unwrap()
}

#[test]
fn hadolint_finds_nothing_in_the_dockerfile() {
    needs!(["hadolint"]);
    ok(Command::new("hadolint").arg("deploy/Dockerfile"));
}

#[test]
fn the_context_has_what_the_build_needs() {
    let directory = tempfile::tempdir().unwrap();
    let ignored = read("deploy/Dockerfile.dockerignore");
    let allowed: Vec<&str> = ignored.lines().filter_map(|line| line.strip_prefix('!')).collect();
    let copy = |from: &str| ok(Command::new("cp").arg("-a").arg(here(from)).arg(directory.path()));
    allowed.iter().for_each(|path| drop(copy(path)));
    // Fails if a target or a member of the workspace is missing.
    let manifest = directory.path().join("Cargo.toml");
    ok(Command::new(env!("CARGO"))
        .args(["metadata", "--offline", "--locked", "--no-deps", "--format-version", "1", "--manifest-path"])
        .arg(&manifest));
    for source in files(&directory.path().join("src")) {
        // Tests may include files that the image does without.
        if source.ends_with("tests.rs") || source.iter().any(|part| part == "tests") {
            continue;
        }
        let text = std::fs::read_to_string(&source).unwrap();
        for included in text.split("include_str!(\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            let path = source.parent().unwrap().join(included);
            let of_tests = text.find("#[cfg(test)]").is_some_and(|tests| text.find(included) > Some(tests));
            assert!(of_tests || path.exists(), "{}: {included}", source.display());
        }
    }
    // The toolchain is the one that the manifest asks for.
    let asked = read("Cargo.toml").lines().find_map(|line| line.strip_prefix("rust-version = ").map(str::to_owned));
    let asked = asked.unwrap().trim_matches('"').to_owned();
    assert!(read("deploy/Dockerfile").contains(&format!("\nFROM rust:{asked}-")), "Rust {asked}");
}

#[test]
fn the_programs_and_the_libraries_of_the_base_are_enough_to_serve_and_to_load() {
    needs!(["ldd", "chroot"]);
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let put = |from: &str, to: &str| {
        let place = root.join(to.trim_start_matches('/'));
        std::fs::create_dir_all(place.parent().unwrap()).unwrap();
        std::fs::copy(from, &place).unwrap_or_else(|error| panic!("{from}: {error}"));
    };
    put(allod().to_str().unwrap(), "/usr/bin/allod");
    put(load().to_str().unwrap(), "/usr/bin/allod-load");
    put(&format!("{ROOT}/config/server.toml"), "/etc/allod/server.toml");
    let linked = ok(Command::new("ldd").args([allod(), load()]));
    // For two programs `ldd` also prints the name of each.
    for line in linked.lines().filter(|line| !line.contains("linux-vdso") && line.starts_with('\t')) {
        let path = line.split_whitespace().find(|word| word.starts_with('/')).unwrap_or_else(|| panic!("{line}"));
        let name = path.rsplit('/').next().unwrap();
        assert!(LIBRARIES_OF_THE_BASE.contains(&name), "the base has no {name}");
        put(path, path);
    }
    std::fs::create_dir_all(root.join("var/lib/allod")).unwrap();
    let text = read("deploy/Dockerfile");
    let user = text.lines().find_map(|line| line.strip_prefix("USER ")).unwrap();
    assert!(text.contains(&format!("--chown={user} /out/var/lib/allod")), "the volume is the user's");
    let (uid, gid) = user.split_once(':').unwrap();
    let owned = std::os::unix::fs::chown(root.join("var/lib/allod"), uid.parse().ok(), gid.parse().ok());
    // The directory that tempfile made is open to its owner only.
    let open = Command::new("chmod").arg("755").arg(root).status().unwrap();
    if owned.is_err() || !open.success() {
        return skip("only root can serve from a root directory of its own");
    }
    let mut child = Command::new("chroot")
        .arg(format!("--userspec={user}"))
        .arg(root)
        .args(words("ENTRYPOINT"))
        .args(words("CMD"))
        .args(["--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let asked = line.strip_prefix("ready tcp=").and_then(|rest| rest.split_once(' ')).map(|(address, _)| {
        let driven = Command::new("chroot")
            .arg(format!("--userspec={user}"))
            .arg(root)
            .args(["/usr/bin/allod-load", "run", "fill", "--requests", "100", "--quiet", "--server", address])
            .output()
            .unwrap();
        assert!(driven.status.success(), "{}", String::from_utf8_lossy(&driven.stderr));
        // This is the question of the health check in compose.yaml.
        Command::new(allod()).args(["server", "ping", "--server", address]).status().unwrap().success()
    });
    assert!(Command::new("kill").arg(child.id().to_string()).status().unwrap().success());
    let ended = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(asked, Some(true), "{line}{said}");
    assert_eq!(ended.status.code(), Some(0), "{said}");
    assert!(root.join("var/lib/allod/META").exists());
}
