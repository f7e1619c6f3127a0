//! A connection to Redis for one purpose. Nothing is ever sent again here except after `NOSCRIPT`; `failed` says what an
//! error means, and `place` where the connection leads. A caller that only reads must itself repeat a read on a connection
//! that was closed while it was idle, as servers and firewalls do: only the caller knows what must be checked first on a new
//! connection.
//!
//! A connection that answered too late, or broke, is replaced by the next call. A connection lives on the runtime of the
//! task that made it, and ends with it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Pipeline, RedisError, Value};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use super::failed::{
    Failed, classify, is_moving, is_over, is_refused, moving, of_connecting, of_reading, of_script, strange, timed_out,
};
use super::place::RedisPlace;
use super::refusal::WayRefusal;
use super::scripts::{LoadedScript, ScriptCall, Shas};
use crate::store::StoreError;

/// How long it may take to make a connection.
const CONNECT_WITHIN: Duration = Duration::from_millis(500);

/// A connection that is made when it is needed.
pub(super) struct Link {
    place: RedisPlace,
    shas: Option<Arc<Shas>>,
    connection: Option<MultiplexedConnection>,
    /// Counts connections, so that a late answer on an old one does not end the new one.
    made: u64,
    made_at: Instant,
    /// The connection that [`Link::is_new`] has reported.
    told: u64,
    /// The connection over which it was checked that its server has everything.
    seen: u64,
    /// The count of changes of the primary before the connection was made.
    changes: u64,
    /// See [`Link::was_closed`].
    closed: bool,
}

/// Pending answers to commands that only read. When this is dropped, nobody waits for them, and they are not collected.
pub(super) struct PendingReads {
    reading: AbortOnDropHandle<Result<Vec<Value>, RedisError>>,
    number: u64,
    /// The count of changes of the primary before that connection was made.
    changes: u64,
}

const CRASHED: (redis::ErrorKind, &str) = (redis::ErrorKind::Client, "the task that reads crashed");

/// Why there are no answers to commands that only read.
struct Unread {
    error: StoreError,
    /// The server refuses the command, to this user or to all: asking again changes nothing.
    is_refused: bool,
}

/// Looks like a connection that the server closed, so that the caller asks the new primary.
const REPLACED: (redis::ErrorKind, &str) = (redis::ErrorKind::Io, "Redis has another primary");

const UNANSWERED: (redis::ErrorKind, &str) = (redis::ErrorKind::UnexpectedReturnType, "an answer was empty");

/// The answers to several commands, each its own result.
pub(super) type Answers = Vec<Result<Value, RedisError>>;

type Asked<T> = Pin<Box<dyn Future<Output = Result<T, RedisError>> + Send>>;

pub(super) type PendingAnswer = Asked<Value>;

impl Link {
    pub(super) fn new(place: RedisPlace, shas: Option<Arc<Shas>>) -> Self {
        let (connection, made_at) = (None, Instant::now());
        Self { place, shas, connection, made: 0, made_at, told: 0, seen: 0, changes: 0, closed: false }
    }

    pub(super) fn name(&self) -> &Arc<str> {
        self.place.name()
    }

    pub(super) fn place(&self) -> &RedisPlace {
        &self.place
    }

    /// A connection that knows the scripts, and its number.
    pub(super) async fn connected(&mut self) -> Result<(MultiplexedConnection, u64), Failed> {
        if let Some(connection) = &self.connection
            && self.place.changes() == self.changes
        {
            return Ok((connection.clone(), self.made));
        }
        let mut gone_to = None;
        let connecting = async {
            let (server, changes) = loop {
                let changes = self.place.changes();
                let server = self.place.server().await?;
                // Otherwise another primary is followed, perhaps only since this one was named.
                if self.place.changes() == changes {
                    break (server, changes);
                }
            };
            gone_to = Some(server.clone());
            let mut connection = server.telling(server.connect(CONNECT_WITHIN, None).await).await?;
            // Redis may accept the connection and then not answer, so all of this has a time limit.
            if server.telling(is_replica(&mut connection).await).await? {
                self.place.steps_down(&server);
                return Err(RedisError::from((redis::ErrorKind::Client, "it is a replica, not a primary")));
            }
            let hashes = load_scripts(&mut connection).await?;
            Ok((connection, Shas { hashes, user: server.user().into() }, changes))
        };
        let timed = tokio::time::timeout(CONNECT_WITHIN * 2, connecting).await;
        if let Some(server) = &gone_to {
            // A server that refuses something was reached; so was one that has no room.
            let reached = match &timed {
                Ok(Ok(_)) => true,
                Ok(Err(error)) => error.code().is_some() || WayRefusal::of(error).is_some_and(WayRefusal::is_of_room),
                Err(_) => false,
            };
            self.place.was_reached(server, reached);
        }
        let doing = self.place.connecting_to(gone_to.as_ref());
        let (connection, shas, changes) = match timed {
            Ok(Ok(made)) => made,
            Ok(Err(error)) => {
                let user = gone_to.as_ref().map_or("default", |server| server.user());
                return Err(Failed::NotApplied(of_connecting(&doing, &error, user, self.name())));
            }
            Err(_) => return Err(Failed::NotApplied(timed_out(&doing, self.name()))),
        };
        self.shas.get_or_insert_with(|| Arc::new(shas));
        self.made += 1;
        self.made_at = Instant::now();
        self.changes = changes;
        self.connection = Some(connection.clone());
        Ok((connection, self.made))
    }

    /// Was the connection made since this was last asked?
    pub(super) fn is_new(&mut self) -> bool {
        std::mem::replace(&mut self.told, self.made) != self.made
    }

    /// Is it still unknown whether the server at the other end of the present connection has everything?
    pub(super) fn is_unseen(&self) -> bool {
        self.seen != self.made
    }

    /// Notes that the server was checked over the connection of this number.
    pub(super) fn saw(&mut self, number: u64) {
        self.seen = number;
    }

    /// When the present connection was made, or the last one.
    pub(super) fn since(&self) -> Instant {
        self.made_at
    }

    pub(super) fn number(&self) -> u64 {
        self.made
    }

    /// Was there a connection before the present one?
    pub(super) fn is_again(&self) -> bool {
        self.made > 1
    }

    /// Did the last read find that its connection was closed?
    pub(super) fn was_closed(&self) -> bool {
        self.closed
    }

    /// The connection of this number must not be used any more.
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

    pub(super) async fn call(&mut self, call: &ScriptCall, within: Duration) -> Result<Value, Failed> {
        self.call_beside(call, None, within).await.map(|(answer, _)| answer)
    }

    /// Calls a script, and after it on the same connection commands that wait for what the script wrote. Returns the answer
    /// of the script, and the answers or refusals of the commands.
    pub(super) async fn call_then(
        &mut self,
        call: &ScriptCall,
        then: &[Cmd],
        within: Duration,
    ) -> Result<(Value, Answers), Failed> {
        if then.is_empty() {
            return Ok((self.call(call, within).await?, Vec::new()));
        }
        let (mut connection, number) = self.connected().await?;
        let mut pipeline = Pipeline::with_capacity(1 + then.len());
        pipeline.ignore_errors().add_command(call.command.clone());
        then.iter().for_each(|command| {
            pipeline.add_command(command.clone());
        });
        let asking = async {
            let mut answers = pipeline.query_async::<Answers>(&mut connection).await?;
            if matches!(answers.first(), Some(Err(error)) if error.code() == Some("NOSCRIPT")) {
                tracing::info!(script = call.script.name(), "Redis forgot the scripts; they are loaded again");
                load_scripts(&mut connection).await?;
                answers = pipeline.query_async::<Answers>(&mut connection).await?;
            }
            let mut answers = answers.into_iter();
            let answer = answers.next().unwrap_or_else(|| Err(RedisError::from(UNANSWERED)));
            let answer = answer.map_err(|error| of_script(error, call))?;
            Ok::<_, RedisError>((answer, answers.collect::<Answers>()))
        };
        let answered = tokio::time::timeout(within, asking).await;
        let is_broken = match &answered {
            Ok(Ok((_, then))) => then.iter().any(|answer| answer.as_ref().is_err_and(is_over)),
            Ok(Err(error)) => is_over(error),
            Err(_) => true,
        };
        if is_broken {
            self.broken(number);
        }
        match answered {
            Ok(answers) => answers.map_err(|error| classify(&error, self.name()).map(|error| self.told(error))),
            Err(_) => Err(Failed::Unknown(timed_out("waiting for an answer of", self.name()))),
        }
    }

    /// Adds to an error, while the register's slot is being moved, where it is moving from.
    fn told(&self, error: StoreError) -> StoreError {
        match (error, self.place.moving()) {
            (error @ StoreError::Io { .. }, Some(why)) if is_moving(&error) => {
                let StoreError::Io { context, .. } = error else { return error };
                moving(context, why.to_string())
            }
            (error, _) => error,
        }
    }

    /// Calls a script, and sends after it a command that only reads. Does not wait for the answer of the command, which may
    /// be long. The command is sent only once: if Redis had forgotten the script, the command is answered before the script
    /// is called again.
    pub(super) async fn call_beside(
        &mut self,
        call: &ScriptCall,
        beside: Option<Cmd>,
        within: Duration,
    ) -> Result<(Value, Option<PendingReads>), Failed> {
        let (connection, number) = self.connected().await?;
        let answer = begin(connection, Arc::new(call.clone())).await;
        let reading = match beside {
            Some(command) => self.begin_ask(command).await.ok(),
            None => None,
        };
        let (result, broken) = finish(answer, within, &Arc::clone(self.name())).await;
        if broken {
            self.broken(number);
        }
        Ok((result.map_err(|failed| failed.map(|error| self.told(error)))?, reading))
    }

    /// Sends commands that only read, and waits for their answers.
    pub(super) async fn read(&mut self, pipeline: &Pipeline, within: Duration) -> Result<Vec<Value>, StoreError> {
        let reading = self.begin_read(pipeline.clone()).await?;
        self.finish_read(reading, within).await
    }

    /// Sends commands that only read, in the order of the calls.
    pub(super) async fn begin_read(&mut self, pipeline: Pipeline) -> Result<PendingReads, StoreError> {
        self.closed = false;
        let (mut connection, number) = self.connected().await.map_err(Failed::into_error)?;
        let reading = queued(async move { pipeline.query_async::<Vec<Value>>(&mut connection).await }).await;
        Ok(PendingReads { reading: AbortOnDropHandle::new(tokio::spawn(reading)), number, changes: self.changes })
    }

    /// Waits for the answers to [`Link::begin_read`], at most until there is another primary: a primary that hangs would
    /// otherwise hold up this read to its time limit, and all reads behind it.
    pub(super) async fn finish_read(
        &mut self,
        reading: PendingReads,
        within: Duration,
    ) -> Result<Vec<Value>, StoreError> {
        self.collect(reading, within).await.map_err(|unread| unread.error)
    }

    async fn collect(&mut self, reading: PendingReads, within: Duration) -> Result<Vec<Value>, Unread> {
        let PendingReads { mut reading, number, changes } = reading;
        let (answered, is_replaced) = tokio::select! {
            biased;
            answered = tokio::time::timeout(within, &mut reading) => (answered, false),
            () = self.place.changed_from(changes) => (Ok(Ok(Err(RedisError::from(REPLACED)))), true),
        };
        let error = match answered.map(|ended| ended.unwrap_or_else(|_| Err(RedisError::from(CRASHED)))) {
            Ok(Ok(values)) => return Ok(values),
            Ok(Err(error)) => {
                let user = self.shas.as_deref().map_or("default", |shas| &*shas.user);
                let told = self.told(of_reading(&error, user, self.name()));
                if !is_over(&error) {
                    return Err(Unread { error: told, is_refused: is_refused(&error) });
                }
                self.closed = is_replaced || error.is_connection_dropped();
                told
            }
            Err(_) => timed_out("reading from", self.name()),
        };
        self.broken(number);
        Err(Unread { error, is_refused: false })
    }

    /// As [`Link::ask`]; none if the server does not permit the command or does not have it, as those of some providers do
    /// not have CONFIG.
    ///
    /// # Errors
    /// There was no answer, or not now: what was asked is not known, and may be known if it is asked again.
    pub(super) async fn ask_if_permitted(
        &mut self,
        command: Cmd,
        within: Duration,
    ) -> Result<Option<Value>, StoreError> {
        let asked = self.begin_ask(command).await?;
        match self.collect(asked, within).await {
            Ok(mut values) => values.pop().map(Some).ok_or_else(|| strange(self.name(), "an answer was empty")),
            Err(Unread { is_refused: true, .. }) => Ok(None),
            Err(Unread { error, is_refused: false }) => Err(error),
        }
    }

    /// As [`Link::read`], for one command.
    pub(super) async fn ask(&mut self, command: Cmd, within: Duration) -> Result<Value, StoreError> {
        let asked = self.begin_ask(command).await?;
        self.finish_ask(asked, within).await
    }

    /// As [`Link::begin_read`], for one command.
    pub(super) async fn begin_ask(&mut self, command: Cmd) -> Result<PendingReads, StoreError> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.add_command(command);
        self.begin_read(pipeline).await
    }

    /// As [`Link::finish_read`], for one command.
    pub(super) async fn finish_ask(&mut self, asked: PendingReads, within: Duration) -> Result<Value, StoreError> {
        let mut values = self.finish_read(asked, within).await?;
        values.pop().ok_or_else(|| strange(self.name(), "an answer was empty"))
    }
}

/// A replica answers reads from whatever it has, or from nothing before it has begun to follow.
async fn is_replica(connection: &mut MultiplexedConnection) -> Result<bool, RedisError> {
    match redis::cmd("ROLE").query_async::<Value>(connection).await {
        Ok(Value::Array(values)) if values.first() == Some(&Value::BulkString(b"sentinel".to_vec())) => {
            let text = "it is a sentinel, which keeps nothing: name it by `redis+sentinel://HOST:PORT/NAME` (over TLS \
                        `rediss+sentinel://`), by the name of what it watches";
            Err(WayRefusal::of_url(text.to_owned()))
        }
        Ok(Value::Array(values)) => Ok(values.first() != Some(&Value::BulkString(b"master".to_vec()))),
        Err(error) if error.code() != Some("NOPERM") => Err(error),
        // If ROLE is not permitted, a write will show it.
        Ok(_) | Err(_) => Ok(false),
    }
}

async fn load_scripts(connection: &mut MultiplexedConnection) -> Result<[String; LoadedScript::ALL.len()], RedisError> {
    let mut pipeline = Pipeline::with_capacity(LoadedScript::ALL.len());
    for script in LoadedScript::ALL {
        pipeline.cmd("SCRIPT").arg("LOAD").arg(script.text());
    }
    pipeline.query_async(connection).await
}

/// Hands a call to a connection. Calls that are begun after this returns come after it. [`finish`] waits for the answer,
/// elsewhere.
pub(super) async fn begin(mut connection: MultiplexedConnection, call: Arc<ScriptCall>) -> PendingAnswer {
    queued(async move {
        let answered = match call.command.query_async(&mut connection).await {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                tracing::info!(script = call.script.name(), "Redis forgot the scripts; they are loaded again");
                load_scripts(&mut connection).await?;
                call.command.query_async(&mut connection).await
            }
            answer => answer,
        };
        answered.map_err(|error| of_script(error, &call))
    })
    .await
}

/// Puts a command into the queue of its connection, which its first poll does. Tokio's budget must not postpone this, or a
/// later command would overtake it.
async fn queued<T: Send + 'static>(asking: impl Future<Output = Result<T, RedisError>> + Send + 'static) -> Asked<T> {
    let mut asked: Asked<T> = Box::pin(asking);
    let poll = std::future::poll_fn(|context| Poll::Ready(asked.as_mut().poll(context)));
    match tokio::task::unconstrained(poll).await {
        Poll::Ready(result) => Box::pin(std::future::ready(result)),
        Poll::Pending => asked,
    }
}

/// Waits for the answer of a call. Also returns whether the connection must be replaced.
pub(super) async fn finish(answer: PendingAnswer, within: Duration, name: &Arc<str>) -> (Result<Value, Failed>, bool) {
    match tokio::time::timeout(within, answer).await {
        Ok(Ok(value)) => (Ok(value), false),
        Ok(Err(error)) => (Err(classify(&error, name)), is_over(&error)),
        Err(_) => (Err(Failed::Unknown(timed_out("waiting for an answer of", name))), true),
    }
}

#[cfg(test)]
mod tests {
    use super::super::following::NamedPrimary;
    use super::super::tests::place_of;
    use super::*;

    /// *A primary is suspended, not killed: its connections stay open, and nothing comes back. A load from the next primary
    /// waited for ten seconds behind a page of the history.*
    #[tokio::test]
    async fn what_is_read_of_a_primary_that_stands_still_is_waited_for_until_there_is_another() {
        let place = place_of("redis+sentinel://127.0.0.1:1/register");
        let following = place.following().unwrap();
        let named = |epoch, port| NamedPrimary { epoch, host: "127.0.0.1".to_owned(), port };
        following.follow(named(1, 2), "a test");
        let mut link = Link::new(place.clone(), None);
        let reading = AbortOnDropHandle::new(tokio::spawn(std::future::pending()));
        let reading = PendingReads { reading, number: 0, changes: place.changes() };
        let reads = link.finish_read(reading, Duration::from_secs(3_600));
        let fails_over = async {
            tokio::task::yield_now().await;
            following.follow(named(2, 3), "a test");
        };
        let both = async { tokio::join!(reads, fails_over) };
        let (read, ()) = tokio::time::timeout(Duration::from_secs(60), both).await.expect("it is waited for");
        assert!(read.unwrap_err().to_string().contains("another primary"));
        assert!(link.was_closed(), "whoever reads asks the other one");
    }

    /// *A shard is read from a slow Redis: each piece that came too late was still read to its end, beside those of the next
    /// attempt.*
    #[tokio::test]
    async fn what_is_read_too_slowly_is_not_read_on_by_a_task_that_nobody_waits_for() {
        let mut link = Link::new(place_of("redis://127.0.0.1:1/0"), None);
        let (held, ended) = tokio::sync::oneshot::channel::<()>();
        let reading = AbortOnDropHandle::new(tokio::spawn(async move {
            let _held = held;
            std::future::pending().await
        }));
        let reading = PendingReads { reading, number: 0, changes: link.place.changes() };
        let late = link.finish_read(reading, Duration::from_millis(1)).await.unwrap_err();
        assert!(matches!(late, StoreError::Io { .. }), "{late:?}");
        let ended = tokio::time::timeout(Duration::from_secs(60), ended).await.expect("it reads on");
        assert!(ended.is_err());
    }
}
