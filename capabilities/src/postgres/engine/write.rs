//! The values that each write checks and sets.

/// The values that each write checks and sets in its own transaction, without another round trip.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Write {
    /// The format that the database must have.
    pub(crate) format: i64,
    /// The value of `synchronous_commit` that was read at opening, from which the declared durability
    /// follows. The default of the role or the database may change later.
    pub(crate) commit: &'static str,
}

/// The condition of a write with the parameters `format` and `commit` of [`Write`]. The setting ends with the
/// transaction, so a pooler does not carry it to other clients.
macro_rules! begin_write {
    ($format:literal, $commit:literal) => {
        concat!(
            "(SELECT larder.at_format($",
            $format,
            ") AND set_config('synchronous_commit', $",
            $commit,
            ", true) <> '')"
        )
    };
}
pub(crate) use begin_write;
