//! Free ports for programs that must be told which port to use.

use std::net::TcpListener;

/// The first port that the system gives out by itself, where the system does not say.
const FIRST_OF_THE_SYSTEM: u16 = 32_768;

/// A port that nobody uses now. It is below the range from which the system takes ports for port 0 and for outgoing
/// connections. A port of that range could be taken before the program that is told the port starts, or starts again.
pub fn free_port() -> u16 {
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let first = range.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(FIRST_OF_THE_SYSTEM);
    loop {
        let port = rand::random_range(10_000..first.max(20_000));
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}
