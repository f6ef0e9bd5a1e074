//! Uses of a session, and the removal of what it has outside its record.

use larder_kernel::{ErrorKind, Result, SessionId, Thread};

use super::record::Record;
use super::sessions::Sessions;
use super::state::Reader;

impl Sessions {
    /// Reads a session's record for use, which restarts the time to live of the session and its summary. Also
    /// returns the reader that keeps summaries as long as the session.
    pub(crate) async fn used(&self, operation: &'static str, id: &SessionId) -> Result<(Record, Reader)> {
        let record = self.records.touch(operation, id).await?;
        let mut reader = self.reader.clone();
        if let Some(ttl) = record.ttl() {
            reader.summaries = reader.summaries.with_ttl(ttl);
            reader.summaries.touch(&self.thread(id)).await?;
        }
        Ok((record, reader))
    }

    /// Removes the data that a deleted session has outside its record.
    pub(crate) async fn wipe(&self, id: &SessionId) -> Result<()> {
        let thread = self.thread(id);
        self.reader.history.clear(&thread, None).await?;
        self.reader.summaries.remove(&thread).await?;
        self.forget_knowledge(&thread).await
    }

    /// Checks after a write that the session still exists. If it was deleted during the write, the written
    /// data is removed.
    pub(crate) async fn check_still_there(&self, operation: &'static str, id: &SessionId) -> Result<()> {
        match self.used(operation, id).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::NotFound => {
                self.wipe(id).await?;
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a session's summaries from the collections that the configuration document searches.
    pub(crate) async fn forget_knowledge(&self, thread: &Thread) -> Result<()> {
        for base in &self.bases {
            base.forget(thread).await?;
        }
        Ok(())
    }
}
