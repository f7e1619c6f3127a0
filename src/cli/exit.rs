//! How a command ends: the exit codes, and the text of `--help` about them and about commands that ask first.

/// Exit codes of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or there was nothing to do. A reader that hangs up early (`| head`) counts as done.
    Success = 0,
    /// The server refused, or the command failed.
    Failed = 1,
    /// `network apply --dry-run` found differences, and the server would refuse none of them.
    Differences = 2,
    /// The server cannot be reached, or was lost on the way. For an import, which waits for both, this includes its store.
    Unreachable = 3,
    /// The command line is wrong, even if only the server could tell.
    Usage = 64,
}

/// The part of `--help` about questions and exit codes. config/recipes.md also says which commands ask.
pub const HELP: &str = "\
Commands that take away what others may rely on show what goes and ask first:
every delete, remove and revert, owner release, scope release, ip release
--force, subnet modify and pool modify that cut pools, reserved add that
replaces for whom or a note, network apply that removes something, cluster
accept of all addresses, migrate.
--yes answers yes, and is needed without a terminal; --dry-run only shows.

Exit codes:
   0  done
   1  refused by the server, or failed
   2  differences found (`allod network apply --dry-run`)
   3  the server cannot be reached (`allod import`: or its store)
  64  the command line is wrong, even if only the server can tell
  70  the store failed (`allod serve`): a supervisor starts it again
  75  Redis, other nodes or the disk prevent a start (`allod serve`): the same

Data goes to stdout, messages go to stderr; with --format json the last line
there is the error as JSON. Colour is for terminals only.";

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit as u8)
    }
}
