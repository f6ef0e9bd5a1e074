//! The configuration of a database with AGE.

use larder_kernel::{Error, Result};

use crate::postgres::PostgresConfig;

/// The location and settings of a database with AGE. `Debug` hides the password.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct AgeConfig {
    /// The settings, as for any Postgres database.
    pub postgres: PostgresConfig,
}

impl AgeConfig {
    /// Reads a URL: `age://user:password@host:port/database?parameter=value`, with the parameters of
    /// [`PostgresConfig::from_url`].
    ///
    /// # Errors
    /// `InvalidInput` naming `url` for a malformed URL, an unknown parameter or a value out of range.
    pub fn from_url(url: &str) -> Result<Self> {
        let rest = url
            .split_once("://")
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("age"))
            .map(|(_, rest)| rest)
            .ok_or_else(|| Error::invalid("age.config", "url", "is not an `age://` URL"))?;
        let postgres = PostgresConfig::from_url(&format!("postgres://{rest}"))
            .map_err(|error| error.in_operation("age.config"))?;
        Ok(Self { postgres })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_those_of_postgres() {
        let config = AgeConfig::from_url("AGE://u:s3cret@localhost/x?pool_size=3").unwrap();
        assert_eq!(config.postgres.pool_size, 3);
        assert!(!format!("{config:?}").contains("s3cret"));
        for url in ["postgres://u@h/x", "age:s3cret", "age://u@h/x?a=s3cret", "age://u:s3cret@h:port/x"] {
            let error = AgeConfig::from_url(url).unwrap_err();
            assert_eq!(error.field(), Some("url"), "{url}");
            assert!(!format!("{error:?}").contains("s3cret"), "{url}");
        }
    }
}
