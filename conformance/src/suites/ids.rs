//! Ids that backends are known to confuse, cut, fold or interpret as syntax.

/// The short ids, grouped by the defect that they provoke.
const SHORT: &[&str] = &[
    // Case, which collations and file systems fold, and one letter in two Unicode forms.
    "a",
    "A",
    "ab",
    "aB",
    "AB",
    "straße",
    "STRASSE",
    "strasse",
    "\u{e9}",
    "e\u{301}",
    "e",
    "E",
    "ﬁ",
    "fi",
    "ı",
    "i",
    "I",
    "İ",
    // Separators of composite keys, wildcards, braces and escapes.
    "a:b",
    "a/b",
    "a:",
    ":a",
    ":",
    "a|b",
    "a\u{1f}b",
    "a-b",
    "a_b",
    "a%b",
    "a*b",
    "%",
    "_",
    "*",
    "{}",
    "{a}",
    "?",
    "[",
    "]",
    "[a]",
    "[a-z]",
    "\\",
    "\\\\",
    "\\%",
    "a\\b",
    "%61",
    "%2F",
    "+",
    "~",
    "~1",
    "#",
    "&",
    "=",
    ".",
    "..",
    "../x",
    "./x",
    "/",
    "//",
    "/a",
    "a/",
    "a.b",
    "a..b",
    // Quotes, comments and literals of other languages.
    "'",
    "''",
    "\"",
    "\"\"",
    "`",
    "$$",
    "$1",
    "$tag$",
    ";",
    "--",
    "/*",
    "'; DROP TABLE messages; --",
    "${a}",
    "null",
    "NULL",
    "true",
    "0",
    "00",
    "1",
    "1.0",
    "1e0",
    "-1",
    "undefined",
    "{\"a\":1}",
    // Whitespace at either end, line ends and nonprinting characters.
    " ",
    "  ",
    " a",
    "a ",
    "\ta",
    "a\t",
    "a\n",
    "\n",
    "a\r\n",
    "\r",
    "\u{a0}",
    "\u{200b}",
    "a\u{200d}b",
    "\u{feff}a",
    "\u{1}",
    "\u{7f}",
    // Beyond the basic plane: UTF-8 and UTF-16 order these differently.
    "\u{1f980}",
    "\u{1f980}\u{fe0f}",
    "\u{ff5e}",
    "\u{10ffff}",
    "\u{fffd}",
    "\u{d7ff}",
    "\u{e000}",
    "日本",
    "עברית",
];

/// Returns ids that all differ and are all valid, in no particular order. Each names a separate item
/// (`STORE-003`).
///
/// They contain everything that some backend treats specially: case, Unicode form, separators of composite
/// keys, wildcards, quotes, escapes, whitespace, ids with a common prefix, and ids of the maximum length that
/// differ only in the last byte.
pub(crate) fn hostile() -> Vec<String> {
    let long = [
        // Ids of the maximum length that differ only in the last byte.
        format!("{}y", "x".repeat(511)),
        format!("{}z", "x".repeat(511)),
        "x".repeat(511),
        // Longer than the part of an identifier (63 bytes) or of a short index (255 bytes) that databases
        // keep.
        format!("{}1", "n".repeat(63)),
        format!("{}2", "n".repeat(63)),
        format!("{}1", "m".repeat(255)),
        format!("{}2", "m".repeat(255)),
        // The same with multi-byte characters.
        format!("{}a", "\u{1f980}".repeat(127)),
        format!("{}b", "\u{1f980}".repeat(127)),
    ];
    SHORT.iter().copied().map(str::to_owned).chain(long).collect()
}

/// Returns pairs that name different items, and that become equal if a backend joins or cuts the parts of a
/// composite key.
pub(crate) fn hostile_pairs() -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    for separator in
        [":", "/", "|", "\u{1f}", "\u{1}", "::", "-", "_", ".", ",", " ", "\n", "\\", "%", "*", "\u{10ffff}"]
    {
        pairs.push((format!("a{separator}b"), "c".to_owned()));
        pairs.push(("a".to_owned(), format!("b{separator}c")));
        pairs.push(("a".to_owned(), format!("{separator}b{separator}c")));
        pairs.push((format!("a{separator}"), format!("b{separator}c")));
    }
    let plain =
        [("a", "bc"), ("ab", "c"), ("a", "b"), ("b", "a"), ("A", "b"), ("a", "B"), ("a", "a"), ("b", "b")];
    pairs.extend(plain.map(|(first, second)| (first.to_owned(), second.to_owned())));
    pairs
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_hostile_id_is_allowed_and_differs_from_the_others() {
        let ids = hostile();
        for id in &ids {
            larder_kernel::SessionId::new(id).unwrap();
        }
        assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
        let pairs = hostile_pairs();
        assert_eq!(pairs.iter().collect::<BTreeSet<_>>().len(), pairs.len());
    }
}
