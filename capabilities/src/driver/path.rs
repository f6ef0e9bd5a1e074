//! The path in a URL of a file or folder.

use std::path::PathBuf;

use larder_kernel::Result;

use super::url::{BackendUrl, invalid_url};

impl BackendUrl<'_> {
    /// Returns the path of a file or folder: `scheme:relative`, `scheme:/absolute` or `scheme:///absolute`.
    /// `%` and two hexadecimal digits encode a byte.
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for an empty path, a host, a malformed escape, a NUL byte, or a path that
    /// is not UTF-8.
    pub fn path(&self) -> Result<PathBuf> {
        let path = match self.rest().strip_prefix("//") {
            None => self.rest(),
            Some(after) => {
                let (host, _) = after.split_at(after.find('/').unwrap_or(after.len()));
                if !host.is_empty() && host != "localhost" {
                    return Err(invalid_url(format!(
                        "names a host; write `{0}:./path` or `{0}:///absolute/path`",
                        self.scheme()
                    )));
                }
                after.get(host.len()..).unwrap_or_default()
            }
        };
        if path.is_empty() {
            return Err(invalid_url(format!(
                "has an empty path; write `{0}:./path` or `{0}:///absolute/path`",
                self.scheme()
            )));
        }
        decode(path).map(PathBuf::from)
    }
}

/// Replaces `%` and two hexadecimal digits with the byte that they encode.
fn decode(text: &str) -> Result<String> {
    let malformed =
        || invalid_url("has a `%` in its path without two hexadecimal digits after it; write `%` as `%25`");
    let mut decoded = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = char::from(bytes.next()?).to_digit(16)?;
            u8::try_from(digit).ok()
        };
        let (high, low) = (digit().ok_or_else(malformed)?, digit().ok_or_else(malformed)?);
        decoded.push((high << 4) | low);
    }
    if decoded.contains(&0) {
        return Err(invalid_url("has a NUL character in its path; remove it"));
    }
    String::from_utf8(decoded).map_err(|_| invalid_url("has a path that is not UTF-8; rename the file"))
}
