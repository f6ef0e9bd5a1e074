//! The folder of files that shows a run.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::{Report, badge, junit, page};

impl Report {
    /// Writes `report.json`, `junit.xml`, `report.html` and `badge-NAME.svg` for each backend into a folder.
    /// Creates the folder if it is missing, and returns the paths of the files.
    ///
    /// # Errors
    /// A sentence if a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>, String> {
        let cannot =
            |path: &Path, error: &dyn std::fmt::Display| format!("cannot write {}: {error}", path.display());
        std::fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
        let json =
            serde_json::to_string_pretty(self).map_err(|error| format!("cannot write JSON: {error}"))?;
        let mut files = vec![
            ("report.json".to_owned(), json + "\n"),
            ("junit.xml".to_owned(), junit::xml(self)?),
            ("report.html".to_owned(), page::html(self)),
        ];
        let mut names = BTreeSet::new();
        for standing in self.standings() {
            files.push((badge_name(&standing.backend, &mut names), badge::svg(self, &standing)));
        }
        let mut written = Vec::new();
        for (name, text) in files {
            let path = folder.join(name);
            std::fs::write(&path, text).map_err(|error| cannot(&path, &error))?;
            written.push(path);
        }
        Ok(written)
    }

    /// Returns the page `report.html`: the whole run in one self-contained file.
    #[must_use]
    pub fn to_html(&self) -> String {
        page::html(self)
    }

    /// Returns the file `junit.xml`.
    ///
    /// # Errors
    /// A sentence if it cannot be written.
    pub fn to_junit(&self) -> Result<String, String> {
        junit::xml(self)
    }
}

/// Returns a file name that every file system accepts and that no other backend of the run has.
fn badge_name(backend: &str, taken: &mut BTreeSet<String>) -> String {
    let plain = |char: char| if char.is_ascii_alphanumeric() || "-_.".contains(char) { char } else { '-' };
    let name: String = backend.chars().take(60).map(plain).collect();
    let mut unique = name.clone();
    let mut number = 2;
    // Some file systems ignore case.
    while !taken.insert(unique.to_ascii_lowercase()) {
        unique = format!("{name}-{number}");
        number += 1;
    }
    format!("badge-{unique}.svg")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_folder_gets_every_file_and_a_badge_for_each_backend() {
        let scratch = tempfile::tempdir().unwrap();
        let folder = scratch.path().join("a/b");
        let written = sample::everything().write(&folder).unwrap();
        let names: Vec<_> = written.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
        assert_eq!(names, ["report.json", "junit.xml", "report.html", "badge-mine.svg"]);
        for path in written {
            assert!(std::fs::metadata(&path).unwrap().len() > 300, "{}", path.display());
        }
        let file = folder.join("report.json");
        let line = sample::everything().write(&file).unwrap_err();
        assert!(line.starts_with("cannot write ") && line.contains("report.json"), "{line}");
    }

    #[test]
    fn badges_have_plain_and_unique_names() {
        let mut taken = BTreeSet::new();
        assert_eq!(badge_name("../a b", &mut taken), "badge-..-a-b.svg");
        assert_eq!(badge_name("..-A-b", &mut taken), "badge-..-A-b-2.svg");
        assert_eq!(badge_name("../a/b", &mut taken), "badge-..-a-b-3.svg");
    }
}
