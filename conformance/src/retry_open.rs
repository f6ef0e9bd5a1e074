//! Opening a place on a machine that is busy for a moment.

use larder_kernel::Result;

/// How often an opening is tried whose error says that it may be tried again.
const OPENINGS_MAX: u32 = 5;

/// Opens, again where the error says so: what is judged is what stores do, not how busy the machine is on which they are
/// opened. Openings that must fail, or end in time, have cases of their own.
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
