//! A call of a script.

use std::sync::Arc;

use redis::{Arg, Cmd};

use super::LoadedScript;

/// The hashes by which Redis knows the scripts. They depend only on the texts, so they are the same on every server.
#[derive(Debug, Clone, Default)]
pub(in crate::store::redis) struct Shas {
    pub(in crate::store::redis) hashes: [String; LoadedScript::ALL.len()],
    /// The user as whom they are called.
    pub(in crate::store::redis) user: Arc<str>,
}

/// A call of a script. The command can be sent again as it is.
#[derive(Debug, Clone)]
pub(in crate::store::redis) struct ScriptCall {
    pub(in crate::store::redis) script: LoadedScript,
    pub(in crate::store::redis) command: Cmd,
    user: Arc<str>,
}

impl ScriptCall {
    pub(in crate::store::redis) fn new(shas: &Shas, script: LoadedScript, keys: &[String]) -> Self {
        Self::with_room(shas, script, keys, 0, 0)
    }

    /// A call with room for about this many arguments of this many bytes in total.
    pub(in crate::store::redis) fn with_room(
        shas: &Shas,
        script: LoadedScript,
        keys: &[String],
        arguments: usize,
        bytes: usize,
    ) -> Self {
        let keys_bytes: usize = keys.iter().map(String::len).sum();
        let mut command = Cmd::with_capacity(3 + keys.len() + arguments, 64 + keys_bytes + bytes);
        command.arg("EVALSHA").arg(&shas.hashes[script as usize]).arg(keys.len()).arg(keys);
        Self { script, command, user: Arc::clone(&shas.user) }
    }

    pub(in crate::store::redis) fn arg(&mut self, argument: impl AsRef<[u8]>) -> &mut Self {
        self.command.arg(argument.as_ref());
        self
    }

    pub(in crate::store::redis) fn number(&mut self, number: u64) -> &mut Self {
        self.command.arg(number);
        self
    }

    /// The call without spare room, which may be nearly as much again: for a call that is kept.
    pub(in crate::store::redis) fn fitted(&self) -> Self {
        let mut command = Cmd::with_capacity(self.command.args_iter().len(), self.text_bytes());
        self.texts().for_each(|text| {
            command.arg(text);
        });
        Self { script: self.script, command, user: Arc::clone(&self.user) }
    }

    /// Which user needs which rights for the call, for an operator who can grant them.
    pub(in crate::store::redis) fn rights(&self) -> String {
        let (user, script) = (&self.user, self.script.name());
        let commands = self.script.commands();
        // After `EVALSHA`, the hash and the number of keys.
        let key = self.texts().nth(3).map(String::from_utf8_lossy).unwrap_or_default();
        let prefix = key.split_once(':').map_or("", |(prefix, _)| prefix);
        let rights: String = commands.iter().map(|command| format!(" +{}", command.to_ascii_lowercase())).collect();
        format!(
            "user `{user}` lacks a right that the script `{script}` needs, which runs {}: give him all of them \
             (`ACL SETUSER {user} ~{prefix}:* +evalsha +script|load{rights}`)",
            commands.into_iter().collect::<Vec<_>>().join(", ")
        )
    }

    /// The call, if it is a commit, in the form that runs even if the memory is full. Any other call is returned as it is.
    pub(in crate::store::redis) fn letting_go(self: &Arc<Self>, shas: &Shas) -> Arc<Self> {
        if self.script != LoadedScript::Commit {
            return Arc::clone(self);
        }
        let script = LoadedScript::CommitLettingGo;
        let mut command = Cmd::with_capacity(self.command.args_iter().len(), self.text_bytes());
        // The hash follows `EVALSHA`.
        self.texts().enumerate().for_each(|(at, text)| {
            command.arg(if at == 1 { shas.hashes[script as usize].as_bytes() } else { text });
        });
        Arc::new(Self { script, command, user: Arc::clone(&self.user) })
    }

    /// How many bytes a call without spare room takes: itself, the text of its arguments, and where each of them ends.
    pub(in crate::store::redis) fn bytes(&self) -> usize {
        size_of::<Self>() + self.text_bytes() + self.command.args_iter().len() * size_of::<Arg<usize>>()
    }

    fn text_bytes(&self) -> usize {
        self.texts().map(<[u8]>::len).sum()
    }

    /// Its words, from `EVALSHA` on.
    pub(in crate::store::redis) fn texts(&self) -> impl Iterator<Item = &[u8]> {
        self.command.args_iter().filter_map(|argument| if let Arg::Simple(text) = argument { Some(text) } else { None })
    }
}

pub(in crate::store::redis) fn hex(bits: u128) -> String {
    format!("{bits:032x}")
}
