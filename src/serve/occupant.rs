//! Who listens on a port that this process cannot have: for the refusal of a start. The kernel says whose socket it is. Which
//! process has that socket it says only to the same user and to root.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Where the kernel lists the TCP sockets.
const SOCKETS: [&str; 2] = ["/proc/net/tcp", "/proc/net/tcp6"];
/// The state of a socket that listens.
const LISTENS: &str = "0A";

/// Who listens on a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Occupant {
    /// The number of the user, and the name, if this machine knows one.
    user: (u32, Option<String>),
    /// The process and the name of its program, if this user may know.
    process: Option<(u32, String)>,
}

/// A socket that listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Listener {
    address: SocketAddr,
    user: u32,
    inode: u64,
}

impl Occupant {
    /// Who keeps this process from listening there. None if that is not known.
    pub(super) fn of(address: SocketAddr) -> Option<Self> {
        let list = SOCKETS.iter().filter_map(|list| fs::read_to_string(list).ok()).collect::<String>();
        let in_the_way = listeners(&list).filter_map(|other| Some((in_the_way(other.address, address)?, other)));
        let (_, Listener { user, inode, .. }) = in_the_way.min_by_key(|(rank, _)| *rank)?;
        Some(Self { user: (user, name_of(user)), process: process_with(inode) })
    }

    /// For people.
    pub(super) fn words(&self) -> String {
        let (number, name) = &self.user;
        let user = name.as_ref().map_or_else(|| number.to_string(), |name| format!("`{name}`"));
        match &self.process {
            Some((process, program)) => format!("process {process} (`{program}`) of user {user} listens there"),
            None => {
                format!("a process of user {user} listens there (`ss -ltnp`, as that user or as root, tells which one)")
            }
        }
    }
}

/// The sockets that listen, out of the kernel's list. Lines that are something else are passed over.
fn listeners(list: &str) -> impl Iterator<Item = Listener> {
    list.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        if *fields.get(3)? != LISTENS {
            return None;
        }
        let (address, port) = fields.get(1)?.split_once(':')?;
        let address = SocketAddr::new(ip_of(address)?, u16::from_str_radix(port, 16).ok()?);
        Some(Listener { address, user: fields.get(7)?.parse().ok()?, inode: fields.get(9)?.parse().ok()? })
    })
}

/// An address as the kernel lists it: words of 32 bits, each printed as a number of this machine.
fn ip_of(text: &str) -> Option<IpAddr> {
    let word = |at: usize| Some(u32::from_str_radix(text.get(8 * at..8 * at + 8)?, 16).ok()?.to_ne_bytes());
    match text.len() {
        8 => Some(Ipv4Addr::from(word(0)?).into()),
        32 => {
            let words = [word(0)?, word(1)?, word(2)?, word(3)?];
            Some(Ipv6Addr::from(<[u8; 16]>::try_from(words.concat()).ok()?).to_canonical())
        }
        _ => None,
    }
}

/// How surely a socket is in the way of another address: 0 for the same address, 1 for all addresses of its family, 2 for
/// `[::]` and IPv4, as the list does not tell whether that socket takes IPv4, too. None: it is not in the way.
fn in_the_way(other: SocketAddr, wanted: SocketAddr) -> Option<u8> {
    let (one, two) = (other.ip(), wanted.ip());
    let rank = if one == two {
        0
    } else if one.is_ipv4() == two.is_ipv4() && (one.is_unspecified() || two.is_unspecified()) {
        1
    } else if (one.is_ipv6() && one.is_unspecified()) || (two.is_ipv6() && two.is_unspecified()) {
        2
    } else {
        return None;
    };
    (other.port() == wanted.port()).then_some(rank)
}

/// The name of a user, out of this machine's own list.
fn name_of(user: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    let is_it = |line: &&str| line.split(':').nth(2).and_then(|number| number.parse().ok()) == Some(user);
    Some(users.lines().find(is_it)?.split(':').next()?.to_owned())
}

/// The process that has this socket open, and its program.
fn process_with(inode: u64) -> Option<(u32, String)> {
    let socket = format!("socket:[{inode}]");
    let has_it = |process: &Path| {
        let Ok(files) = fs::read_dir(process.join("fd")) else { return false };
        files.flatten().any(|file| fs::read_link(file.path()).is_ok_and(|leads_to| leads_to == Path::new(&socket)))
    };
    fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
        let process = entry.file_name().to_str()?.parse().ok()?;
        let program =
            has_it(&entry.path()).then(|| fs::read_to_string(entry.path().join("comm")).unwrap_or_default())?;
        Some((process, program.trim_end().to_owned()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1CE8 00000000:0000 0A 00000000:00000000 00:00000000 00000000 65534        0 26226 1 0000000000000000 100 0 0 10 0
   1: 0100007F:1CE9 0100007F:8A2E 01 00000000:00000000 00:00000000 00000000     0        0 26227 1 0000000000000000 20 4 30 10 -1
   2: 00000000000000000000000000000000:1CEA 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 7 1
   3: 00000000000000000000000001000000:1CEB 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000 1000 0 8 1
   4: strange
";

    #[test]
    #[cfg(target_endian = "little")]
    fn who_listens_is_found_in_the_list_of_the_kernel() {
        let found: Vec<(String, u32, u64)> =
            listeners(LIST).map(|one| (one.address.to_string(), one.user, one.inode)).collect();
        let told = |address: &str, user, inode| (address.to_owned(), user, inode);
        let all = [told("127.0.0.1:7400", 65_534, 26_226), told("[::]:7402", 1_000, 7), told("[::1]:7403", 1_000, 8)];
        assert_eq!(found, all);
    }

    #[test]
    fn of_several_who_have_a_port_the_one_in_the_way_is_named() {
        for (other, wanted, rank) in [
            ("127.0.0.1:7400", "127.0.0.1:7400", Some(0)),
            ("127.0.0.1:7400", "0.0.0.0:7400", Some(1)),
            ("[::]:7400", "[::1]:7400", Some(1)),
            ("[::]:7400", "127.0.0.1:7400", Some(2)),
            ("127.0.0.1:7400", "[::]:7400", Some(2)),
            ("0.0.0.0:7400", "[::1]:7400", None),
            ("[::1]:7400", "0.0.0.0:7400", None),
            ("127.0.0.1:7400", "127.0.0.2:7400", None),
            ("127.0.0.1:7401", "127.0.0.1:7400", None),
        ] {
            assert_eq!(in_the_way(other.parse().unwrap(), wanted.parse().unwrap()), rank, "{other} {wanted}");
        }
    }

    #[test]
    fn a_user_who_may_not_know_the_process_is_told_whose_it_is() {
        let of_other = Occupant { user: (65_534, Some("nobody".to_owned())), process: None };
        assert!(of_other.words().starts_with("a process of user `nobody` listens there"), "{}", of_other.words());
        let unnamed = Occupant { user: (12_345, None), process: Some((7, "allod".to_owned())) };
        assert_eq!(unnamed.words(), "process 7 (`allod`) of user 12345 listens there");
    }
}
