//! Collects errors of printing and saving: they must not replace the finding that a server is wrong.

use std::io;

/// Collects failures to print or save, so that the rest can go on.
#[derive(Debug, Default)]
pub struct Telling {
    failed: Vec<io::Error>,
}

impl Telling {
    /// Notes the result of printing or saving. A broken pipe is no failure: a reader such as `head` has read what it wanted.
    pub fn note(&mut self, told: io::Result<()>) {
        self.failed.extend(told.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe));
    }

    /// Ends the output. If the outcome is a fault, that counts, and these failures are only printed.
    ///
    /// # Errors
    /// Something could not be printed or saved.
    pub fn end(self, is_faulty: bool) -> io::Result<()> {
        let texts: Vec<String> = self.failed.iter().map(ToString::to_string).collect();
        match texts.is_empty() {
            true => Ok(()),
            false if is_faulty => {
                texts.iter().for_each(|text| say!("allod-load: {text}"));
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
