//! placeholder
pub fn page(_: &[super::document::Document]) -> String {
    String::new()
}
