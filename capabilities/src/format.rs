//! Format numbers.
//!
//! Everything stored carries a number that identifies the form of its bytes. A program that finds a newer
//! number returns `Unsupported` and changes nothing, so it cannot damage the data of a newer program.

use larder_kernel::{Error, ErrorKind, Outcome};

/// The supported formats of one kind of stored data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Formats {
    /// The object that carries the number, such as "the file".
    pub(crate) subject: &'static str,
    /// The target for an archive of data that is too old, such as "a new file".
    pub(crate) target: &'static str,
    /// The oldest format that this program reads or upgrades.
    pub(crate) oldest: i64,
    /// The format that this program writes.
    pub(crate) newest: i64,
}

impl Formats {
    /// Returns whether this program supports the format. Zero is data without a number.
    pub(crate) fn supports(&self, found: i64) -> bool {
        (self.oldest..=self.newest).contains(&found)
    }

    /// Returns an error if this program does not support the format. Zero is data without a number.
    pub(crate) fn check(&self, operation: &'static str, found: i64) -> Result<(), Error> {
        if self.supports(found) { Ok(()) } else { Err(self.refuse(operation, found)) }
    }

    /// Returns the error for data of a format that this program does not support.
    pub(crate) fn refuse(&self, operation: &'static str, found: i64) -> Error {
        Error::new(ErrorKind::Unsupported, operation, self.message(found))
            .with_outcome(Outcome::NotApplied)
            .with_context("format", found)
            .with_context("format_oldest_supported", self.oldest)
            .with_context("format_supported", self.newest)
    }

    /// Returns the message for data of a format that this program does not support.
    pub(crate) fn message(&self, found: i64) -> String {
        let Self { subject, target, oldest, newest } = self;
        if found > *newest {
            return format!(
                "{subject} has format {found}; this release supports up to format {newest} (use the release \
                 that wrote it or a later one, or move the data: `larder dump` with that release, then \
                 `larder load` into {target})"
            );
        }
        let number = if found > 0 { format!("format {found}") } else { "no format number".to_owned() };
        format!(
            "{subject} has {number}; the oldest supported format is {oldest} (write it to an archive with \
             `larder dump` of the release before, then read the archive with `larder load` into {target})"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unsupported_format_is_refused_with_both_numbers_and_the_way_out() {
        let formats = Formats { subject: "the file", target: "a new file", oldest: 3, newest: 5 };
        for found in 3..=5 {
            formats.check("test.open", found).unwrap();
        }
        let expected = [
            (0, "the file has no format number; the oldest supported format is 3"),
            (2, "the file has format 2; the oldest supported format is 3"),
            (6, "the file has format 6; this release supports up to format 5"),
        ];
        for (found, beginning) in expected {
            let error = formats.check("test.open", found).unwrap_err();
            assert_eq!((error.kind(), error.outcome()), (ErrorKind::Unsupported, Outcome::NotApplied));
            assert!(error.message().starts_with(beginning), "{error}");
            assert!(error.message().contains("`larder load` into a new file"), "{error}");
        }
    }
}
