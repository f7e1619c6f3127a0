//! Finds keys about Redis that would be ignored because the register is kept elsewhere. A server that ignored them would
//! begin an empty register in files, and grant again what the register in Redis has granted.
//!
//! A key may be ignored only if `store.kind` itself overrides it: a file may name a Redis, while a flag or a variable names
//! another store. The shipped file gives every key its default beside a kind, which says nothing.

use super::{Config, Origin, Sources, StoreKind};

const KIND: &str = "store.kind";

impl Config {
    /// Problems with settings that would be ignored.
    pub(super) fn unheeded(&self, sources: &Sources) -> Vec<String> {
        if self.store.kind == StoreKind::Redis {
            return Vec::new();
        }
        let kind = sources.origin(KIND);
        let is_redis_key = |key: &str| key.starts_with("store.redis") || key == "store.prefix";
        let values = self.values().into_iter().zip(Self::default().values());
        let (keys, differ): (Vec<String>, Vec<bool>) = values
            .filter(|((key, _), _)| is_redis_key(key))
            .map(|((key, value), (_, default))| (key, value != default))
            .unzip();
        let origins = sources.origins(keys.iter().map(String::as_str));
        let is_unheeded = |origin: &Origin, differs: bool| match rank(origin).cmp(&rank(&kind)) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Equal => differs,
            std::cmp::Ordering::Greater => true,
        };
        let unheeded = keys.iter().zip(origins).zip(differ);
        let unheeded = unheeded.filter(|((_, origin), differs)| is_unheeded(origin, *differs)).map(|((key, _), _)| key);
        unheeded.map(|key| self.why_unheeded(key, &kind)).collect()
    }

    fn why_unheeded(&self, key: &str, kind: &Origin) -> String {
        let is_kept = match self.store.kind {
            StoreKind::Embedded => "which keeps the register in files",
            StoreKind::Memory | StoreKind::Redis => "which keeps no register",
        };
        let given = match kind {
            Origin::Default => format!("`{KIND}` is not, {is_kept}"),
            Origin::File | Origin::Environment(_) | Origin::Flag => {
                let value = serde_json::to_value(self.store.kind).unwrap_or_default();
                format!("`{KIND}` is {value} ({kind}), {is_kept}")
            }
        };
        format!("`{key}` is set and {given}, so no Redis would be asked; set `{KIND}` to \"redis\", or leave it out")
    }
}

/// The rank of a source: the higher one wins.
fn rank(origin: &Origin) -> u8 {
    match origin {
        Origin::Default => 0,
        Origin::File => 1,
        Origin::Environment(_) => 2,
        Origin::Flag => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(file: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Result<Config, String> {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        Config::load(&Sources {
            file: Some(("t.toml".into(), file.to_owned())),
            environment: environment.iter().map(|(name, value)| (name.into(), value.into())).collect(),
            flags: flags.iter().map(own).collect(),
            process: None,
        })
    }

    /// It would begin an empty register beside the one that is meant.
    #[test]
    fn a_redis_that_is_named_is_not_passed_over_without_a_word() {
        let unset = "is set and `store.kind` is not, which keeps the register in files, so no Redis would be asked; set \
                     `store.kind` to \"redis\", or leave it out";
        // Also if the URL is the default.
        for url in ["redis://:word@h/0", "redis://127.0.0.1:6379/0"] {
            let said = load(&format!("[store]\nredis = \"{url}\""), &[], &[]).unwrap_err();
            assert_eq!(said, format!("`store.redis` {unset}"));
            let said = load("", &[("ALLOD_STORE__REDIS", url)], &[]).unwrap_err();
            assert_eq!(said, format!("`store.redis` {unset} (set by ALLOD_STORE__REDIS)"));
        }
        let said = load("[store]\nprefix = \"prod\"\nredis_replicas = 2", &[], &[]).unwrap_err();
        assert_eq!(said, format!("`store.prefix` {unset}\n`store.redis_replicas` {unset}"));
        for (file, variable, by) in [
            (
                "[store]\nkind = \"embedded\"\nredis = \"redis://h/0\"",
                ("X", ""),
                "\"embedded\" (file), which keeps the register in files",
            ),
            (
                "[store]\nkind = \"memory\"\nredis_ca = \"no/such.pem\"",
                ("X", ""),
                "\"memory\" (file), which keeps no register",
            ),
            (
                "[store]\nkind = \"embedded\"",
                ("ALLOD_STORE__REDIS", "redis://127.0.0.1:6379/0"),
                "\"embedded\" (file), which",
            ),
        ] {
            let said = load(file, &[variable], &[]).unwrap_err();
            assert!(said.starts_with("`store.redis") && said.contains(&format!("`store.kind` is {by}")), "{said}");
        }
        let said = load("", &[], &[("store.kind", "memory"), ("store.redis", "redis://h/0")]).unwrap_err();
        assert!(said.contains("`store.kind` is \"memory\" (flag)"), "{said}");
    }

    #[test]
    fn what_names_another_store_above_a_redis_means_it() {
        let file = "[store]\nkind = \"redis\"\nredis = \"redis://h/0\"\nprefix = \"prod\"\n";
        assert!(load(file, &[], &[]).is_ok());
        assert!(load(file, &[], &[("store.kind", "memory")]).is_ok());
        assert!(load(file, &[("ALLOD_STORE__KIND", "embedded")], &[]).is_ok());
        assert!(load(&file.replace("kind = \"redis\"\n", ""), &[("ALLOD_STORE__KIND", "redis")], &[]).is_ok());
        assert!(load("[store]\nkind = \"embedded\"\nprefix = \"allod\"\nredis_replicas = 0\n", &[], &[]).is_ok());
    }
}
