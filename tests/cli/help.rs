//! Help texts, completions and man pages.

use clap::Command;

use crate::golden;

fn walk(command: &Command, path: &str, visit: &mut impl FnMut(&str, &Command)) {
    visit(path, command);
    for inner in command.get_subcommands() {
        walk(inner, &format!("{path} {}", inner.get_name()), visit);
    }
}

#[test]
fn every_help_text_fits_80_columns() {
    let mut command = allod::cli::command();
    command.build();
    walk(&command, "allod", &mut |path, command| {
        for help in [command.clone().render_help(), command.clone().render_long_help()] {
            for line in help.to_string().lines() {
                assert!(line.chars().count() <= 80, "{path} --help: {} columns: {line}", line.chars().count());
            }
        }
    });
}

#[test]
fn every_command_and_flag_says_what_it_is_for() {
    let mut command = allod::cli::command();
    command.build();
    walk(&command, "allod", &mut |path, command| {
        assert!(command.get_about().is_some(), "{path} says nothing");
        for argument in command.get_arguments() {
            assert!(argument.get_help().is_some(), "{path}: `{}` says nothing", argument.get_id());
        }
    });
}

#[test]
fn the_argument_tree_is_sound() {
    allod::cli::command().debug_assert();
}

/// Clap takes two arguments of one id for one, and writes the value of either into the other.
#[test]
fn no_command_has_an_argument_that_is_called_as_one_of_all_commands() {
    fn names(argument: &clap::Arg) -> Vec<String> {
        let longs = argument.get_long().into_iter().chain(argument.get_all_aliases().into_iter().flatten());
        let shorts = argument.get_short().into_iter().chain(argument.get_all_short_aliases().into_iter().flatten());
        let options = longs.map(|long| format!("--{long}")).chain(shorts.map(|short| format!("-{short}")));
        options.chain([format!("id {}", argument.get_id())]).collect()
    }
    fn check(command: &Command, path: &str, of_all: &[String]) {
        let (global, own): (Vec<_>, Vec<_>) = command.get_arguments().partition(|argument| argument.is_global_set());
        let own: Vec<String> = own.into_iter().flat_map(names).collect();
        let global: Vec<String> = global.into_iter().flat_map(names).collect();
        let both = own.iter().chain(&global).filter(|name| of_all.contains(name)).collect::<Vec<_>>();
        assert!(both.is_empty(), "{path}: {both:?}");
        let of_all = [of_all, &global].concat();
        command.get_subcommands().for_each(|inner| check(inner, &format!("{path} {}", inner.get_name()), &of_all));
    }
    // As it is written: building it gives every command those of all commands.
    check(&allod::cli::command(), "allod", &[]);
}

#[test]
fn the_first_screen() {
    golden("help.txt", &allod::cli::command().render_help().to_string());
    let mut command = allod::cli::command();
    command.build();
    let ip = command.find_subcommand_mut("ip").unwrap().find_subcommand_mut("allocate").unwrap();
    golden("help-ip-allocate.txt", &ip.render_long_help().to_string());
    for name in ["history", "who"] {
        let inner = command.find_subcommand_mut(name).unwrap();
        golden(&format!("help-{name}.txt"), &inner.render_help().to_string());
    }
    let deployment = command.find_subcommand_mut("deployment").unwrap();
    golden("help-deployment.txt", &deployment.render_help().to_string());
    let apply = deployment.find_subcommand_mut("apply").unwrap();
    golden("help-deployment-apply.txt", &apply.render_long_help().to_string());
}

#[test]
fn help_is_a_command_where_a_command_is_wanted_and_a_name_elsewhere() {
    let out = |line: &str| {
        let arguments: Vec<&str> = line.split(' ').collect();
        let output = crate::commands::allod("127.0.0.1:1", &arguments);
        (output.status.code(), crate::commands::text(&output.stdout))
    };
    for (asked, same) in [
        ("help", "--help"),
        ("help network", "network --help"),
        ("network help", "network --help"),
        ("network help apply", "network apply --help"),
    ] {
        assert_eq!(out(asked), out(same), "{asked}");
        assert_eq!(out(asked).0, Some(0), "{asked}");
    }
    assert_eq!(out("network get help").0, Some(3));
}

/// Exit code, and what is said on both streams.
fn said(line: &str) -> (Option<i32>, String) {
    let arguments: Vec<&str> = line.split(' ').collect();
    let output = crate::commands::allod("127.0.0.1:1", &arguments);
    (output.status.code(), crate::commands::text(&output.stdout) + &crate::commands::text(&output.stderr))
}

#[test]
fn what_is_made_changed_or_removed_is_so_by_either_word() {
    let words = [("create", "add"), ("update", "modify"), ("delete", "remove")];
    let of_networks = words.iter().map(|(word, other)| ("network", *word, *other));
    let of_others = ["subnet", "pool", "reserved"].into_iter().flat_map(|noun| {
        let changes = move |(_, word): &&(&str, &str)| noun != "reserved" || *word != "modify";
        words.iter().filter(changes).map(move |(other, word)| (noun, *word, *other))
    });
    for (noun, word, other) in of_networks.chain(of_others) {
        let asked = said(&format!("{noun} {other} --help"));
        assert_eq!(asked, said(&format!("{noun} {word} --help")), "{noun} {other}");
        assert_eq!(asked.0, Some(0), "{noun} {other}");
    }
}

#[test]
fn who_gets_an_address_may_be_named_by_to() {
    // The command line is understood: only the server is missing.
    assert_eq!(said("ip transfer lan 10.0.0.1 --owner a --to b").0, Some(3));
}

#[test]
fn a_wrong_command_line_is_met_with_the_usage_that_the_help_shows() {
    for (line, usage) in [
        ("ip allocate lan --server 127.0.0.1:9", "allod ip allocate [OPTIONS] --owner <OWNER> <NETWORK>"),
        ("ip allocate lan --owner a --srever x", "allod ip allocate [OPTIONS] --owner <OWNER> <NETWORK>"),
        ("network create --timeout 3s", "allod network create [OPTIONS] <NAME>"),
        ("network add --timeout 3s", "allod network create [OPTIONS] <NAME>"),
        ("ip release --server 127.0.0.1:9", "allod ip release [OPTIONS] <NETWORK> <ADDRESS|--owner <OWNER>>"),
        ("nothing", "allod [OPTIONS] <COMMAND>"),
        ("who --server 127.0.0.1:9", "allod who [OPTIONS] <ADDRESS>"),
    ] {
        let (code, text) = said(line);
        assert!(text.contains(&format!("\nUsage: {usage}\n")), "{line}: {text}");
        assert_eq!(code, Some(64), "{line}: {text}");
    }
}

#[test]
fn a_bind_tells_that_it_may_write_down_an_address_that_nobody_holds() {
    let mut command = allod::cli::command();
    command.build();
    let bind = command.find_subcommand_mut("ip").unwrap().find_subcommand_mut("bind").unwrap();
    let told = bind.render_long_help().to_string();
    assert!(told.contains("In a dynamic network an address with --owner is written down"), "{told}");
}
