//! What the settings of every strategy are checked for.

use larder_kernel::{Error, Result, check};

use super::OPERATION;

/// Stands for "never", and for "nothing" where a strategy includes something.
pub(super) const OFF: i64 = -1;

pub(super) fn check_number(field: &'static str, written: Option<i64>, least: i64) -> Result<()> {
    match written {
        Some(number) if number < least => {
            let message = if least == OFF { "neither -1 nor a size" } else { "under the limit" };
            Err(Error::invalid(OPERATION, field, message)
                .with_context("actual", number)
                .with_context("least", least))
        }
        _ => Ok(()),
    }
}

pub(super) fn check_names(field: &'static str, names: Option<&[String]>) -> Result<()> {
    names.unwrap_or_default().iter().try_for_each(|name| check::at_least(OPERATION, field, name.len(), 1))
}
