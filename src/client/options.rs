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
#[derive(Clone)]
pub struct Options {
    /// How long one call may take with all its tries; `wait_seconds` comes on top. Default 30 s.
    pub timeout: Duration,
    /// Each connection logs in with it (`auth.login`). Where redirects are followed, the nodes that are named get it too.
    pub token: Option<String>,
    /// Ask nodes to answer `moved` instead of forwarding, and follow: saves a hop inside the cluster, and needs every node
    /// to be within reach of this client. Default: no.
    pub redirect: bool,
    /// Does a call wait, within its time, for a server of which nothing was ever heard? If not, it ends with
    /// [`ClientError::Connect`] once each address was tried in vain; what was connected once is waited for all the same.
    /// Default: yes.
    pub wait_for_server: bool,
    /// A connection that says nothing for so long while an answer is due is asked for a sign of life; after as much time
    /// again it is given up. Default 10 s.
    pub silence: Duration,
    /// Who is told why a call goes on trying.
    pub trouble: Option<Trouble>,
}

/// Without the token: what is printed goes into logs.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { timeout, token, redirect, wait_for_server, silence, trouble } = self;
        f.debug_struct("Options")
            .field("timeout", timeout)
            .field("token", &token.as_ref().map(|_| "not shown"))
            .field("redirect", redirect)
            .field("wait_for_server", wait_for_server)
            .field("silence", silence)
            .field("trouble", trouble)
            .finish()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            timeout: TIMEOUT_DEFAULT,
            token: None,
            redirect: false,
            wait_for_server: true,
            silence: SILENCE_DEFAULT,
            trouble: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_printed_without_their_token() {
        let options = Options { token: Some("a secret".to_owned()), ..Options::default() };
        for printed in [format!("{options:?}"), format!("{options:#?}")] {
            assert!(printed.contains("not shown") && !printed.contains("a secret"), "{printed}");
        }
    }
}
