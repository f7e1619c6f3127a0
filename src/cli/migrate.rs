//! `allod migrate`: a register moves from files to Redis, or back, and is in one of the two places at any time.

use std::path::PathBuf;

use clap::Args;

use super::exit::Exit;
use super::failure::Failure;
use super::progress::Progress;
use super::quote::shell;
use super::session::{Done, Options, Session};
use crate::core::plural::counted;
use crate::serve::from_cli::{self, Route, Side};

/// What `--help` says at its end.
const EXAMPLES: &str = "\
Examples:
  allod migrate allod-data redis://127.0.0.1:6379/0
  allod migrate redis://127.0.0.1:6379/0 allod-data

Stop the server first. The old place is closed for ever, the new one has to be
empty, and only one of the two can be served at any time. If the move breaks
off, the same command does it again. The history begins anew.";

/// `allod migrate`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct Migrate {
    /// Where the register is: a data directory, or the URL of Redis
    from: String,
    /// Where it is to be: an empty directory, or the URL of Redis
    to: String,
    /// What its keys in Redis begin with (`store.prefix`)
    #[arg(long, value_name = "TEXT", default_value = "allod")]
    redis_prefix: String,
    /// Into how many shards it is divided then [default: as many as now]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1_024))]
    shards: Option<u16>,
    /// Show what would be moved, and change nothing
    #[arg(long)]
    dry_run: bool,
}

fn side(text: &str, prefix: &str) -> Side {
    if text.contains("://") {
        Side::Redis { url: text.to_owned(), prefix: prefix.to_owned() }
    } else {
        Side::Directory(PathBuf::from(text))
    }
}

/// How the server is started on what was moved, which has so many shards.
fn serve(args: &Migrate, shards: u16) -> String {
    let is_redis = args.to.contains("://");
    let settings = from_cli::not_by_default(shards, is_redis.then_some(args.redis_prefix.as_str()));
    let settings = settings.into_iter().map(|(variable, value)| format!("{variable}={} ", shell(&value)));
    let place = if is_redis { "--redis" } else { "--data" };
    settings.collect::<String>() + &format!("allod serve {place} {}", shell(&args.to))
}

/// Shows what would be done, asks, and does it.
pub fn run(args: &Migrate, options: Options) -> Done<Exit> {
    let session = Session::new(options);
    let route = Route {
        from: side(&args.from, &args.redis_prefix),
        to: side(&args.to, &args.redis_prefix),
        shards: args.shards,
    };
    let asked = format!("move the register from {} to {}", route.from.shown(), route.to.shown());
    let failed = |problem: from_cli::Unmoved| Failure::new(asked.clone(), problem.problem, problem.hint);
    let source = from_cli::open_source(&route).map_err(failed)?;
    let shards = args.shards.unwrap_or(source.shards());
    session.say(&format!(
        "from  {}, {}\nto    {}, {}\nNothing serves the first any more from then on; its history stays there.",
        source.place(),
        counted(source.shards(), "shard"),
        route.to.shown(),
        counted(shards, "shard"),
    ));
    if args.dry_run {
        from_cli::look(&source, &route).map_err(failed)?;
        session.say("dry run: nothing was changed");
        return Ok(Exit::Success);
    }
    session.confirm(&asked)?;
    let progress = std::cell::OnceCell::new();
    let moved = from_cli::migrate(&source, &route, &|done, all| {
        progress.get_or_init(|| Progress::towards("shards", all)).at(done);
    });
    drop(progress);
    let moved = moved.map_err(failed)?;
    let what = match moved.tally {
        Some(tally) => format!("moved and compared: {}", tally.words()),
        None => "finished what was moved and compared before".to_owned(),
    };
    session.say(&format!(
        "{what}\nThe register is a new one ({:032x}), with generations above {}.\n\nServe it: {}",
        moved.register,
        moved.generation.0,
        serve(args, shards)
    ));
    Ok(Exit::Success)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_that_serves_it_has_what_is_not_by_default() {
        let command = |to: &str, prefix: &str, shards: u16| {
            let (from, to, redis_prefix) = (String::new(), to.to_owned(), prefix.to_owned());
            serve(&Migrate { from, to, redis_prefix, shards: None, dry_run: false }, shards)
        };
        assert_eq!(command("data", "allod", 16), "allod serve --data data");
        assert_eq!(command("data", "other", 4), "ALLOD_STORE__SHARDS=4 allod serve --data data");
        let redis = "redis://127.0.0.1:6379/0";
        assert_eq!(command(redis, "allod", 16), format!("allod serve --redis {redis}"));
        assert_eq!(
            command(redis, "other", 4),
            format!("ALLOD_STORE__SHARDS=4 ALLOD_STORE__PREFIX=other allod serve --redis {redis}")
        );
    }
}
