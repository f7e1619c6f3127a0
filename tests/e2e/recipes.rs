//! Runs every shell block of `config/recipes.md` against a server of its own, see `story`.

use crate::story;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/config/recipes.md");

#[test]
fn recipes_do_what_they_say() {
    story::run_page(&std::fs::read_to_string(PAGE).unwrap(), 10, "memory");
}
