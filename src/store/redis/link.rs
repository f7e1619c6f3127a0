//! A connection to Redis for one purpose, and what its errors mean.
//!
//! Every error belongs to one of three classes. *Not applied*: Redis says so itself before a script begins (`NOSCRIPT`,
//! `LOADING`, `BUSY`, `OOM`, `READONLY`, …), or there was no connection. *Unknown*: the connection broke, or no answer came
//! in time, after the command may have been sent; it may run later still, on the old connection. And an error inside a
//! script, which does not roll back: unknown as well, whatever its code. Nothing is ever sent again here except after
//! `NOSCRIPT`.
//!
//! A connection that answered too late, or broke, is replaced by the next call. A connection lives on the runtime of
//! the task that made it, and ends with that.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, ConnectionAddr, IntoConnectionInfo, Pipeline, RedisError, Value};

use super::cluster::Cluster;
use super::keys::Keys;
use super::scripts::{Call, Loaded, Shas};
use super::sentinels::Sentinels;
use crate::store::StoreError;

/// How long a connection may take to come up.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);
/// Silence after which the kernel asks whether the other end is there.
const KEEPALIVE_AFTER: Duration = Duration::from_secs(5);
/// How long sent bytes may stay unacknowledged by the other end's kernel.
const USER_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a command did not end well.
#[derive(Debug, Clone)]
pub(super) enum Failed {
    /// Certainly nothing was done.
    NotApplied(StoreError),
    /// Nobody knows.
    Unknown(StoreError),
}

impl Failed {
    pub(super) fn into_error(self) -> StoreError {
        let (Failed::NotApplied(error) | Failed::Unknown(error)) = self;
        error
    }
}

/// Is it a URL of Redis?
///
/// # Errors
/// Why not, without the URL: it may hold a password.
pub fn check_url(url: &str) -> Result<(), String> {
    let keys = Keys::new("allod").map_err(|error| error.to_string())?;
    Place::read(url, &keys).map(drop).map_err(|error| why_wrong(&error))
}

/// What is wrong with a URL, without the words of the program.
fn why_wrong(error: &RedisError) -> String {
    let text = error.to_string();
    text.split_once(" - ").map_or(text.as_str(), |(why, _)| why).to_owned()
}

/// Where Redis is, without what must not be shown.
#[derive(Debug, Clone)]
pub(super) struct Place {
    whom: Whom,
    name: Arc<str>,
}

#[derive(Debug, Clone)]
enum Whom {
    /// Always the same.
    One(Client),
    /// Whom the sentinels name.
    Named(Arc<Sentinels>),
    /// Who has the register's slot of a cluster.
    Slot(Arc<Cluster>),
}

impl Place {
    pub(super) fn new(url: &str, keys: &Keys) -> Result<Self, StoreError> {
        Self::read(url, keys).map_err(|error| {
            let why = why_wrong(&error);
            // The URL is not repeated: it may hold a password.
            StoreError::Invalid(format!("the URL of Redis is wrong: {why}; as `redis://127.0.0.1:6379/0`").into())
        })
    }

    fn read(url: &str, keys: &Keys) -> Result<Self, RedisError> {
        let keepalive = socket2::TcpKeepalive::new().with_time(KEEPALIVE_AFTER).with_interval(KEEPALIVE_AFTER / 5);
        let settings = redis::io::tcp::TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(keepalive)
            .set_user_timeout(USER_TIMEOUT);
        if let Some(sentinels) = Sentinels::of(url, &settings) {
            let sentinels = sentinels?;
            let name = sentinels.name().into();
            return Ok(Self { whom: Whom::Named(Arc::new(sentinels)), name });
        }
        if let Some(cluster) = Cluster::of(url, &settings, keys.register()) {
            let cluster = cluster?;
            let name = cluster.name().into();
            return Ok(Self { whom: Whom::Slot(Arc::new(cluster)), name });
        }
        let info = url.into_connection_info()?;
        let name = info.addr().to_string().into();
        let client = Client::open(info.set_tcp_settings(settings))?;
        Ok(Self { whom: Whom::One(client), name })
    }

    async fn client(&self) -> Result<Client, RedisError> {
        match &self.whom {
            Whom::One(client) => Ok(client.clone()),
            Whom::Named(sentinels) => sentinels.primary().await,
            Whom::Slot(cluster) => cluster.primary().await,
        }
    }

    /// Asks who the primary is, where that may change.
    pub(super) async fn look(&self) {
        let (asked, who) = match &self.whom {
            Whom::One(_) => return,
            Whom::Named(sentinels) => (sentinels.primary().await, "the sentinels do"),
            Whom::Slot(cluster) => (cluster.primary().await, "the cluster does"),
        };
        if let Err(error) = asked {
            tracing::warn!(redis = %self.name, %error, "{who} not say who the primary is");
        }
    }

    /// The server that was gone to says itself that it is no primary. (Those of a cluster are asked that beforehand.)
    fn steps_down(&self, gone_to: &Client) {
        if let (Whom::Named(sentinels), ConnectionAddr::Tcp(host, port)) =
            (&self.whom, gone_to.get_connection_info().addr())
        {
            sentinels.steps_down(host, *port);
        }
    }

    /// Is it a cluster's?
    pub(super) fn is_in_cluster(&self) -> bool {
        matches!(self.whom, Whom::Slot(_))
    }

    /// Why nothing can change there at the moment: the slot is moved.
    pub(super) fn moving(&self) -> Option<Arc<str>> {
        if let Whom::Slot(cluster) = &self.whom { cluster.moving() } else { None }
    }

    /// Another server that has something of the register's slot, although it is not its own.
    pub(super) async fn stray(&self) -> Result<Option<String>, StoreError> {
        let Whom::Slot(cluster) = &self.whom else { return Ok(None) };
        cluster.stray().await.map_err(|error| store_error("asking every primary of", &self.name, &error))
    }

    /// How often it became another one.
    fn changes(&self) -> u64 {
        match &self.whom {
            Whom::One(_) => 0,
            Whom::Named(sentinels) => sentinels.changes(),
            Whom::Slot(cluster) => cluster.changes(),
        }
    }

    /// `host:port`, or the path of a socket.
    pub(super) fn name(&self) -> &Arc<str> {
        &self.name
    }
}

/// A connection that is made when it is needed.
pub(super) struct Link {
    place: Place,
    shas: Option<Arc<Shas>>,
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that an answer of an old one does not end the new one.
    made: u64,
    /// The connection of which [`Link::is_new`] told.
    told: u64,
    /// Changes of the primary before it was made.
    changes: u64,
}

/// Answers under way of commands that only read.
pub(super) struct Reading {
    reading: tokio::task::JoinHandle<Result<Vec<Value>, RedisError>>,
    number: u64,
}

const CRASHED: (redis::ErrorKind, &str) = (redis::ErrorKind::Client, "the task that reads crashed");

type Asked<T> = Pin<Box<dyn Future<Output = Result<T, RedisError>> + Send>>;

/// An answer under way.
pub(super) type Answer = Asked<Value>;

impl Link {
    pub(super) fn new(place: Place, shas: Option<Arc<Shas>>) -> Self {
        Self { place, shas, connection: None, made: 0, told: 0, changes: 0 }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        self.place.name()
    }

    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// A connection that knows the scripts, and its number.
    pub(super) async fn connected(&mut self) -> Result<(MultiplexedConnection, u64), Failed> {
        if let Some(connection) = &self.connection
            && self.place.changes() == self.changes
        {
            return Ok((connection.clone(), self.made));
        }
        let config =
            AsyncConnectionConfig::new().set_connection_timeout(Some(CONNECT_WITHIN)).set_response_timeout(None);
        let connecting = async {
            let client = self.place.client().await?;
            let changes = self.place.changes();
            let mut connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            // Redis may accept and then not answer: the whole of it is bounded.
            if is_replica(&mut connection).await? {
                self.place.steps_down(&client);
                return Err(RedisError::from((redis::ErrorKind::Client, "it is a replica, not a primary")));
            }
            let shas = load_scripts(&mut connection).await?;
            Ok((connection, shas, changes))
        };
        let timed = tokio::time::timeout(CONNECT_WITHIN * 2, connecting).await;
        let (connection, shas, changes) = match timed {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => return Err(Failed::NotApplied(store_error("connecting to", self.name(), &error))),
            Err(_) => return Err(Failed::NotApplied(timed_out("connecting to", self.name()))),
        };
        self.shas.get_or_insert_with(|| Arc::new(shas));
        self.made += 1;
        self.changes = changes;
        self.connection = Some(connection.clone());
        Ok((connection, self.made))
    }

    /// Was it made since this was asked last?
    pub(super) fn is_new(&mut self) -> bool {
        std::mem::replace(&mut self.told, self.made) != self.made
    }

    /// The connection of this number is not to be used any more.
    pub(super) fn broken(&mut self, number: u64) {
        if number == self.made {
            self.connection = None;
        }
    }

    pub(super) async fn shas(&mut self) -> Result<Arc<Shas>, Failed> {
        self.connected().await?;
        let missing = || Failed::NotApplied(strange(self.place.name(), "no script could be loaded"));
        self.shas.clone().ok_or_else(missing)
    }

    /// Calls a script and waits for its answer.
    pub(super) async fn call(&mut self, call: &Call, within: Duration) -> Result<Value, Failed> {
        let (connection, number) = self.connected().await?;
        let answer = begin(connection, Arc::new(call.clone())).await;
        let name = Arc::clone(self.name());
        let (result, broken) = finish(answer, within, &name).await;
        if broken {
            self.broken(number);
        }
        result
    }

    /// Calls a script, and behind it on the same connection a command that waits for what the script wrote.
    pub(super) async fn call_then(
        &mut self,
        call: &Call,
        then: Option<Cmd>,
        within: Duration,
    ) -> Result<(Value, Option<Value>), Failed> {
        let Some(then) = then else { return Ok((self.call(call, within).await?, None)) };
        let (mut connection, number) = self.connected().await?;
        let mut pipeline = Pipeline::with_capacity(2);
        pipeline.add_command(call.command.clone()).add_command(then);
        let asking = async {
            match pipeline.query_async::<(Value, Value)>(&mut connection).await {
                Err(error) if error.code() == Some("NOSCRIPT") => {
                    tracing::info!(script = call.script.name(), "Redis forgot the scripts; they are loaded again");
                    load_scripts(&mut connection).await?;
                    pipeline.query_async::<(Value, Value)>(&mut connection).await
                }
                answers => answers,
            }
        };
        let failed = match tokio::time::timeout(within, asking).await {
            Ok(Ok((answer, then))) => return Ok((answer, Some(then))),
            Ok(Err(error)) => {
                if is_over(&error) {
                    self.broken(number);
                }
                return Err(classify(&error, self.name()));
            }
            Err(_) => Failed::Unknown(timed_out("waiting for an answer of", self.name())),
        };
        self.broken(number);
        Err(failed)
    }

    /// Sends commands that only read, and waits for their answers.
    pub(super) async fn read(&mut self, pipeline: &Pipeline, within: Duration) -> Result<Vec<Value>, StoreError> {
        let reading = self.begin_read(pipeline.clone()).await?;
        self.finish_read(reading, within).await
    }

    /// Sends commands that only read, in the order of the calls.
    pub(super) async fn begin_read(&mut self, pipeline: Pipeline) -> Result<Reading, StoreError> {
        let (mut connection, number) = self.connected().await.map_err(Failed::into_error)?;
        let reading = queued(async move { pipeline.query_async::<Vec<Value>>(&mut connection).await }).await;
        Ok(Reading { reading: tokio::spawn(reading), number })
    }

    /// Waits for what was asked by [`Link::begin_read`].
    pub(super) async fn finish_read(&mut self, reading: Reading, within: Duration) -> Result<Vec<Value>, StoreError> {
        let Reading { reading, number } = reading;
        let answered = tokio::time::timeout(within, reading).await;
        let error = match answered.map(|ended| ended.unwrap_or_else(|_| Err(RedisError::from(CRASHED)))) {
            Ok(Ok(values)) => return Ok(values),
            Ok(Err(error)) if !is_over(&error) => return Err(store_error("reading from", self.name(), &error)),
            Ok(Err(error)) => store_error("reading from", self.name(), &error),
            Err(_) => timed_out("reading from", self.name()),
        };
        self.broken(number);
        Err(error)
    }

    /// As [`Link::read`], one command.
    pub(super) async fn ask(&mut self, command: Cmd, within: Duration) -> Result<Value, StoreError> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.add_command(command);
        let mut values = self.read(&pipeline, within).await?;
        values.pop().ok_or_else(|| strange(self.name(), "an answer was empty"))
    }
}

/// A replica answers what only reads from wherever it is, or from nothing while it has not begun to follow.
async fn is_replica(connection: &mut MultiplexedConnection) -> Result<bool, RedisError> {
    match redis::cmd("ROLE").query_async::<Value>(connection).await {
        Ok(Value::Array(values)) => Ok(values.first() != Some(&Value::BulkString(b"master".to_vec()))),
        Err(error) if error.code() != Some("NOPERM") => Err(error),
        // Where ROLE is not permitted, writes tell.
        Ok(_) | Err(_) => Ok(false),
    }
}

async fn load_scripts(connection: &mut MultiplexedConnection) -> Result<Shas, RedisError> {
    let mut pipeline = Pipeline::with_capacity(Loaded::ALL.len());
    for script in Loaded::ALL {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script.text());
    }
    let shas: [String; Loaded::ALL.len()] = pipeline.query_async(connection).await?;
    Ok(Shas(shas))
}

/// Hands a call to a connection: when this returns, calls that are begun later come after it. The answer is waited for
/// by [`finish`], elsewhere.
pub(super) async fn begin(mut connection: MultiplexedConnection, call: Arc<Call>) -> Answer {
    queued(async move {
        match call.command.query_async(&mut connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                tracing::info!(script = call.script.name(), "Redis forgot the scripts; they are loaded again");
                load_scripts(&mut connection).await?;
                call.command.query_async(&mut connection).await
            }
            answer => answer,
        }
    })
    .await
}

/// Puts a command into its connection's queue, which its first poll does. Tokio's budget must not put that off, or a later
/// command would overtake it.
async fn queued<T: Send + 'static>(asking: impl Future<Output = Result<T, RedisError>> + Send + 'static) -> Asked<T> {
    let mut asked: Asked<T> = Box::pin(asking);
    let poll = std::future::poll_fn(|context| Poll::Ready(asked.as_mut().poll(context)));
    match tokio::task::unconstrained(poll).await {
        Poll::Ready(result) => Box::pin(std::future::ready(result)),
        Poll::Pending => asked,
    }
}

/// Waits for the answer of a call. Tells also whether the connection is to be replaced.
pub(super) async fn finish(answer: Answer, within: Duration, name: &Arc<str>) -> (Result<Value, Failed>, bool) {
    match tokio::time::timeout(within, answer).await {
        Ok(Ok(value)) => (Ok(value), false),
        Ok(Err(error)) => (Err(classify(&error, name)), is_over(&error)),
        Err(_) => (Err(Failed::Unknown(timed_out("waiting for an answer of", name))), true),
    }
}

/// Is the connection to be replaced: it broke, or leads to a server that is no primary, or not yet, or has not the slot?
fn is_over(error: &RedisError) -> bool {
    error.code().is_none_or(|code| ["READONLY", "MASTERDOWN", "LOADING", "MOVED", "CLUSTERDOWN"].contains(&code))
}

/// Digits of the hash by which a script is known.
const SHA_DIGITS: usize = 40;

/// Codes with which Redis refuses a command before it begins it. A script that runs may be refused a command of its own
/// with the same codes.
const NOT_BEGUN: [&str; 15] = [
    "NOSCRIPT",
    "LOADING",
    "BUSY",
    "READONLY",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "MOVED",
    "ASK",
    "TRYAGAIN",
    "CLUSTERDOWN",
    "CROSSSLOT",
    "NOAUTH",
    "NOPERM",
    "EXECABORT",
];

/// Was it raised by a script that was running? Redis names the script then, and where in it. What the script wrote before
/// stays written.
fn is_inside_script(error: &RedisError) -> bool {
    let text = error.detail().unwrap_or_default();
    text.match_indices(" script: ").any(|(at, mark)| {
        let named = text[at + mark.len()..].bytes();
        named.take_while(u8::is_ascii_hexdigit).count() >= SHA_DIGITS
    })
}

fn classify(error: &RedisError, name: &Arc<str>) -> Failed {
    match error.code() {
        _ if is_inside_script(error) => Failed::Unknown(store_error("asking", name, error)),
        Some("OOM") => Failed::NotApplied(StoreError::Full),
        Some(code) if NOT_BEGUN.contains(&code) => Failed::NotApplied(store_error("asking", name, error)),
        Some(_) | None => Failed::Unknown(store_error("asking", name, error)),
    }
}

fn store_error(doing: &str, name: &Arc<str>, error: &RedisError) -> StoreError {
    // As one sentence: the error repeats the one below it.
    let source = std::io::Error::other(error.to_string());
    StoreError::Io { context: format!("{doing} Redis at {name}").into(), source: Arc::new(source) }
}

fn timed_out(doing: &str, name: &Arc<str>) -> StoreError {
    let source = Arc::new(std::io::Error::from(std::io::ErrorKind::TimedOut));
    StoreError::Io { context: format!("{doing} Redis at {name}").into(), source }
}

/// An answer that no server of ours gives.
pub(super) fn strange(name: &Arc<str>, what: &str) -> StoreError {
    let source = Arc::new(std::io::Error::other(what.to_owned()));
    StoreError::Io { context: format!("understanding Redis at {name}").into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn class(refused: &str) -> Failed {
        let answer = redis::parse_redis_value(format!("-{refused}\r\n").as_bytes());
        classify(&answer.and_then(Value::extract_error).unwrap_err(), &"redis".into())
    }

    /// The words of several versions of Redis; some give what a script is refused a code that is theirs for commands, too.
    #[test]
    fn only_what_was_refused_before_a_script_began_was_not_applied() {
        let inside = " script: 5a0222b015ea20cb7a0d3c13dfd08e991b619f5b, on @user_script:206.";
        for refused in [
            "NOPERM User allod has no permissions to run the 'evalsha' command",
            "NOSCRIPT No matching script. Please use EVAL.",
            "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
            "READONLY You can't write against a read only replica.",
            "OOM allow-oom flag is not set on the script, can not run it when used memory > 'maxmemory'",
        ] {
            assert!(matches!(class(refused), Failed::NotApplied(_)), "{refused}");
            assert!(matches!(class(&format!("{refused}{inside}")), Failed::Unknown(_)), "{refused}, inside a script");
        }
        for refused in [
            "ERR The user executing the script can't run this command or subcommand",
            "NOPERM ACL failure in script: User allod has no permissions to run the 'zadd' command",
            "ERR Error running script (call to f_5a0222b015ea20cb7a0d3c13dfd08e991b619f5b)",
        ] {
            assert!(matches!(class(&format!("{refused}{inside}")), Failed::Unknown(_)), "{refused}");
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let keys = Keys::new("allod").unwrap();
        let place = Place::new("redis://user:secret@127.0.0.1:6390/2", &keys).unwrap();
        assert_eq!(&**place.name(), "127.0.0.1:6390");
        let place = Place::new("redis+cluster://user:secret@127.0.0.1:6390,127.0.0.2:1", &keys).unwrap();
        assert_eq!(&**place.name(), "cluster of 127.0.0.1:6390,127.0.0.2:1");
        let error = Place::new("http://user:secret@127.0.0.1", &keys).unwrap_err();
        assert!(!error.to_string().contains("secret"), "{error}");
    }
}
