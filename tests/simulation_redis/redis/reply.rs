//! Commands and answers of a server as bytes (RESP2).

pub type Words = Vec<Vec<u8>>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    Status(&'static str),
    Error(String),
    Int(i64),
    Bulk(Vec<u8>),
    Nil,
    Array(Vec<Reply>),
}

impl Reply {
    pub const OK: Reply = Reply::Status("OK");

    pub fn bulk(bytes: impl AsRef<[u8]>) -> Self {
        Self::Bulk(bytes.as_ref().to_vec())
    }

    pub fn bulk_or_nil(bytes: Option<impl AsRef<[u8]>>) -> Self {
        bytes.map_or(Self::Nil, Self::bulk)
    }

    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Status(text) => out.extend_from_slice(format!("+{text}\r\n").as_bytes()),
            Self::Error(text) => out.extend_from_slice(format!("-{text}\r\n").as_bytes()),
            Self::Int(number) => out.extend_from_slice(format!(":{number}\r\n").as_bytes()),
            Self::Bulk(bytes) => {
                out.extend_from_slice(format!("${}\r\n", bytes.len()).as_bytes());
                out.extend_from_slice(bytes);
                out.extend_from_slice(b"\r\n");
            }
            Self::Nil => out.extend_from_slice(b"$-1\r\n"),
            Self::Array(all) => {
                out.extend_from_slice(format!("*{}\r\n", all.len()).as_bytes());
                all.iter().for_each(|one| one.write(out));
            }
        }
    }
}

/// Takes the first command out of what was read. None if it is incomplete.
pub fn next_command(read: &mut Vec<u8>) -> Option<Words> {
    let mut at = 0;
    let count = line(read, &mut at, b'*')?;
    let mut words = Vec::with_capacity(count);
    for _ in 0..count {
        let length = line(read, &mut at, b'$')?;
        words.push(read.get(at..at + length)?.to_vec());
        at += length + 2;
    }
    if at > read.len() {
        return None;
    }
    read.drain(..at);
    Some(words)
}

/// The number in a line that begins with this byte.
fn line(read: &[u8], at: &mut usize, begins: u8) -> Option<usize> {
    let rest = read.get(*at..)?;
    let end = rest.windows(2).position(|two| two == b"\r\n")?;
    assert_eq!(rest[0], begins, "no command: {}", String::from_utf8_lossy(rest));
    *at += end + 2;
    Some(std::str::from_utf8(&rest[1..end]).unwrap().parse().unwrap())
}
