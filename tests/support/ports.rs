//! Ports for programs that must be told one.

use std::net::TcpListener;

/// Where nothing is known of the system's own.
const FIRST_OF_THE_SYSTEM: u16 = 32_768;

/// A port that nobody has now. It is from below those that the system gives to whoever asks for any and to each connection that
/// goes out: one of these would be somebody else's before the program that is told it has begun, or has begun again.
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
