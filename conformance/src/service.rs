//! The live services that backends are checked against, as `conformance/services` starts them.

/// One service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Service {
    /// Its name in reports and after `--require`.
    pub name: &'static str,
    /// Its script in `conformance/services`, and its name there.
    pub script: &'static str,
    /// The environment variable with its URL.
    pub variable: &'static str,
    /// The scheme of that URL.
    pub scheme: &'static str,
}

impl Service {
    const fn new(
        name: &'static str,
        script: &'static str,
        variable: &'static str,
        scheme: &'static str,
    ) -> Self {
        Self { name, script, variable, scheme }
    }
}

/// All of them, in the order of reports.
pub const SERVICES: [Service; 7] = [
    Service::new("postgres", "postgres", "LARDER_POSTGRES_URL", "postgres"),
    Service::new("redis", "redis", "LARDER_REDIS_URL", "redis"),
    Service::new("redis-cluster", "redis-cluster", "LARDER_REDIS_CLUSTER_URL", "redis+cluster"),
    Service::new("s3-garage", "garage", "LARDER_S3_GARAGE_URL", "s3"),
    Service::new("s3-s3s", "s3s", "LARDER_S3_S3S_URL", "s3"),
    Service::new("s3-moto", "moto", "LARDER_S3_MOTO_URL", "s3"),
    Service::new("age", "age", "LARDER_AGE_URL", "age"),
];
