//! The command line: arguments become calls, and answers become text.
//!
//! ```text
//! arguments (this file, ip, network, subnet, holders, deployment) ─▶ Ask ─▶ session ─▶ output ─▶ stdout
//!                                                                              └─ failure, hint ─▶ stderr
//! ```
//!
//! Data goes to stdout and words go to stderr; how a command ends is in [`exit`], and how it fails in [`failure`]. Commands
//! that are one call are tables of flags; those that need more than one have a file each: `apply`, `deployment`, `history`,
//! `who`, `why_full`, `watch`, `archive`, `top`. `doctor`, `plan` and `reload` are about a machine and need no server.
//!
//! Review notes: does a new command that takes something away ask first, and refuse if there is nobody to ask? Is every line
//! of its help within 80 columns? Does its failure end with a command or a setting?

pub mod apply;
pub mod archive;
pub mod args;
pub mod backup;
mod block;
pub mod call;
mod contested;
pub mod deployment;
pub mod docs;
pub mod doctor;
pub mod document;
mod doubt;
pub mod exit;
pub mod failure;
#[cfg(test)]
mod fake;
mod fetch;
pub mod hint;
pub mod history;
pub mod holders;
pub mod ip;
pub mod key;
mod listing;
mod losses;
pub mod map;
pub mod migrate;
pub mod network;
pub mod output;
pub mod pages;
pub mod perform;
pub mod phrase;
pub mod plan;
mod preview;
pub mod progress;
pub mod quote;
pub mod reload;
pub mod repeat;
pub mod schema;
pub mod serve_args;
pub mod session;
mod settle;
pub mod shards;
mod shrink;
mod stops;
pub mod subnet;
pub mod time;
pub mod top;
pub mod try_out;
mod usage;
pub mod watch;
pub mod who;
pub mod why_full;
mod wishes;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};

use exit::Exit;
use failure::Failure;
use network::NetworkCommand;
use output::{Format, Style};
use session::{Done, Options, Session, Stop};

use crate::serve::from_cli;

/// A register of who holds which address.
#[derive(Debug, Parser)]
#[command(name = "allod", version, max_term_width = 80, after_help = exit::HELP, subcommand_required = true)]
#[command(infer_long_args = false, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    global: Global,
}

/// The default address of the server.
const SERVER_PLAIN: &str = "127.0.0.1:7400";

/// Options of all commands.
#[derive(Debug, Args)]
#[command(next_help_heading = "Options of all commands")]
struct Global {
    /// Address of the server; of several nodes (A,B) the first that answers
    #[arg(long, global = true, env = "ALLOD_SERVER", value_name = "HOST:PORT", default_value = SERVER_PLAIN)]
    #[arg(hide_env_values = true)]
    server: String,
    #[arg(skip)]
    is_server_named: bool,
    /// Output format: table, json (errors too) or env
    #[arg(long, global = true, value_enum, default_value_t, hide_default_value = true, hide_possible_values = true)]
    format: Format,
    /// As `--format json`, which `allod-load` calls so, too
    #[arg(long, global = true, hide = true, conflicts_with = "format")]
    json: bool,
    /// With --format env or watch --exec: put this in front of each variable
    /// (of an event: of all but EVENT_…)
    #[arg(long, global = true, value_name = "TEXT", default_value = "", hide_default_value = true)]
    prefix: String,
    /// Do not ask for confirmation
    #[arg(long, short, global = true)]
    yes: bool,
    /// How long to wait for the server
    #[arg(long, global = true, value_name = "DURATION", value_parser = args::some_seconds, default_value = "30s")]
    #[arg(allow_hyphen_values = true)]
    timeout: u64,
}

/// What can be done.
#[derive(Debug, Subcommand)]
enum Command {
    /// Run a server with a first network, and show what it says
    Try(try_out::Try),
    /// Run the server
    Serve(serve_args::ServeArgs),
    /// Addresses: take, claim, renew, hand over, release, look up
    #[command(subcommand)]
    Ip(ip::IpCommand),
    /// Networks: create, look at, change, delete; apply a file
    #[command(subcommand)]
    Network(NetworkCommand),
    /// Subnets: add, change, move, remove
    #[command(subcommand)]
    Subnet(subnet::SubnetCommand),
    /// Pools: ranges from which addresses are given
    #[command(subcommand)]
    Pool(subnet::PoolCommand),
    /// Reserved ranges: kept from automatic allocation
    #[command(subcommand)]
    Reserved(subnet::ReservedCommand),
    /// Owners: instances that keep addresses
    #[command(subcommand)]
    Owner(holders::OwnerCommand),
    /// Scopes: deployments, tenants, namespaces
    #[command(subcommand)]
    Scope(holders::ScopeCommand),
    /// Deployments: plan, apply, commit, revert what instances ask for
    #[command(subcommand)]
    Deployment(deployment::DeploymentCommand),
    /// Realms: inside one, no address belongs to two networks
    #[command(subcommand)]
    Realm(holders::RealmCommand),
    /// Claimants: machines and interfaces that use addresses now
    #[command(subcommand)]
    Claimant(holders::ClaimantCommand),
    /// Who holds an address, or held it at a time, or why nobody does
    Who(who::Who),
    /// What happened to an address, an owner, a network, and why
    History(history::History),
    /// Events as they happen, or a command for each of them
    Watch(watch::Watch),
    /// Rates, errors and fill of networks, live
    Top(top::Top),
    /// Call any method of the protocol
    Call(call::Call),
    /// Ask the server about itself
    #[command(subcommand)]
    Server(call::ServerCommand),
    /// Ask about the nodes that share the register
    #[command(subcommand)]
    Cluster(call::ClusterCommand),
    /// Write all networks and reservations as JSON lines
    Export(archive::Export),
    /// Import what `export` wrote; the whole file is checked before anything changes
    Import(archive::Import),
    /// Copy the register of a server that is stopped
    Backup(backup::Backup),
    /// Make a register from a backup
    Restore(backup::Restore),
    /// Move the register from files to Redis, or back
    Migrate(migrate::Migrate),
    /// Look for what is wrong: settings, disk, clock, Redis, versions
    Doctor(doctor::Doctor),
    /// How large a machine a register needs
    Plan(plan::Plan),
    /// Check a configuration file of the server
    CheckConfig(serve_args::CheckConfig),
    /// Have a server read its configuration again (log level)
    Reload(reload::Reload),
    /// Write the completions of a shell to stdout
    Completions(docs::Completions),
    /// Write man pages into a directory
    Man(docs::Man),
}

impl Command {
    /// How many seconds it waits for the server unless it is told; none: as long as most commands.
    fn timeout(&self) -> Option<u64> {
        match self {
            Self::Cluster(command) => command.timeout(),
            _ => None,
        }
    }
}

/// Runs one command line, whose first word is the program's name, and returns its exit code.
pub fn run<I, T>(arguments: I) -> ExitCode
where
    I: IntoIterator<Item = T>,
    T: Into<OsString>,
{
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let parsed =
        Cli::command().try_get_matches_from(&arguments).or_else(|error| match usage::help_asked(&arguments, &error) {
            Some(arguments) => Cli::command().try_get_matches_from(arguments),
            None => Err(error),
        });
    let (cli, twice) = match parsed.and_then(|matches| Ok((cli_of(&matches)?, args::twice(&matches)))) {
        Ok(parsed) => parsed,
        Err(error) => {
            // Help and version go to stdout; everything else is a wrong command line.
            let exit = if error.use_stderr() { Exit::Usage } else { Exit::Success };
            let _ = usage::with_usage_of_help(error, &arguments).print();
            return exit.into();
        }
    };
    let format = cli.global.format;
    if let Some(failure) = twice {
        failure.print_as(format);
        return failure.exit.into();
    }
    let ended = match cli.command {
        Command::Serve(args) => match args.check().and_then(|()| serve_networks(&args)) {
            Ok(networks) => return serve(&args, networks),
            // The failure of a server is printed as text, not as JSON: the reason why it does not start is for its log.
            Err(failure) => {
                failure.print();
                return failure.exit.into();
            }
        },
        Command::CheckConfig(args) => check_config(&args).map_err(Stop::from),
        Command::Try(args) => options(cli.global).map_err(Stop::from).and_then(|options| try_out::run(&args, options)),
        Command::Backup(args) => backup::backup(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Migrate(args) => {
            options(cli.global).map_err(Stop::from).and_then(|options| migrate::run(&args, options))
        }
        Command::Reload(args) => reload::run(&args),
        Command::Plan(args) => options(cli.global).map_err(Stop::from).and_then(|options| plan::run(&args, options)),
        Command::Doctor(args) => options(cli.global).map_err(Stop::from).and_then(|options| doctor::run(args, options)),
        Command::Completions(args) => docs::completions(&args),
        Command::Man(args) => docs::man(&args),
        command => options(cli.global).map_err(Stop::from).and_then(|options| online(command, options)),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(Stop::Quiet) => Exit::Success.into(),
        Err(Stop::Failed(failure)) => {
            failure.print_as(format);
            failure.exit.into()
        }
    }
}

/// The parsed command line. An empty environment variable counts as unset, because many shells and unit files mean that by
/// it.
fn cli_of(matches: &clap::ArgMatches) -> Result<Cli, clap::Error> {
    let mut cli = Cli::from_arg_matches(matches)?;
    if cli.global.json {
        cli.global.format = Format::Json;
    }
    // Only there no variables are printed that it could be meant for.
    if let Command::Cluster(call::ClusterCommand::Key(args)) = &mut cli.command
        && cli.global.format != Format::Env
    {
        args.understand(std::mem::take(&mut cli.global.prefix));
    }
    if matches.value_source("timeout") == Some(ValueSource::DefaultValue) {
        cli.global.timeout = cli.command.timeout().unwrap_or(cli.global.timeout);
    }
    let source = matches.value_source("server");
    if cli.global.server.is_empty() && source == Some(ValueSource::EnvVariable) {
        SERVER_PLAIN.clone_into(&mut cli.global.server);
    } else {
        cli.global.is_server_named = source != Some(ValueSource::DefaultValue);
    }
    Ok(cli)
}

/// The networks of `--networks`, read in the same way as by `network apply`.
fn serve_networks(args: &serve_args::ServeArgs) -> Result<Vec<crate::wire::params::NetworkCreate>, Failure> {
    let Some(path) = &args.networks else { return Ok(Vec::new()) };
    let asked = format!("read the networks of {}", shown(path));
    let wrong = |problem: String| {
        Failure::new(&*asked, problem, "correct the file; `allod network dump` writes one that is right")
    };
    let content = document::content(&document::text(path, &asked)?, document::Form::of(path)).map_err(wrong)?;
    // An empty file creates nothing and removes nothing, so the start need not ask what it means.
    if content.is_null() || content == serde_json::json!({}) {
        return Ok(Vec::new());
    }
    let tables = apply::file::tables(content).map_err(wrong)?;
    Ok(tables.iter().filter_map(apply::file::Table::params).collect())
}

/// Runs a server in this process.
fn serve(args: &serve_args::ServeArgs, networks: Vec<crate::wire::params::NetworkCreate>) -> ExitCode {
    let (config, flags, once) = (args.config.clone(), args.flags(), args.once);
    let asked = from_cli::ServeArgs { config, flags, once, ..from_cli::ServeArgs::default() };
    match from_cli::run(asked, networks) {
        Ok(()) => ExitCode::SUCCESS,
        Err(from_cli::Unserved { asked, problem, hint, exit }) => {
            Failure::new(asked, problem, hint).print();
            exit.into()
        }
    }
}

/// The failure for a configuration that no server starts with.
fn wrong_config(file: &Path, problem: &str) -> Failure {
    Failure::new(
        format!("use the configuration `{}`", file.display()),
        problem.replace('\n', "\n  "),
        "config/server.toml explains every key; then `allod check-config FILE`",
    )
}

/// Checks a configuration file.
fn check_config(args: &serve_args::CheckConfig) -> Result<Exit, Failure> {
    document::text(&args.config, &format!("use the configuration {}", shown(&args.config)))?;
    if let Some(warning) =
        from_cli::check_config(&args.config).map_err(|problem| wrong_config(&args.config, &problem))?
    {
        output::words::warn(&warning);
    }
    Ok(Exit::Success)
}

/// The whole argument tree, for completions, man pages and tests.
pub fn command() -> clap::Command {
    Cli::command()
}

fn options(global: Global) -> Result<Options, Failure> {
    if !global.prefix.is_empty() && !quote::is_variable(&global.prefix) {
        return Err(Failure::usage(
            "use that prefix",
            format!("`{}` does not begin a name of a shell variable", global.prefix),
            "letters, digits and `_` do: `--prefix INSTANCE_NIC0_`",
        ));
    }
    Ok(Options {
        server: global.server,
        is_server_named: global.is_server_named,
        timeout: Duration::from_secs(global.timeout),
        yes: global.yes,
        style: Style::of_stdout(global.format, global.prefix),
    })
}

/// Refuses texts that cannot be addresses of servers, before a name server is asked about them.
fn check_servers(servers: &str) -> Result<(), Failure> {
    servers.split(',').try_for_each(check_server)
}

fn check_server(server: &str) -> Result<(), Failure> {
    let wrong = |reason: &str, hint: String| {
        Err(Failure::usage("ask a server", format!("`{server}` {reason}"), format!("{hint} (or ALLOD_SERVER)")))
    };
    if let Some((_, rest)) = server.split_once("://") {
        let authority = rest.split('/').next().unwrap_or_default();
        let reason = "is a URL; the address of a server is a host and a port, for example 127.0.0.1:7400";
        return wrong(reason, format!("leave the rest out: `--server {}`", quote::shell(authority)));
    }
    let is_address = server.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && !host.contains(char::is_whitespace) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if is_address {
        return Ok(());
    }
    let reason = "is not the address of a server: that is a host and a port, for example 127.0.0.1:7400 or [::1]:7400";
    wrong(reason, "name it by `--server HOST:PORT`".to_owned())
}

fn online(command: Command, options: Options) -> Done<Exit> {
    let writes_file = matches!(command, Command::Network(NetworkCommand::Dump(_)));
    if matches!(options.style.format, Format::Toml | Format::Yaml) && !writes_file {
        return Err(Failure::usage(
            "print that as a network file",
            "only `allod network dump` writes toml and yaml",
            "choose `--format table`, `json` or `env`",
        )
        .into());
    }
    if options.style.format == Format::Env && matches!(command, Command::Export(_)) {
        let hint = "leave `--format` out: `allod export > register.jsonl`";
        return Err(
            Failure::usage("export that way", "an export is not a list of variables but lines of JSON", hint).into()
        );
    }
    check_servers(&options.server)?;
    let runtime = session::runtime()?;
    let mut session = Session::new(options);
    runtime.block_on(dispatch(command, &mut session))
}

async fn dispatch(command: Command, session: &mut Session) -> Done<Exit> {
    let ask = match command {
        Command::Ip(command) => command.ask(),
        Command::Subnet(command) => command.ask(),
        Command::Pool(command) => command.ask(),
        Command::Reserved(command) => command.ask(),
        Command::Owner(command) => command.ask(),
        Command::Scope(command) => command.ask(),
        Command::Realm(command) => command.ask(),
        Command::Claimant(command) => command.ask(),
        Command::Server(command) => command.ask(),
        Command::Cluster(command) => match command.ask() {
            Ok(ask) => ask,
            Err(call::ClusterCommand::Key(args)) => return key::run(session, &args).await,
            Err(_) => return shards::run(session).await,
        },
        Command::Network(command) => match command.ask() {
            Ok(ask) => ask,
            Err(command) => return several(command, session).await,
        },
        Command::Deployment(command) => match command.ask() {
            Ok(ask) => ask,
            Err(command) => return deployment::run(session, command).await,
        },
        Command::Who(args) => return who::run(session, &args).await,
        Command::History(args) => return history::run(session, &args).await,
        Command::Watch(args) => return watch::run(session, &args).await,
        Command::Top(args) => return top::run(session, &args).await,
        Command::Call(args) => return call::run(session, &args).await,
        Command::Export(args) => return archive::export(session, &args).await,
        Command::Import(args) => return archive::import(session, &args).await,
        // `run` handles these; they need no connection.
        Command::Try(_)
        | Command::Serve(_)
        | Command::Backup(_)
        | Command::Restore(_)
        | Command::Migrate(_)
        | Command::CheckConfig(_)
        | Command::Doctor(_)
        | Command::Plan(_)
        | Command::Reload(_)
        | Command::Completions(_)
        | Command::Man(_) => return Ok(Exit::Success),
    };
    perform::perform(session, ask).await
}

/// The commands of `allod network` that need more than one call.
async fn several(command: NetworkCommand, session: &mut Session) -> Done<Exit> {
    match command {
        NetworkCommand::Apply(args) => apply::run(session, &args).await,
        NetworkCommand::Dump(args) => apply::dump::run(session, &args).await,
        NetworkCommand::Map(args) => map::run(session, &args).await,
        NetworkCommand::WhyFull(args) => why_full::run(session, &args.network).await,
        NetworkCommand::Create(_)
        | NetworkCommand::Get(_)
        | NetworkCommand::List(_)
        | NetworkCommand::Update(_)
        | NetworkCommand::Delete(_)
        | NetworkCommand::Restore(_)
        | NetworkCommand::Usage(_) => Ok(Exit::Success),
    }
}

/// A path in a message.
pub(crate) fn shown(path: &Path) -> String {
    if path.as_os_str() == "-" { "stdin".to_owned() } else { format!("`{}`", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drain_waits_as_long_as_a_handover_may_take_unless_it_is_told_otherwise() {
        let seconds = |line: &str| {
            let matches = Cli::command().try_get_matches_from(line.split(' ')).unwrap();
            cli_of(&matches).unwrap().global.timeout
        };
        for drain in
            ["allod cluster drain", "allod cluster drain node-1", "allod --format json cluster drain --reason x"]
        {
            assert!(seconds(drain) * 1_000 > crate::limits::HANDOVER_PREPARE_MS + crate::limits::HANDOVER_HOLD_MS);
        }
        for (line, told) in [
            ("allod cluster drain --timeout 5s", 5),
            ("allod --timeout 30s cluster drain", 30),
            ("allod cluster drain node-1 --undo", 30),
            ("allod cluster nodes", 30),
            ("allod server ping", 30),
        ] {
            assert_eq!(seconds(line), told, "{line}");
        }
    }
}
