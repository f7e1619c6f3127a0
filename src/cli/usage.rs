//! Messages about a wrong command line, where we know more than clap does.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::quote;

/// `help` in place of a command asks for the help of its parent: `allod help network`, `allod network help`.
pub(super) fn help_asked(arguments: &[OsString], error: &clap::Error) -> Option<Vec<OsString>> {
    let at = arguments.iter().position(|argument| argument == "help")?;
    let named = error.get(ContextKind::InvalidSubcommand)?;
    let is_help = error.kind() == ErrorKind::InvalidSubcommand && named.to_string() == "help";
    let rest = arguments.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, argument)| argument.clone());
    is_help.then(|| rest.chain([OsString::from("--help")]).collect())
}

/// Replaces clap's usage by that of the command's help. Clap's own lists every option that was typed, or guessed at, as
/// required, for example `--server`.
pub(super) fn with_usage_of_help(mut error: clap::Error, arguments: &[OsString]) -> clap::Error {
    if let Some(joint) = missing_value(&error, arguments) {
        suggest_joint(&mut error, &joint);
    }
    let Some(usage) = error.get(ContextKind::Usage).map(ToString::to_string) else { return error };
    let mut root = super::command();
    root.build();
    let mut command = &mut root;
    // The names of commands follow `Usage: allod`, as deep as the command goes.
    for name in usage.split_whitespace().skip(2) {
        if command.find_subcommand(name).is_none() {
            break;
        }
        command = command.find_subcommand_mut(name).expect("it was found a line above");
    }
    error.insert(ContextKind::Usage, ContextValue::StyledStr(command.render_usage()));
    if let Some(joint) = joint_value(&error, command, arguments) {
        suggest_joint(&mut error, &joint);
    }
    error
}

fn suggest_joint(error: &mut clap::Error, joint: &str) {
    let tip = format!("write a value that begins with `-` after `=`: `{joint}`");
    error.insert(ContextKind::Suggested, ContextValue::StyledStrs(vec![tip.into()]));
}

/// The option with its value, if clap found no value because it looks like an option.
fn missing_value(error: &clap::Error, arguments: &[OsString]) -> Option<String> {
    let is_missing = error.kind() == ErrorKind::InvalidValue
        && error.get(ContextKind::InvalidValue).is_none_or(|value| value.to_string().is_empty());
    let taken = error.get(ContextKind::InvalidArg).filter(|_| is_missing)?.to_string();
    let name = taken.split_whitespace().next().filter(|name| name.starts_with("--"))?;
    arguments.windows(2).find_map(|pair| {
        let (option, value) = (pair[0].to_str()?, pair[1].to_str()?);
        (option == name && value.starts_with('-') && value != "--").then(|| quote::option(option, value))
    })
}

/// The option with its value, if clap took the value for an unknown option.
fn joint_value(error: &clap::Error, command: &clap::Command, arguments: &[OsString]) -> Option<String> {
    let taken = error.get(ContextKind::InvalidArg).filter(|_| error.kind() == ErrorKind::UnknownArgument)?.to_string();
    let takes_value = |name: &str| {
        let is_meant = |argument: &clap::Arg| argument.get_long() == Some(name) && argument.get_action().takes_values();
        command.get_arguments().any(is_meant)
    };
    arguments.windows(2).find_map(|pair| {
        let (option, value) = (pair[0].to_str()?, pair[1].to_str()?);
        // For `-dash`, clap reports `-d` as unknown.
        let is_it = value.starts_with(&taken) && takes_value(option.strip_prefix("--")?);
        is_it.then(|| quote::option(option, value))
    })
}
