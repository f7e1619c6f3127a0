//! The contents of a data directory or of Redis as text for a repository, and back.
//!
//! For files: `== NAME LENGTH`, and then the lines that are not all zero, 32 bytes each: `OFFSET HEX`. For Redis: the
//! commands that restore it, one per line; words that are not plain are `hex:…`.

use std::fmt::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;

const LINE_BYTES: usize = 32;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes().chunks(2).map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

fn put(out: &mut String, root: &Path, directory: &Path) {
    let mut paths: Vec<_> = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            put(out, root, &path);
            continue;
        }
        let name = path.strip_prefix(root).unwrap().display().to_string();
        if name == "LOCK" {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        writeln!(out, "== {name} {}", bytes.len()).unwrap();
        for (at, line) in bytes.chunks(LINE_BYTES).enumerate() {
            if line.iter().any(|byte| *byte != 0) {
                writeln!(out, "{} {}", at * LINE_BYTES, hex(line)).unwrap();
            }
        }
    }
}

pub fn of_directory(directory: &Path) -> String {
    let mut out = String::new();
    put(&mut out, directory, directory);
    out
}

pub fn to_directory(text: &str, directory: &Path) {
    let mut file = None;
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        if let ["==", name, length] = words[..] {
            let path = directory.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            let made = std::fs::File::create(path).unwrap();
            made.set_len(length.parse().unwrap()).unwrap();
            file = Some(made);
        } else {
            let [at, bytes] = words[..] else { panic!("{line}") };
            file.as_ref().unwrap().write_all_at(&unhex(bytes), at.parse().unwrap()).unwrap();
        }
    }
}

fn word(bytes: &[u8]) -> String {
    let plain = bytes.iter().all(u8::is_ascii_graphic) && !bytes.is_empty() && !bytes.starts_with(b"hex:");
    if plain { String::from_utf8(bytes.to_vec()).unwrap() } else { format!("hex:{}", hex(bytes)) }
}

fn connect(url: &str) -> redis::Connection {
    redis::Client::open(url).unwrap().get_connection().unwrap()
}

/// Leaves out what ends by itself: which nodes were seen, and who leased the register.
pub fn of_redis(url: &str) -> String {
    let mut connection = connect(url);
    let mut keys: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    keys.sort();
    let mut out = String::new();
    for key in keys {
        let mut ask = |command: &str, more: &[&str]| -> Vec<Vec<u8>> {
            redis::cmd(command).arg(&key).arg(more).query(&mut connection).unwrap()
        };
        let mut say = |command: &str, words: &[Vec<u8>]| {
            let words: Vec<String> = words.iter().map(|bytes| word(bytes)).collect();
            writeln!(out, "{command} {} {}", word(&key), words.join(" ")).unwrap();
        };
        let kind: String = redis::cmd("TYPE").arg(&key).query(&mut connect(url)).unwrap();
        match kind.as_str() {
            "hash" => {
                let mut pairs: Vec<Vec<Vec<u8>>> = ask("HGETALL", &[]).chunks(2).map(<[_]>::to_vec).collect();
                pairs.sort();
                pairs.iter().for_each(|pair| say("HSET", pair));
            }
            "zset" => {
                let found = ask("ZRANGE", &["0", "-1", "WITHSCORES"]);
                found.chunks(2).for_each(|pair| say("ZADD", &[pair[1].clone(), pair[0].clone()]));
            }
            "stream" => {
                type Entries = Vec<(Vec<u8>, Vec<Vec<u8>>)>;
                let entries: Entries =
                    redis::cmd("XRANGE").arg(&key).arg("-").arg("+").query(&mut connect(url)).unwrap();
                entries.into_iter().for_each(|(id, fields)| say("XADD", &[vec![id], fields].concat()));
            }
            other => panic!("a key of a kind that nobody knows: {other}"),
        }
    }
    out
}

pub fn to_redis(text: &str, url: &str) {
    let mut connection = connect(url);
    for line in text.lines() {
        let mut words = line.split(' ');
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            match word.strip_prefix("hex:") {
                Some(bytes) => command.arg(unhex(bytes)),
                None => command.arg(word),
            };
        }
        command.query::<redis::Value>(&mut connection).unwrap();
    }
}
