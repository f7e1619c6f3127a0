//! Counted nouns in sentences: `1 network`, `2 networks`.

use std::fmt::Display;

/// The noun in the form that fits the count.
pub fn plural(count: u64, noun: &str) -> String {
    if count == 1 {
        return noun.to_owned();
    }
    // Of all nouns used here, only `address`, `batch` and `wish` need more than an s.
    let ending = if noun.ends_with(['s', 'h']) { "es" } else { "s" };
    format!("{noun}{ending}")
}

/// The count and its noun.
pub fn counted<N>(count: N, noun: &str) -> String
where
    N: TryInto<u64> + Display + Copy,
{
    // A number beyond 64 bits is a plural anyway.
    let many = count.try_into().unwrap_or(u64::MAX);
    format!("{count} {}", plural(many, noun))
}

/// The count, its noun and the past tense of `to be`: `1 network was`.
pub fn counted_were<N>(count: N, noun: &str) -> String
where
    N: TryInto<u64> + Display + Copy,
{
    let many = count.try_into().unwrap_or(u64::MAX);
    format!("{} {}", counted(count, noun), if many == 1 { "was" } else { "were" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_is_one_and_all_else_is_many() {
        for (count, text) in [(0, "0 networks"), (1, "1 network"), (2, "2 networks")] {
            assert_eq!(counted(count, "network"), text);
        }
        assert_eq!(counted(2, "batch"), "2 batches");
        assert_eq!([1, 2].map(|count| counted_were(count, "pool")), ["1 pool was", "2 pools were"]);
        assert_eq!(counted(u128::MAX, "address"), format!("{} addresses", u128::MAX));
    }
}
