//! `allod migrate`: moves a register from files to Redis or back; it is in exactly one of the two places at any time.

use std::path::{Path, PathBuf};

use clap::Args;
use rustix::fs::Access;

use super::exit::Exit;
use super::failure::Failure;
use super::progress::Progress;
use super::quote::shell;
use super::serve_args::text_path;
use super::session::{Done, Options, Session};
use crate::core::plural::counted;
use crate::limits::SHARDS_MAX;
use crate::serve::from_cli::{self, MoveEnd, MoveRoute, TlsFiles};

/// The end of the `--help` text.
const EXAMPLES: &str = "\
Examples:
  allod migrate allod-data redis://127.0.0.1:6379/0
  allod migrate redis://127.0.0.1:6379/0 allod-data-again

Stop the server first. The old place is closed for good, the new one must be
empty, and only one of the two can be served at any time. If the move breaks
off, run the same command again. The history begins anew.";

/// `allod migrate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Migrate {
    /// Where the register is: a data directory, or the URL of Redis
    from: String,
    /// Where it is to go: an empty directory, or the URL of Redis
    to: String,
    /// Prefix of its keys in Redis (`store.prefix`)
    #[arg(long, value_name = "TEXT", default_value = "allod")]
    redis_prefix: String,
    /// CA that signs for a Redis over TLS (`store.redis_ca`) [default: those that the system trusts]
    #[arg(long, value_name = "FILE", value_parser = text_path())]
    redis_ca: Option<PathBuf>,
    /// Client certificate for a Redis over TLS (`store.redis_certificate`)
    #[arg(long, value_name = "FILE", value_parser = text_path(), requires = "redis_key")]
    redis_certificate: Option<PathBuf>,
    /// Key of that certificate (`store.redis_key`)
    #[arg(long, value_name = "FILE", value_parser = text_path(), requires = "redis_certificate")]
    redis_key: Option<PathBuf>,
    /// How many replicas of Redis must have each write, and the end of the move, before it counts
    /// [default: all that follow it then]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(..=16))]
    redis_replicas: Option<u32>,
    /// Data directory of a node that kept the register in Redis: what that node acknowledged must be there, and its file
    /// REDO-… is put aside; may be repeated, and TO counts as one if it was a node's
    #[arg(long = "node-data", value_name = "DIR")]
    nodes: Vec<PathBuf>,
    /// Move what Redis has, although it lacks changes that a node acknowledged: those are given up
    #[arg(long)]
    accept_rollback: bool,
    /// Number of shards of the moved register [default: as now]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=i64::from(SHARDS_MAX)))]
    shards: Option<u16>,
    /// Show what would be moved, and change nothing
    #[arg(long)]
    dry_run: bool,
}

impl Migrate {
    fn tls(&self) -> TlsFiles {
        let file = |path: &Option<PathBuf>| path.clone().unwrap_or_default();
        TlsFiles { ca: file(&self.redis_ca), certificate: file(&self.redis_certificate), key: file(&self.redis_key) }
    }
}

fn side(text: &str, args: &Migrate) -> Result<MoveEnd, Failure> {
    let path = PathBuf::from(text);
    if text.contains("://") {
        let (url, prefix) = (text.to_owned(), args.redis_prefix.clone());
        Ok(MoveEnd::Redis { url, prefix, tls: args.tls(), replicas: args.redis_replicas })
    } else if is_like_a_url(text) && !path.exists() {
        let problem = format!("`{text}` reads as the address of a server, and there is no such directory");
        let hint =
            "name Redis by its URL, for example redis://127.0.0.1:6379/0, and a new directory of such a name as ./NAME";
        Err(Failure::usage("move a register", problem, hint))
    } else {
        Ok(MoveEnd::Directory(path))
    }
}

/// Refuses files for TLS if no end of the move uses TLS: the user must not go on without encryption unawares.
fn secured(args: &Migrate) -> Result<(), Failure> {
    let flags = [
        ("--redis-ca", &args.redis_ca),
        ("--redis-certificate", &args.redis_certificate),
        ("--redis-key", &args.redis_key),
    ];
    let given = flags.iter().find(|(_, path)| path.is_some());
    match given {
        Some((flag, _)) if !from_cli::is_over_tls(&args.from) && !from_cli::is_over_tls(&args.to) => {
            let problem = format!("`{flag}` is for a Redis over TLS, and neither FROM nor TO is one");
            let hint = "begin its URL with rediss://, rediss+sentinel:// or rediss+cluster://, or leave that file out";
            Err(Failure::usage("move a register", problem, hint))
        }
        Some(_) | None => Ok(()),
    }
}

/// Whether it looks like a URL with a slash too few, or like HOST:PORT.
fn is_like_a_url(text: &str) -> bool {
    text.split('/').next().is_some_and(|first| first.contains(':'))
}

/// Refuses a move into itself: the old place is closed for ever, and so would be what lies in it.
fn apart(from: &MoveEnd, to: &MoveEnd, asked: &str) -> Result<(), Failure> {
    let (MoveEnd::Directory(from), MoveEnd::Directory(to)) = (from, to) else { return Ok(()) };
    let (source, target) = (from_cli::resolved(from), from_cli::resolved(to));
    let (inner, outer) = match () {
        // The store itself says why the register cannot move to where it is.
        () if source == target => return Ok(()),
        () if target.starts_with(&source) => (to, from),
        () if source.starts_with(&target) => (from, to),
        () => return Ok(()),
    };
    let problem = format!("`{}` lies inside `{}`", inner.display(), outer.display());
    Err(Failure::new(asked, problem, "name a directory elsewhere, empty or not there: `allod migrate FROM TO`"))
}

/// Checks whether a directory can be created, or written to, and leaves everything as it was.
fn can_be_written(directory: &Path) -> std::io::Result<()> {
    let missing: Vec<&Path> =
        directory.ancestors().take_while(|path| !path.as_os_str().is_empty() && !path.exists()).collect();
    if missing.is_empty() {
        return Ok(rustix::fs::access(directory, Access::WRITE_OK | Access::EXEC_OK)?);
    }
    let made = std::fs::create_dir_all(directory);
    // Removes the created directories, innermost first; they are empty.
    missing.into_iter().for_each(|path| drop(std::fs::remove_dir(path)));
    made
}

/// The command that starts the server on the moved register.
fn serve(args: &Migrate) -> String {
    if !args.to.contains("://") {
        return format!("allod serve --data {}", shell(&args.to));
    }
    // A Redis without TLS needs none of these settings, and a server would refuse them.
    let tls = if from_cli::is_over_tls(&args.to) { args.tls() } else { TlsFiles::default() };
    let settings = from_cli::not_by_default(&args.redis_prefix, &tls);
    let settings = settings.into_iter().map(|(variable, value)| format!("{variable}={} ", shell(&value)));
    settings.collect::<String>() + &format!("allod serve --redis {}", shell(&args.to))
}

/// Names settings of a server by the flags of this command, if there are any.
fn by_flags(problem: String) -> String {
    let flags = [("redis_ca", "redis-ca"), ("redis_certificate", "redis-certificate"), ("redis_key", "redis-key")];
    flags
        .iter()
        .fold(problem, |text, (setting, flag)| text.replace(&format!("`store.{setting}`"), &format!("`--{flag}`")))
}

/// Puts aside the files that nodes of the register left, and prints their new paths.
fn put_aside(session: &Session, source: &from_cli::MoveSource) -> Result<Vec<PathBuf>, from_cli::Unmoved> {
    let aside = from_cli::put_left_aside(source)?;
    for path in &aside {
        session.say(&format!("put aside: {}, which no node needs to bring any more", path.display()));
    }
    Ok(aside)
}

/// Shows what would be done, asks for confirmation, and does it.
pub fn run(args: &Migrate, options: Options) -> Done<Exit> {
    let session = Session::new(options);
    secured(args)?;
    let (from, to, shards) = (side(&args.from, args)?, side(&args.to, args)?, args.shards);
    let (nodes, accept_rollback) = (args.nodes.clone(), args.accept_rollback);
    let route = MoveRoute { from, to, shards, nodes, accept_rollback };
    let asked = format!("move the register from {} to {}", route.from.shown(), route.to.shown());
    apart(&route.from, &route.to, &asked)?;
    for end in [&route.from, &route.to] {
        if let MoveEnd::Directory(path) = end
            && let Some((problem, hint)) = from_cli::as_root(path)
        {
            return Err(Failure::new(asked, problem, hint).into());
        }
    }
    let failed = |problem: from_cli::Unmoved| Failure::new(asked.clone(), by_flags(problem.problem), problem.hint);
    let source = from_cli::open_source(&route).map_err(failed)?;
    if let Some(register) = from_cli::arrived(&source, &route) {
        if !args.dry_run {
            put_aside(&session, &source).map_err(failed)?;
        }
        session.say(&format!(
            "the register was moved before, and nothing else was left to do: it is in {} ({register:032x})\n\nServe it: {}",
            route.to.place(),
            serve(args)
        ));
        return Ok(Exit::Success);
    }
    let shards = args.shards.unwrap_or(source.shards());
    session.say(&format!(
        "from  {}, {}\nto    {}, {}\nNothing serves the first any more from then on; its history stays there.",
        source.place(),
        counted(source.shards(), "shard"),
        route.to.place(),
        counted(shards, "shard"),
    ));
    if args.dry_run {
        from_cli::look(&source, &route).map_err(failed)?;
        if let MoveEnd::Directory(to) = &route.to {
            can_be_written(to).map_err(|error| {
                let hint = "name a directory that you may make or write to: `allod migrate FROM TO`";
                Failure::new(asked.clone(), format!("`{}` cannot be written: {error}", to.display()), hint)
            })?;
        }
        session.say("dry run: nothing was changed");
        return Ok(Exit::Success);
    }
    session.confirm(&asked)?;
    let progress = std::cell::OnceCell::new();
    let moved = from_cli::migrate(&source, &route, &|done, all| {
        progress.get_or_init(|| Progress::towards("shards", all)).at(done);
    });
    drop(progress);
    let aside = match &moved {
        Ok(_) => put_aside(&session, &source).map_err(failed)?,
        // It was moved earlier: what is left to do is to put these files aside.
        Err(unmoved) if unmoved.is_gone => put_aside(&session, &source).map_err(failed)?,
        Err(_) => Vec::new(),
    };
    let moved = match moved {
        Err(unmoved) if unmoved.is_gone && !aside.is_empty() && from_cli::went(&source, &route) => {
            session.say("the register was moved before, and nothing else was left to do");
            return Ok(Exit::Success);
        }
        moved => moved.map_err(failed)?,
    };
    let what = match moved.tally {
        Some(tally) => format!("moved and compared: {}", tally.words()),
        None => "finished what was moved and compared before".to_owned(),
    };
    session.say(&format!(
        "{what}\nThe register is a new one ({:032x}), with generations above {}.\n\nServe it: {}",
        moved.register,
        moved.generation.0,
        serve(args)
    ));
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whether_a_directory_can_be_made_is_seen_without_leaving_it() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("a/b");
        can_be_written(&target).unwrap();
        can_be_written(directory.path()).unwrap();
        assert!(!directory.path().join("a").exists());
        assert!(can_be_written(Path::new("/proc/x")).is_err());
    }

    #[test]
    fn the_command_that_serves_it_has_what_is_not_by_default() {
        let command = |to: &str, prefix: &str, shards: Option<u16>| {
            let (from, to, redis_prefix) = (String::new(), to.to_owned(), prefix.to_owned());
            let redis_ca = Some("ca.pem".into());
            let args = Migrate {
                from,
                to,
                redis_prefix,
                redis_ca,
                redis_certificate: None,
                redis_key: None,
                redis_replicas: None,
                nodes: Vec::new(),
                accept_rollback: false,
                shards,
                dry_run: false,
            };
            serve(&args)
        };
        assert_eq!(command("data", "allod", None), "allod serve --data data");
        assert_eq!(command("data", "other", Some(8)), "allod serve --data data");
        let redis = "redis://127.0.0.1:6379/0";
        assert_eq!(command(redis, "allod", None), format!("allod serve --redis {redis}"));
        assert_eq!(command(redis, "other", Some(8)), format!("ALLOD_STORE__PREFIX=other allod serve --redis {redis}"));
        let redis = "rediss://127.0.0.1:6379/0";
        assert_eq!(command(redis, "allod", None), format!("ALLOD_STORE__REDIS_CA=ca.pem allod serve --redis {redis}"));
    }
}
