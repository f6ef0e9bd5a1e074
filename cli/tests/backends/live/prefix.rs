//! The cases of key-value stores on Redis, as a user whose ACL allows one key prefix only.

use std::path::Path;
use std::sync::Arc;

use larder_conformance::RunOptions;
use libtest_mimic::Trial;
use redis::RedisResult;
use tokio::runtime::Runtime;

pub(super) const NAME: &str = "redis-key-prefix";
const SERVER: &str = "LARDER_REDIS_URL";

/// A user of the server, who exists until the value is dropped.
pub(super) struct User {
    server: String,
    name: String,
}

impl User {
    /// Creates the user on the server that the variable names. `None` if the variable is not set.
    pub(super) fn create() -> Option<RedisResult<Self>> {
        let server = std::env::var(SERVER).ok()?;
        let user = Self { server, name: format!("larder-prefix-{}", std::process::id()) };
        let own = user.prefix();
        let (keys, channels) = (format!("~{own}*"), format!("&{own}*"));
        let mut rules = redis::cmd("ACL");
        rules.arg("SETUSER").arg(&user.name).arg(&["reset", "on", ">canary", &keys]);
        rules.arg(&["resetchannels", &channels, "+@all", "-@admin", "+info", "+config|get"]);
        Some(user.ask(&rules).map(|()| user))
    }

    /// Returns the cases.
    pub(super) fn trials(&self, runtime: &Arc<Runtime>, scratch: &Path, options: &RunOptions) -> Vec<Trial> {
        let mut trials = super::of_url(NAME, &self.url(), runtime, scratch, options, true);
        // One trial says why the cases are missing.
        if trials.len() > 1 {
            trials.retain(|trial| trial.kind().starts_with("KV-"));
            assert!(trials.len() > 20, "only {} cases", trials.len());
        }
        trials
    }

    fn prefix(&self) -> String {
        format!("{}:", self.name)
    }

    fn url(&self) -> String {
        let (scheme, rest) = self.server.split_once("://").expect("a URL");
        let location = rest.rsplit_once('@').map_or(rest, |(_, location)| location);
        format!("{scheme}://{}:canary@{location}?key_prefix={}", self.name, self.prefix())
    }

    fn ask(&self, command: &redis::Cmd) -> RedisResult<()> {
        let mut server = redis::Client::open(self.server.as_str())?.get_connection()?;
        command.query(&mut server)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let removed = self.ask(redis::cmd("ACL").arg("DELUSER").arg(&self.name));
        removed.expect("the server removes the user");
    }
}
