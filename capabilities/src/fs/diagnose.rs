//! The diagnosis of a folder of blobs.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use super::config::FsConfig;
use super::format::{self, FORMAT};
use crate::diagnose::{Check, Findings, disk, round_trip};
use crate::files::is_volatile;

const THERE: &str = "this folder contains all data";
const WRITABLE: &str = "the stores write to the folder";
const LEFTOVERS: &str = "files that ended processes left behind use space until the next opening removes \
                         them";
const FORMATS: &str = "a folder of another format is refused and not changed";
const DURABLE: &str = "determines what an acknowledged write survives";
/// The age from which a temporary file counts as a leftover.
const LEFTOVER_AGE: Duration = Duration::from_secs(3600);
/// The maximum number of files that the check examines. Leftovers are few, and the check must be short.
const LEFTOVERS_MAX: usize = 10_000;
const READS: u32 = 5;
const READ_SLOW: Duration = Duration::from_millis(20);

/// Diagnoses the folder without creating it.
pub(crate) async fn diagnose(config: &FsConfig, findings: &Findings) {
    let (root, looking) = (config.root.clone(), findings.clone());
    // A step that hangs in the system blocks only its thread; the caller still gets its result in time.
    if tokio::task::spawn_blocking(move || look(&root, &looking)).await.is_err() {
        findings.add(Check::fail("reach", "the check of the folder did not complete", THERE, "run it again"));
    }
}

fn look(root: &Path, findings: &Findings) {
    match std::fs::metadata(root) {
        Ok(found) if found.is_dir() => findings.add(Check::ok("reach", "the folder exists", THERE)),
        Ok(_) => {
            let advice = "name a folder, or move the other file away";
            findings.add(Check::fail("reach", "the path is not a folder", THERE, advice));
            return;
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            absent(root, findings);
            return;
        }
        Err(error) => {
            let advice = "check the permissions of the parent folders, and that the disk is mounted";
            let seen = format!("the folder cannot be read: {}", error.kind());
            findings.add(Check::fail("reach", seen, THERE, advice));
            return;
        }
    }
    findings.add(format_check(root));
    if disk::may_write(root) {
        findings.add(Check::ok("writable", "this user can write", WRITABLE));
        findings.add(disk::flushing(root));
    } else {
        let advice = "grant this user write permission, or mount the file system for writing";
        findings.add(Check::fail("writable", "this user cannot write", WRITABLE, advice));
    }
    if let Ok(check) = disk::rights(root) {
        findings.add(check);
    }
    disk::file_system(root, findings);
    findings.add(disk::identities(root));
    let survives = "power loss if the disk flushes: each blob and its folders are flushed before the write \
                    is acknowledged";
    findings.add(if is_volatile(root) {
        disk::volatile(DURABLE)
    } else {
        Check::ok("durability", survives, DURABLE)
    });
    leftovers(root, findings);
    let reads = (0..READS).filter_map(|_| {
        let begun = Instant::now();
        std::fs::read_dir(root).ok()?.next();
        Some(begun.elapsed())
    });
    if let Some(check) = round_trip(reads.collect(), READ_SLOW) {
        findings.add(check);
    }
}

fn format_check(root: &Path) -> Check {
    let (name, formats) = ("format", format::formats(FORMAT));
    match format::number(root) {
        Ok(Some(Ok(found))) => match formats.check("blobs.diagnose", found) {
            Ok(()) => Check::ok(name, format!("format number {found}"), FORMATS),
            Err(error) => {
                Check::fail(name, format!("format number {found}"), FORMATS, error.message().to_owned())
            }
        },
        Ok(None) => {
            let advice = "nothing: opening creates it";
            Check::warn(name, "no format number yet", FORMATS, advice)
        }
        Ok(Some(Err(error))) => {
            Check::fail(name, "a damaged format number", FORMATS, error.message().to_owned())
        }
        Err(error) => {
            let seen = format!("the format number cannot be read: {}", error.kind());
            Check::fail(name, seen, FORMATS, "check the rights of the folder `.larder`")
        }
    }
}

/// Checks whether the missing folder can be created: its nearest existing ancestor must be writable for this
/// user.
fn absent(root: &Path, findings: &Findings) {
    let above = root.ancestors().skip(1).find(|folder| folder.as_os_str().is_empty() || folder.exists());
    let above = above.filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if disk::may_write(above) {
        let advice = "nothing if it is new, because opening creates the folder; otherwise check the path";
        findings.add(Check::warn("reach", "the folder does not exist yet", THERE, advice));
    } else {
        let advice = "create the folder, or grant this user write permission for its parent";
        findings.add(Check::fail(
            "reach",
            "the folder does not exist, and this user cannot create it",
            THERE,
            advice,
        ));
    }
    disk::file_system(above, findings);
}

fn leftovers(root: &Path, findings: &Findings) {
    let names =
        |folder: &str| std::fs::read_dir(root.join(".larder").join(folder)).into_iter().flatten().flatten();
    let now = SystemTime::now();
    let is_old = |entry: &std::fs::DirEntry| {
        let changed = entry.metadata().and_then(|found| found.modified());
        changed.is_ok_and(|at| now.duration_since(at).unwrap_or_default() >= LEFTOVER_AGE)
    };
    let temporary = names("tmp").take(LEFTOVERS_MAX).filter(is_old).count();
    let discarded = names("trash").take(LEFTOVERS_MAX).count();
    let seen =
        format!("{temporary} temporary files over an hour old, {discarded} folders of unfinished erasures");
    findings.add(if temporary + discarded == 0 {
        Check::ok("leftovers", seen, LEFTOVERS)
    } else {
        Check::warn("leftovers", seen, LEFTOVERS, "open the folder once with any program, which removes them")
    });
}
