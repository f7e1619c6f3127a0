//! The JSON of a long list, written item by item.

use std::io::{self, Write};

use serde_json::Value;

use super::Unwritten;

/// Prints `whole`, indented as any answer, with the items of these pages in its member `list`. Each page is a JSON list.
///
/// # Errors
/// Those of stdout.
pub fn print_with(whole: &Value, list: &str, pages: &[String]) -> Result<(), Unwritten> {
    let mut stdout = io::BufWriter::new(io::stdout().lock());
    write_with(&mut stdout, whole, list, pages)?;
    Ok(stdout.flush()?)
}

fn write_with(to: &mut impl Write, whole: &Value, list: &str, pages: &[String]) -> io::Result<()> {
    let Some(members) = whole.as_object().filter(|members| members.contains_key(list)) else {
        return writeln!(to, "{whole:#}");
    };
    let mut joint = "{";
    for (name, value) in members {
        write!(to, "{joint}\n  {}: ", Value::from(name.as_str()))?;
        joint = ",";
        if name == list {
            items(to, pages)?;
        } else {
            write!(to, "{}", set_in(value, "  "))?;
        }
    }
    writeln!(to, "\n}}")
}

fn items(to: &mut impl Write, pages: &[String]) -> io::Result<()> {
    let mut joint = "[";
    for page in pages {
        let items: Vec<Value> = serde_json::from_str(page)?;
        for item in items {
            write!(to, "{joint}\n    {}", set_in(&item, "    "))?;
            joint = ",";
        }
    }
    to.write_all(if joint == "[" { b"[]" } else { b"\n  ]" })
}

/// A value whose lines after the first are indented by `by`. In JSON, a text contains no line end.
fn set_in(value: &Value, by: &str) -> String {
    format!("{value:#}").replace('\n', &format!("\n{by}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_list_of_many_pages_is_written_as_if_it_were_one_answer() {
        let item = |n: u32| json!({"address": n, "labels": {"a": "two\nlines"}, "empty": {}, "list": [1, [2]]});
        for pages in [vec![], vec![vec![]], vec![vec![item(1), item(2)], vec![], vec![item(3)]]] {
            let whole = json!({"more": {"x": [1]}, "items": [], "cursor": "c"});
            let texts: Vec<String> = pages.iter().map(|page| json!(page).to_string()).collect();
            let mut written = Vec::new();
            write_with(&mut written, &whole, "items", &texts).unwrap();
            let mut expected = whole;
            expected["items"] = pages.concat().into();
            assert_eq!(String::from_utf8(written).unwrap(), format!("{expected:#}\n"));
        }
    }
}
