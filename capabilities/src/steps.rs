//! Work in bounded steps, each in a separate transaction, so that other writers wait for one step only.

use larder_kernel::{Outcome, Result};

/// The steps so far.
#[derive(Debug, Default)]
pub(crate) struct Steps {
    changed: bool,
}

impl Steps {
    /// Runs a step as long as it returns true, which means that more may be left. If a step fails after
    /// another one, the outcome of the whole is unknown.
    pub(crate) async fn run<F>(&mut self, mut step: impl FnMut() -> F) -> Result<()>
    where
        F: Future<Output = Result<bool>>,
    {
        loop {
            match step().await {
                Ok(more) => {
                    self.changed = true;
                    if !more {
                        return Ok(());
                    }
                }
                Err(error) if self.changed => return Err(error.with_outcome(Outcome::Unknown)),
                Err(error) => return Err(error),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use larder_kernel::{Error, ErrorKind};

    use super::*;

    #[tokio::test]
    async fn a_failure_after_a_step_has_an_unknown_outcome() {
        let lost = || async {
            Err(Error::new(ErrorKind::Unavailable, "test", "lost").with_outcome(Outcome::NotApplied))
        };
        let mut steps = Steps::default();
        assert_eq!(steps.run(lost).await.unwrap_err().outcome(), Outcome::NotApplied);
        let mut left = 3;
        let three = || {
            left -= 1;
            std::future::ready(Ok(left > 0))
        };
        steps.run(three).await.unwrap();
        assert_eq!(left, 0);
        assert_eq!(steps.run(lost).await.unwrap_err().outcome(), Outcome::Unknown);
    }
}
