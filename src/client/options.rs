//! What can be chosen about a [`Client`](super::Client).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{ClientError, TIMEOUT_DEFAULT};

/// So long nothing is heard while something is waited for, before a connection is asked for a sign of life.
const SILENCE_DEFAULT: Duration = Duration::from_secs(10);

/// Who is told why a call goes on trying.
#[derive(Clone)]
pub struct Trouble(Arc<dyn Fn(&ClientError) + Send + Sync>);

impl Trouble {
    /// Tells this function. It is called on tasks of the client and must not wait.
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
    /// How long one call may take with all its tries; `wait_seconds` comes on top. What was refused for a moment is
    /// not asked again in the last tenth of it. Default 30 s.
    pub timeout: Duration,
    /// Ask nodes to answer `moved` instead of forwarding, and follow: saves a hop inside the cluster, and needs every node
    /// to be within reach of this client. Default: no.
    pub redirect: bool,
    /// Does a call wait, within its time, for a server of which nothing was ever heard? If not, it ends with
    /// [`ClientError::Connect`] once each address was tried in vain; what was connected once is waited for all the same.
    /// Default: yes.
    pub wait_for_server: bool,
    /// Is a call asked again, within its time, that was refused for a moment? If not, the refusal is its answer. Default: yes.
    pub asks_again: bool,
    /// A connection that says nothing for so long while an answer is due is asked for a sign of life; after as much time
    /// again it is given up. Default 10 s.
    pub silence: Duration,
    /// Who is told why a call goes on trying.
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
