//! How a command ends: the exit codes, in one place, and the text of `--help` about them and about what asks first.

/// Exit codes of every command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or nothing was to be done. A reader that hangs up early (`| head`) counts as done.
    Success = 0,
    /// The server refused, or the command failed.
    Failed = 1,
    /// `network apply --dry-run` found differences, of which the server would refuse none.
    Differences = 2,
    /// The server cannot be reached, or was lost on the way; of an import, which waits for both, its store too.
    Unreachable = 3,
    /// The command line is wrong, be it that the server says so of an argument.
    Usage = 64,
}

/// What `--help` says about questions and codes. Which commands ask is said in config/recipes.md, too.
pub const HELP: &str = "\
What takes away what others may count on shows what goes and asks first: every
delete, remove and revert, owner release, scope release, ip release --force,
subnet modify and pool modify that cut pools, reserved add that replaces for
whom or a note, network apply that removes something, cluster accept of all
addresses, migrate.
--yes answers, and is needed where nobody can be asked; --dry-run only shows.

Exit codes:
   0  done
   1  refused by the server, or failed
   2  differences found (`allod network apply --dry-run`)
   3  the server cannot be reached (`allod import`: or its store)
  64  the command line is wrong, also where only the server can tell
  70  the store failed (`allod serve`): a supervisor starts it again
  75  Redis, other nodes or the disk fail a start (`allod serve`): the same

Data goes to stdout, words go to stderr; with --format json the last line there
is the error as JSON. Colour is for terminals only.";

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        std::process::ExitCode::from(exit as u8)
    }
}
