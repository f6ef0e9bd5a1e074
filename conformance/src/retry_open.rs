//! Retries for opening a backend on a machine that is briefly overloaded.

use larder_kernel::Result;

/// The number of attempts for an opening whose error is retryable.
const OPENINGS_MAX: u32 = 5;

/// Opens a backend, and retries if the error is retryable, so that a busy machine does not fail a test of the
/// store. Separate cases cover openings that must fail or must end in time.
pub async fn retry_open<T, F>(mut open: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let mut tries = 1;
    loop {
        match open().await {
            Err(error) if error.is_retryable() && tries < OPENINGS_MAX => tries += 1,
            opened => return opened,
        }
    }
}
