//! The failure of a command, which names the damaged data where the backend can find it.

use larder::Registry;
use larder::verify::Verified;
use larder_kernel::{Error, ErrorKind};

use crate::verify::line;

/// The maximum number of faults in a message.
const FAULTS_SHOWN: usize = 10;

/// The reason why a command failed.
#[derive(Debug)]
pub(crate) enum Trouble {
    /// An error of a store.
    Store(Error),
    /// Any other reason.
    Other(String),
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl From<String> for Trouble {
    fn from(text: String) -> Self {
        Self::Other(text)
    }
}

impl Trouble {
    /// Returns the message. If data is damaged, a verification of the backend finds its path or key, because
    /// an error names no stored data.
    pub(crate) async fn told(self, registry: &Registry, url: &str) -> String {
        let error = match self {
            Self::Other(text) => return text,
            Self::Store(error) => error,
        };
        if error.kind() != ErrorKind::Corrupt {
            return error.to_string();
        }
        let mut text = error.to_string();
        let Ok(Verified { faults, .. }) = registry.verify(url).await else { return text };
        for fault in faults.iter().take(FAULTS_SHOWN) {
            text.push_str(&format!("\n{}", line(fault).trim_end()));
        }
        if faults.len() > FAULTS_SHOWN {
            text.push_str(&format!("\n  {} more faults", faults.len() - FAULTS_SHOWN));
        }
        text.push_str("\n  (`larder verify` lists all; `larder dump --skip-damaged` leaves them out)");
        text
    }
}
