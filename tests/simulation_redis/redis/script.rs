//! Runs the real scripts in Lua, as a server does. There is one machine per thread, and a server lends it its data while a
//! script runs.

use std::cell::RefCell;
use std::collections::HashMap;

use mlua::{Function, Lua, MultiValue, Table, Value, Variadic};

use super::data::{Data, UNKNOWN};
use super::reply::Reply;

thread_local! {
    static MACHINE: Machine = Machine::new();
    static LENT: RefCell<Option<Lent>> = const { RefCell::new(None) };
}

struct Lent {
    data: Data,
    now_ms: u64,
    /// The script declared that it does not write.
    only_reads: bool,
    /// What went wrong, if anything did that must not.
    problem: Option<String>,
}

struct Machine {
    lua: Lua,
    scripts: RefCell<HashMap<String, (Function, bool)>>,
}

/// The name of a script, as a server gives it: 40 hex digits.
pub fn name_of(text: &[u8]) -> String {
    format!("{:032x}{:08x}", xxhash_rust::xxh3::xxh3_128(text), text.len())
}

impl Machine {
    fn new() -> Self {
        let lua = Lua::new();
        let redis = lua.create_table().unwrap();
        redis.set("call", lua.create_function(|lua, args: Variadic<Value>| call(lua, &args)).unwrap()).unwrap();
        let error_reply = |lua: &Lua, text: mlua::String| {
            let table = lua.create_table()?;
            table.set("err", text)?;
            Ok(table)
        };
        redis.set("error_reply", lua.create_function(error_reply).unwrap()).unwrap();
        let may = |_: &Lua, args: Variadic<mlua::String>| {
            let command = args.first().map(|name| name.to_string_lossy()).unwrap_or_default();
            Ok(Data::knows(&command) || command == "TIME")
        };
        redis.set("acl_check_cmd", lua.create_function(may).unwrap()).unwrap();
        lua.globals().set("redis", redis).unwrap();
        Self { lua, scripts: RefCell::default() }
    }

    /// The script, and whether it declares that it does not write.
    fn script(&self, name: &str, text: &[u8]) -> (Function, bool) {
        let mut scripts = self.scripts.borrow_mut();
        let compiled = scripts.entry(name.to_owned()).or_insert_with(|| {
            let text = std::str::from_utf8(text).unwrap();
            let (shebang, rest) = text.split_once('\n').unwrap();
            assert!(shebang.starts_with("#!lua"), "{shebang}");
            // The line of the shebang is kept empty, so that line numbers stay.
            let function = self.lua.load(format!("\n{rest}")).set_name(name).into_function().unwrap();
            (function, shebang.contains("no-writes"))
        });
        compiled.clone()
    }

    fn run(&self, name: &str, text: &[u8], keys: &[Vec<u8>], args: &[Vec<u8>]) -> Reply {
        let (function, only_reads) = self.script(name, text);
        LENT.with_borrow_mut(|lent| lent.as_mut().unwrap().only_reads = only_reads);
        let list = |words: &[Vec<u8>]| -> mlua::Result<Table> {
            self.lua.create_sequence_from(
                words.iter().map(|word| self.lua.create_string(word)).collect::<mlua::Result<Vec<_>>>()?,
            )
        };
        let globals = self.lua.globals();
        globals.set("KEYS", list(keys).unwrap()).unwrap();
        globals.set("ARGV", list(args).unwrap()).unwrap();
        match function.call::<MultiValue>(()) {
            Ok(values) => reply_of(values.into_iter().next().unwrap_or(Value::Nil)),
            Err(error) => Reply::Error(format!("{UNKNOWN} the script broke off: {error}")),
        }
    }
}

/// Runs a script on this data at this moment. Returns the answer, and what went wrong that must not.
pub fn run(
    data: &mut Data,
    now_ms: u64,
    (name, text): (&str, &[u8]),
    keys: &[Vec<u8>],
    args: &[Vec<u8>],
) -> (Reply, Option<String>) {
    let lent = Lent { data: std::mem::take(data), now_ms, only_reads: false, problem: None };
    LENT.set(Some(lent));
    let reply = MACHINE.with(|machine| machine.run(name, text, keys, args));
    let lent = LENT.take().unwrap();
    *data = lent.data;
    let broke_off = match &reply {
        Reply::Error(error) if error.starts_with(UNKNOWN) => Some(error.clone()),
        _ => None,
    };
    (reply, lent.problem.or(broke_off))
}

fn call(lua: &Lua, args: &[Value]) -> mlua::Result<Value> {
    let words = args.iter().map(word).collect::<mlua::Result<Vec<Vec<u8>>>>()?;
    let reply = LENT.with_borrow_mut(|lent| {
        let lent = lent.as_mut().unwrap();
        if words.first().is_some_and(|name| name == b"TIME") {
            return time(lent.now_ms);
        }
        let before = lent.data.changes;
        let reply = lent.data.execute(&words);
        if lent.only_reads && lent.data.changes != before {
            lent.problem = Some("a script writes that promised not to".to_owned());
        }
        reply
    });
    match reply {
        Reply::Error(error) => Err(mlua::Error::runtime(error)),
        other => value_of(lua, other),
    }
}

/// TIME: seconds and microseconds.
pub fn time(now_ms: u64) -> Reply {
    let (seconds, micros) = (now_ms / 1_000, now_ms % 1_000 * 1_000);
    Reply::Array(vec![Reply::bulk(seconds.to_string()), Reply::bulk(micros.to_string())])
}

fn word(value: &Value) -> mlua::Result<Vec<u8>> {
    match value {
        Value::String(text) => Ok(text.as_bytes().to_vec()),
        Value::Integer(number) => Ok(number.to_string().into_bytes()),
        Value::Number(number) if number.fract() == 0.0 && number.abs() < 1e17 => {
            Ok(format!("{number:.0}").into_bytes())
        }
        Value::Number(number) => Ok(number.to_string().into_bytes()),
        other => Err(mlua::Error::runtime(format!("a command has an argument of type {}", other.type_name()))),
    }
}

fn value_of(lua: &Lua, reply: Reply) -> mlua::Result<Value> {
    Ok(match reply {
        Reply::Status(text) => {
            let table = lua.create_table()?;
            table.set("ok", text)?;
            Value::Table(table)
        }
        Reply::Int(number) => Value::Number(number as f64),
        Reply::Bulk(bytes) => Value::String(lua.create_string(bytes)?),
        Reply::Nil => Value::Boolean(false),
        Reply::Array(all) => {
            let table = lua.create_table_with_capacity(all.len(), 0)?;
            for (at, one) in (1..).zip(all) {
                table.raw_set(at, value_of(lua, one)?)?;
            }
            Value::Table(table)
        }
        Reply::Error(error) => return Err(mlua::Error::runtime(error)),
    })
}

fn reply_of(value: Value) -> Reply {
    match value {
        Value::String(text) => Reply::Bulk(text.as_bytes().to_vec()),
        Value::Integer(number) => Reply::Int(number),
        Value::Number(number) => Reply::Int(number as i64),
        Value::Boolean(true) => Reply::Int(1),
        Value::Table(table) => {
            if let Ok(Some(error)) = table.get::<Option<String>>("err") {
                return Reply::Error(error);
            }
            let mut all = Vec::new();
            for at in 1.. {
                match table.raw_get::<Value>(at) {
                    Ok(Value::Nil) | Err(_) => break,
                    Ok(value) => all.push(reply_of(value)),
                }
            }
            Reply::Array(all)
        }
        _ => Reply::Nil,
    }
}
