//! What a run advises where it cannot use its networks. Several commands make runs, and each advises only options that it has
//! itself, so the command gives these texts to its runs.

/// Parts of messages of a run, each with what leads over to it.
#[derive(Debug, Clone, Default)]
pub struct Advice {
    /// Somebody else uses a network at the moment.
    pub in_use: &'static str,
    /// A network of this name is there, and is not as the run would make it.
    pub is_other: &'static str,
    /// A network is there, and the run takes only networks that it makes.
    pub is_there: &'static str,
    /// Somebody else used a network while it was measured.
    pub shared: &'static str,
    /// More addresses are to be held before measuring than can be.
    pub too_many: &'static str,
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use clap::CommandFactory;

    use crate::arguments::Arguments;

    /// The files whose messages name options, and the commands that tell these messages.
    const COMMANDS: &[(&str, &[&str])] = &[
        ("arguments.rs", &["run", "fill", "echo"]),
        ("options.rs", &["run", "fill"]),
        ("isolation.rs", &["p99-isolation"]),
        ("target/mod.rs", &["run", "fill", "p99-isolation"]),
        ("history.rs", &["history"]),
        ("history/queries.rs", &["history"]),
        ("instructions/mod.rs", &["instructions"]),
        ("compare/mod.rs", &["compare"]),
        ("goals/mod.rs", &["goals"]),
        ("goals/table.rs", &["goals"]),
        // It names that command.
        ("report/document.rs", &["goals"]),
    ];
    /// Options of other programs that messages name: cargo, and `allod network delete`.
    const OF_OTHERS: &[&str] = &["--release", "--bin", "--bench", "--purge"];

    /// The options that the texts of a line name. What is a whole text is given to another program, or is looked up.
    fn named(line: &str) -> Vec<&str> {
        let is_comment = line.trim_start().starts_with("//");
        let options = line.match_indices("--").filter_map(|(at, _)| {
            let text = &line[at..];
            let end = text.find(|c: char| !c.is_ascii_lowercase() && c != '-').unwrap_or(text.len());
            let is_whole = line[..at].ends_with('"') && text[end..].starts_with(['"', '=']);
            let is_option = text[2..].starts_with(|c: char| c.is_ascii_lowercase());
            (is_option && !is_whole && !is_comment).then(|| &text[..end])
        });
        options.collect()
    }

    fn sources(directory: &Path, found: &mut Vec<(String, String)>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(Path::new(env!("CARGO_MANIFEST_DIR")).join("src")).unwrap();
                let text = std::fs::read_to_string(&path).unwrap();
                let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
                found.push((name.display().to_string(), text.to_owned()));
            }
        }
    }

    #[test]
    fn options_that_a_message_names_are_options_of_the_command_that_tells_it() {
        let arguments = Arguments::command();
        let has = |command: &str, option: &str| {
            let command = arguments.find_subcommand(command).unwrap();
            command.get_arguments().any(|argument| argument.get_long() == Some(option.trim_start_matches("--")))
        };
        let mut files = Vec::new();
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut files);
        let mut count = 0;
        for (file, text) in &files {
            let commands = COMMANDS.iter().find(|(name, _)| name == file).map(|(_, commands)| *commands);
            for option in text.lines().flat_map(named).filter(|option| !OF_OTHERS.contains(option)) {
                count += 1;
                // Other files belong to several commands.
                let commands = commands.unwrap_or_else(|| panic!("{file} names {option}, whatever command it serves"));
                for command in commands {
                    assert!(has(command, option), "{file} names {option}, which `{command}` does not have");
                }
            }
        }
        assert!(count > 30, "{count}");
    }

    #[test]
    fn options_that_a_help_names_are_options_of_its_command() {
        let mut count = 0;
        for command in Arguments::command().get_subcommands() {
            let name = command.get_name();
            let of_arguments = command.get_arguments().filter_map(|argument| argument.get_help());
            for help in of_arguments.chain(command.get_about()).map(ToString::to_string) {
                // `report` reads what other commands wrote.
                for option in named(&help).into_iter().filter(|_| name != "report") {
                    count += 1;
                    let is_there =
                        command.get_arguments().any(|argument| argument.get_long() == option.strip_prefix("--"));
                    assert!(is_there, "the help of `{name}` names {option}, which it does not have");
                }
            }
        }
        assert!(count > 5, "{count}");
    }

    #[test]
    fn an_option_is_found_in_a_sentence_and_not_where_it_is_given_to_a_program() {
        for (line, options) in [
            (
                "format!(\"--rate {rate}: too much; take `--seconds 1`, or --full-pool\")",
                vec!["--rate", "--seconds", "--full-pool"],
            ),
            ("command.args([\"--port\", \"--reuid={USER}\"])", vec![]),
            ("// `--rate` is", vec![]),
            ("\"|---|---:|\"", vec![]),
        ] {
            assert_eq!(named(line), options);
        }
    }
}
