//! Malformed network files: any text is either read or refused with a message.

use serde_json::{Value, json};

use super::file::{Table, parse};
use crate::cli::document::Form;
use crate::wire::tests::mutation::Fuzzer;

const FORMS: [Form; 4] = [Form::Toml, Form::Yaml, Form::Json, Form::Any];

/// The same networks as TOML, YAML, and JSON, which YAML reads too.
fn corpus() -> Vec<String> {
    let first = include_str!("../../../config/first-network.toml");
    let value: Value = toml::from_str(first).unwrap();
    let small =
        r#"{"network":[{"name":"a","renamed_from":"b","subnets":[{"cidr":"10.0.0.0/24","id":"x"}]},{"name":"c"}]}"#;
    // More open brackets than YAML would allow, but all of them inside texts.
    let tags: Vec<String> = (0..5).map(|tag| format!("t{tag} = \"{}\"", "[".repeat(250))).collect();
    let brackets = format!("[[network]]\nname = \"a\"\n[network.tags]\n{}\n", tags.join("\n"));
    vec![first.to_owned(), serde_yaml_ng::to_string(&value).unwrap(), value.to_string(), small.to_owned(), brackets]
}

/// Tables that were read, written as JSON, must be read as the same tables.
fn check_tables(tables: &[Table]) {
    for table in tables {
        assert!(table.params().is_some(), "{table:?}");
    }
    let members: Vec<&_> = tables.iter().map(|table| &table.members).collect();
    let again = parse(&json!({ "network": members }).to_string(), Form::Json).unwrap();
    assert_eq!(again.iter().map(|table| &table.members).collect::<Vec<_>>(), members);
}

fn check_text(text: &str) -> bool {
    FORMS.iter().any(|form| match parse(text, *form) {
        Ok(tables) => {
            check_tables(&tables);
            !tables.is_empty()
        }
        Err(problem) => {
            assert!(!problem.trim().is_empty(), "{form:?} of {text:?}");
            false
        }
    })
}

#[test]
fn fuzzing_the_reader_of_network_files_finds_no_panic() {
    Fuzzer::over(corpus()).run(check_text);
}

/// The files would overflow any stack, or fill any memory by aliases of aliases.
#[test]
fn a_file_that_is_too_deep_or_multiplies_is_refused() {
    for (form, depth, open, close) in [
        (Form::Toml, 50_000, "[", "]"),
        (Form::Toml, 50_000, "{a=", "}"),
        (Form::Yaml, 50_000, "[", "]"),
        (Form::Yaml, 50_000, "{\"a\": ", "}"),
    ] {
        let sign = if form == Form::Toml { '=' } else { ':' };
        let text = format!("network {sign} {}{}", open.repeat(depth), close.repeat(depth));
        assert!(!parse(&text, form).unwrap_err().trim().is_empty());
    }
    let deep = format!("{{\"network\":{}{}}}", "[".repeat(50_000), "]".repeat(50_000));
    assert!(!parse(&deep, Form::Json).unwrap_err().trim().is_empty());
    let nine = |of: &str| [of; 9].join(",");
    let mut bomb = String::from("a0: &a0 [x]\n");
    for level in 1..12 {
        bomb += &format!("a{level}: &a{level} [{}]\n", nine(&format!("*a{}", level - 1)));
    }
    assert!(parse(&bomb, Form::Yaml).is_err());
}
