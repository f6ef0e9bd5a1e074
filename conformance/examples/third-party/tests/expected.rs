//! The suite reports exactly the missing methods and the false claims of the two backends.

use std::path::Path;
use std::process::Command;

/// With `LARDER_WRITE_EXPECTED=1`, writes `expected.txt` instead of comparing with it.
#[test]
fn the_suite_names_exactly_what_the_examples_break() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("expected.txt");
    let ended = Command::new(env!("CARGO_BIN_EXE_third-party")).output().expect("the program starts");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    let printed = String::from_utf8(ended.stdout).expect("UTF-8");
    if std::env::var_os("LARDER_WRITE_EXPECTED").is_some() {
        return std::fs::write(path, printed).expect("the file is written");
    }
    let expected = std::fs::read_to_string(path).expect("the file is read");
    for (line, (printed, expected)) in printed.lines().zip(expected.lines()).enumerate() {
        assert_eq!(printed, expected, "line {} of expected.txt", line + 1);
    }
    assert_eq!(printed.lines().count(), expected.lines().count(), "the lines of expected.txt");
}
