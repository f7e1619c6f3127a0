//! The options of a [`Client`](super::Client).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{ClientError, TIMEOUT_DEFAULT};

/// How long a connection may be silent while an answer is due before it is asked for a sign of life.
const SILENCE_DEFAULT: Duration = Duration::from_secs(10);

/// A function that is told why a call keeps trying.
#[derive(Clone)]
pub struct Trouble(Arc<dyn Fn(&ClientError) + Send + Sync>);

impl Trouble {
    /// Calls this function. It runs on tasks of the client and must not block.
    pub fn told_to(function: impl Fn(&ClientError) + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    pub(super) fn tell(&self, error: &ClientError) {
        (self.0)(error);
    }
}

impl fmt::Debug for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Trouble")
    }
}

/// How a client behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// How long one call may take with all its tries; `wait_seconds` comes on top. A call that was refused for the moment is
    /// not repeated in the last tenth of this time. Default 30 s.
    pub timeout: Duration,
    /// Asks nodes to answer `moved` instead of forwarding, and follows. This saves a hop inside the cluster, but needs every
    /// node to be reachable for this client. Default: no.
    pub redirect: bool,
    /// Does a call wait, within its time, for a server that was never reached? If not, it ends with [`ClientError::Connect`]
    /// once each address was tried in vain. After a first connection, calls wait in any case. Default: yes.
    pub wait_for_server: bool,
    /// Is a call that was refused for the moment repeated within its time? If not, the refusal is its answer. Default: yes.
    pub asks_again: bool,
    /// A connection that is silent for this long while an answer is due is asked for a sign of life; after the same time again
    /// it is given up. Default 10 s.
    pub silence: Duration,
    /// Told why calls keep trying.
    pub trouble: Option<Trouble>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT_DEFAULT,
            redirect: false,
            wait_for_server: true,
            asks_again: true,
            silence: SILENCE_DEFAULT,
            trouble: None,
        }
    }
}
