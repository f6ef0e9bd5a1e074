//! Redaction of secrets in output.

const HIDDEN: &str = "***";
/// A query parameter whose name contains one of these is treated as a secret.
const SECRET_NAMES: [&str; 9] =
    ["pass", "pwd", "secret", "token", "key", "credential", "signature", "sig", "auth"];

/// Returns the URL without the user, the password and the values of query parameters that look like secrets.
/// The result is fit for a log.
///
/// For a malformed URL it hides too much rather than too little.
///
/// ```
/// use larder_capabilities::redact_url;
///
/// let url = "postgres://app:hunter2@db:5432/larder?sslmode=require&sslpassword=x";
/// assert_eq!(redact_url(url), "postgres://***@db:5432/larder?sslmode=require&sslpassword=***");
/// ```
#[must_use]
pub fn redact_url(url: &str) -> String {
    let (scheme, rest) = url.split_once(':').map_or(("", url), |(scheme, rest)| (scheme, rest));
    let (slashes, rest) = rest.strip_prefix("//").map_or(("", rest), |rest| ("//", rest));
    let mut shown = if url.contains(':') { format!("{scheme}:{slashes}") } else { String::new() };
    if scheme.contains('@') {
        return HIDDEN.to_owned();
    }
    let (authority, query) =
        rest.split_once('?').map_or((rest, None), |(authority, query)| (authority, Some(query)));
    match authority.rsplit_once('@') {
        Some((_, host)) => shown.extend([HIDDEN, "@", host]),
        // Either a query value contains the `@` or the password contains the `?`. The two cases look the
        // same.
        None if query.is_some_and(|query| query.contains('@')) => {
            shown.push_str(HIDDEN);
            return shown;
        }
        None => push_authority(&mut shown, authority, !slashes.is_empty()),
    }
    if let Some(query) = query {
        let pairs: Vec<String> = query.split('&').map(redact_pair).collect();
        shown.push('?');
        shown.push_str(&pairs.join("&"));
    }
    shown
}

/// A host followed by text that is not a port may be a user and a password without a host.
fn push_authority(shown: &mut String, authority: &str, has_host: bool) {
    let (host, path) = authority.split_at(authority.find(['/', '#']).unwrap_or(authority.len()));
    match host.split_once(':') {
        Some((name, port))
            if has_host && !host.starts_with('[') && !port.bytes().all(|byte| byte.is_ascii_digit()) =>
        {
            shown.extend([name, ":", HIDDEN]);
        }
        _ => shown.extend([host, path]),
    }
}

fn redact_pair(pair: &str) -> String {
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    // A name with escapes is hidden too: no legitimate URL needs one.
    let lower = name.to_ascii_lowercase();
    let secret = lower.contains('%') || SECRET_NAMES.iter().any(|word| lower.contains(word));
    match (name.contains(['@', '?', '#']), secret || value.contains(['@', '#', '?'])) {
        (true, _) => HIDDEN.to_owned(),
        (false, true) => format!("{name}={HIDDEN}"),
        (false, false) => pair.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_passwords_and_secret_parameters_are_hidden() {
        for (url, shown) in [
            ("sqlite:./larder.db?synchronous=full", "sqlite:./larder.db?synchronous=full"),
            ("file:///var/blobs", "file:///var/blobs"),
            ("memory:", "memory:"),
            ("redis://:s3cret@cache:6379/0", "redis://***@cache:6379/0"),
            ("redis://cache:6379/0", "redis://cache:6379/0"),
            ("redis://app:s3cret", "redis://app:***"),
            ("redis://[::1]:6379", "redis://[::1]:6379"),
            ("s3://b/p?region=x&secret_access_key=s3cret", "s3://b/p?region=x&secret_access_key=***"),
            ("s3://b?TOKEN=s3cret&a=b", "s3://b?TOKEN=***&a=b"),
            ("s3://b?%70assword=s3cret", "s3://b?%70assword=***"),
        ] {
            assert_eq!(redact_url(url), shown);
        }
    }

    #[test]
    fn a_malformed_url_shows_too_little_rather_than_too_much() {
        for url in [
            "postgres://u:s3/cret@host/db",
            "postgres://u:s3?cret@host/db",
            "postgres://u:s3#cret@host/db",
            "postgres://u:a@s3cret@host/db?x=1",
            "postgres:u:s3cret@host",
            "u@s3cret:x",
            "s3cret@host",
            "s3://b?secret=s3cret@x",
            "s3://u@b?a=1?password=s3cret",
            "s3://u@b?x=s3cret@y",
        ] {
            let shown = redact_url(url);
            assert!(!shown.contains("cret"), "{url} became {shown}");
        }
    }
}
