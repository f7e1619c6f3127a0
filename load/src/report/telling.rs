//! What is told at the end, and what could not be: a server that was found to be wrong is wrong, whoever could not read of it.

use std::io;

/// Notes what could not be printed or saved, and goes on with the rest.
#[derive(Debug, Default)]
pub struct Telling {
    failed: Vec<io::Error>,
}

impl Telling {
    /// This was printed, saved, or not. Who reads no further, as `head`, has read what they wanted.
    pub fn note(&mut self, told: io::Result<()>) {
        self.failed.extend(told.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe));
    }

    /// The end of it; where the outcome is another failure, that one counts, and these are named only.
    ///
    /// # Errors
    /// Something could not be told.
    pub fn end(self, is_faulty: bool) -> io::Result<()> {
        let texts: Vec<String> = self.failed.iter().map(ToString::to_string).collect();
        match texts.is_empty() {
            true => Ok(()),
            false if is_faulty => {
                texts.iter().for_each(|text| eprintln!("allod-load: {text}"));
                Ok(())
            }
            false => Err(io::Error::other(texts.join("; "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_reads_no_further_is_no_failure_and_a_full_disk_is_one_unless_there_is_a_worse() {
        for (kind, is_faulty, is_ok) in [
            (io::ErrorKind::BrokenPipe, false, true),
            (io::ErrorKind::StorageFull, false, false),
            (io::ErrorKind::StorageFull, true, true),
        ] {
            let mut telling = Telling::default();
            telling.note(Err(kind.into()));
            telling.note(Ok(()));
            assert_eq!(telling.end(is_faulty).is_ok(), is_ok, "{kind} {is_faulty}");
        }
    }
}
