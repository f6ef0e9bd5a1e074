//! The report's page in a real browser: clicks, typing and rendering. Screenshots remain in `target/tmp`.
#![allow(clippy::expect_used, clippy::unwrap_used, clippy::panic)]

mod chromium;
mod sample;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use serde_json::json;

use self::chromium::Page;

/// A page to open.
struct Opened {
    browser: PathBuf,
    file: PathBuf,
}

impl Opened {
    fn page(&self) -> Page {
        Page::open(&self.browser, &self.file)
    }
}

type Test = fn(&Opened);

/// The page that most tests open.
static FILE: OnceLock<PathBuf> = OnceLock::new();

pub(crate) fn group(arguments: &Arguments) -> bool {
    let mut arguments = arguments.clone();
    // Each test starts a separate browser.
    arguments.test_threads = Some(1);
    let tests: [(&str, Test); 6] = [
        ("the_page_needs_nothing_outside_itself_and_what_stores_answer_stays_text", is_whole),
        ("the_filter_box_narrows_the_rows", filter_narrows),
        ("a_cell_opens_what_stands_behind_it_with_the_command_that_runs_it_again", cell_opens),
        ("the_matrix_is_walked_by_keys", walked_by_keys),
        ("it_fits_a_phone_and_a_desk_in_light_and_dark", fits),
        ("names_and_roles_are_there_for_those_who_do_not_see_it", is_named),
    ];
    let browser = browser();
    let trial = |(name, test): (&'static str, Test)| {
        let browser = browser.clone();
        Trial::ignorable_test(name, move || match browser {
            Ok(browser) => {
                let file = FILE.get_or_init(|| page("failing", false)).clone();
                test(&Opened { browser, file });
                Ok(Completion::Completed)
            }
            Err(reason) if std::env::var_os("CI").is_some() => Err(Failed::from(reason)),
            Err(reason) => Ok(Completion::ignored_with(reason)),
        })
    };
    crate::groups::run("browser", &arguments, tests.map(trial).into())
}

/// Returns the browser that `conformance/browser/install` finds. `cargo larder test` installs one first if it
/// is missing.
fn browser() -> Result<PathBuf, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../conformance/browser/install");
    let found = Command::new(&script).arg("--find").stderr(Stdio::null()).output();
    let found = found.map_err(|error| format!("cannot run {}: {error}", script.display()))?;
    let path = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    match found.status.success() && !path.is_empty() {
        true => Ok(PathBuf::from(path)),
        false => Err("no Chromium here: conformance/browser/install".to_owned()),
    }
}

/// Writes a report with its page.
fn page(name: &str, sound: bool) -> PathBuf {
    let file = pictures().join(format!("report-{name}/report.html"));
    let report = sample::report(sound);
    report.write(file.parent().unwrap()).unwrap();
    file
}

fn pictures() -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
}

const ROWS: &str = "document.querySelectorAll('#matrix tr.row:not([hidden])').length";

fn is_whole(opened: &Opened) {
    let mut page = opened.page();
    assert_eq!(page.events("Runtime.exceptionThrown"), Vec::<&serde_json::Value>::new());
    assert_eq!(page.events("Log.entryAdded"), Vec::<&serde_json::Value>::new());
    let wanted = page.events("Network.requestWillBeSent");
    let urls: Vec<&str> =
        wanted.iter().map(|event| event["params"]["request"]["url"].as_str().unwrap()).collect();
    assert!(urls.iter().all(|url| url.starts_with("file://")) && urls.len() == 1, "{urls:?}");
    // The page shows a store's reply as text and does not run it.
    let title = page.value("document.title");
    assert!(title.as_str().unwrap().ends_with("Larder conformance"), "{title}");
    assert_eq!(page.value("document.images.length + document.scripts.length"), 2);
    let shown = page.value("document.querySelector('#problems').textContent");
    assert!(shown.as_str().unwrap().contains(sample::HOSTILE), "{shown}");
}

fn filter_narrows(opened: &Opened) {
    let mut page = opened.page();
    page.look(1440, 900, "light");
    let all = page.value(ROWS).as_u64().unwrap();
    assert_eq!(all, u64::try_from(larder_conformance::clauses().len()).unwrap());
    page.click("#filter");
    page.write("blob-00");
    page.until(&format!(
        "{ROWS} === [...document.querySelectorAll('#matrix tr.row')].filter(row => \
                         row.id.startsWith('BLOB-00')).length"
    ));
    let some = page.value(ROWS).as_u64().unwrap();
    assert!(some > 3 && some < 20, "{some}");
    let groups = "[...document.querySelectorAll('#matrix tbody:not([hidden])')].length";
    assert_eq!(page.value(groups), 1);
    let count = page.value("document.querySelector('#shown').textContent");
    assert_eq!(count, json!(format!("{some} of {all} clauses")));
    page.write(" no such words");
    assert_eq!(page.value(ROWS), 0);
    page.press("Escape");
    assert_eq!(page.value(ROWS), all);
    // By outcome, and by words and outcome together.
    page.click(".choices label:has([value='.waived'])");
    assert_eq!(
        page.value(
            "[...document.querySelectorAll('#matrix tr.row:not([hidden])')].map(row => row.id).join()"
        ),
        "BLOB-004"
    );
    page.click(".choices label:has([value='.failed, .error'])");
    let failed = page.value(ROWS).as_u64().unwrap();
    assert!((4..=6).contains(&failed), "{failed}");
    page.press("/");
    page.click("#filter");
    page.write("KV-009");
    assert_eq!(page.value(ROWS), 1);
    page.press("Escape");
    page.click(".choices label:has([value=all])");
    // A contract can be collapsed.
    page.click("#matrix tbody:nth-of-type(2) tr.group button");
    let folded = page.value(ROWS).as_u64().unwrap();
    assert!(folded < all - 20, "{folded} of {all}");
    assert_eq!(page.value("document.querySelectorAll('#matrix [aria-expanded=false]').length"), 1);
}

fn cell_opens(opened: &Opened) {
    let mut page = opened.page();
    page.look(1440, 900, "light");
    assert_eq!(page.value("document.querySelector('dialog').open"), false);
    page.click("#matrix tr[id='KV-009'] button.failed");
    page.until("document.querySelector('dialog').open");
    let text = page.value("document.querySelector('dialog').innerText").as_str().unwrap().to_owned();
    let sentence =
        larder_conformance::clauses().into_iter().find(|clause| clause.id == "KV-009").unwrap().sentence;
    for part in [
        "KV-009 on redis",
        sentence.as_str(),
        "✗ failed",
        "the count after 4 writers of 25 steps each: 100",
        sample::HOSTILE,
        "cargo larder-full check --live --filter key_value.",
        "--seed 1",
        " ms",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    assert_eq!(page.value("document.querySelectorAll('dialog img, dialog script').length"), 0);
    assert_eq!(page.value("location.hash"), "#KV-009@redis");
    page.picture(&pictures().join("report-cell-light-1440.png"));
    page.press("Escape");
    page.until("!document.querySelector('dialog').open");
    // The focus is where it was before.
    let label = "document.activeElement.getAttribute('aria-label')";
    assert_eq!(page.value(label), "KV-009 on redis: failed");
    // A waiver shows its reason and expiry date. The findings of a level are listed with the clause's cases.
    page.click("#matrix tr[id='BLOB-004'] button.waived");
    let text = page.value("document.querySelector('dialog').innerText").as_str().unwrap().to_owned();
    for part in [
        "BLOB-004 on s3-s3s",
        "~ waived",
        "until 2027-06-30: s3s-fs 0.14.1",
        "--level concurrent --seed 4711",
    ] {
        assert!(text.contains(part), "no {part:?} in {text}");
    }
    page.look(390, 844, "dark");
    page.picture(&pictures().join("report-cell-dark-390.png"));
    page.click("dialog .close");
    page.until("!document.querySelector('dialog').open");
    // A link leads to a cell.
    page.value("location.hash = '#GRAPH-020@age'");
    page.until("document.querySelector('dialog').open");
    let title = page.value("document.querySelector('dialog h2').textContent");
    assert_eq!(title, "GRAPH-020 on age");
}

fn walked_by_keys(opened: &Opened) {
    let mut page = opened.page();
    page.look(1440, 900, "light");
    // The whole matrix is one stop of the Tab key.
    assert_eq!(page.value("document.querySelectorAll(\"#matrix td.cell [tabindex='0']\").length"), 1);
    page.value("document.querySelector(\"#matrix td.cell [tabindex='0']\").focus()");
    let label = "document.activeElement.getAttribute('aria-label')";
    assert_eq!(page.value(label), "STORE-001 on memory: passed");
    page.press("ArrowRight");
    assert_eq!(page.value(label), "STORE-001 on sqlite: passed");
    page.press("ArrowDown");
    assert_eq!(page.value(label), "STORE-002 on sqlite: passed");
    page.press("ArrowLeft");
    page.press("ArrowUp");
    page.press("ArrowUp");
    assert_eq!(page.value(label), "STORE-001 on memory: passed");
    page.press("Enter");
    page.until("document.querySelector('dialog').open");
    page.press("Escape");
    page.until("!document.querySelector('dialog').open");
    assert_eq!(page.value(label), "STORE-001 on memory: passed");
    page.press("/");
    assert_eq!(page.value("document.activeElement.id + document.activeElement.value"), "filter");
}

fn fits(opened: &Opened) {
    let sound = Opened { browser: opened.browser.clone(), file: page("sound", true) };
    for (name, opened) in [("failing", opened), ("sound", &sound)] {
        let mut page = opened.page();
        let mut backs = Vec::new();
        for scheme in ["light", "dark"] {
            for (width, height) in [(1440, 900), (390, 844)] {
                page.look(width, height, scheme);
                // Nothing extends past the right edge, so the page needs no horizontal scrolling.
                let reach = page.value("document.documentElement.scrollWidth").as_u64().unwrap();
                assert!(reach <= u64::from(width), "{name}: {reach} px in a window of {width}");
                let cut = "(() => { const box = document.querySelector('#matrix \
                           .scroll').getBoundingClientRect(); \
                           return document.querySelector('#matrix table').getBoundingClientRect().right - \
                           box.right; })()";
                assert!(page.value(cut).as_f64().unwrap() <= 1.0, "{name}: the matrix is cut at {width} px");
                for (part, place) in
                    [("top", "body"), ("matrix", "#matrix"), ("levels", "#levels"), ("latency", "#latency")]
                {
                    page.value(&format!(
                        "document.querySelector('{place}').scrollIntoView({{behavior: 'instant'}})"
                    ));
                    page.picture(&pictures().join(format!("report-{name}-{part}-{scheme}-{width}.png")));
                }
            }
            backs.push(page.value("getComputedStyle(document.body).backgroundColor"));
            assert!(contrast(&mut page) >= 4.5, "text in {scheme} is hard to read");
        }
        assert_ne!(backs[0], backs[1]);
    }
}

/// Returns the least contrast between text and background among the symbols, by the formula of WCAG 2.
fn contrast(page: &mut Page) -> f64 {
    let least = page.value(
        "(() => { const parts = text => text.match(/[\\d.]+/g).map(Number); \
         const light = text => { const [r, g, b] = parts(text).map(v => { v /= 255; return v <= .04045 ? v / \
         12.92 : ((v + .055) / 1.055) ** 2.4; }); \
         return .2126 * r + .7152 * g + .0722 * b; }; \
         return Math.min(...[...document.querySelectorAll('td.cell button, .tag, .chip:not(.not_run), \
         .legend i[class]')].map(part => { \
         const style = getComputedStyle(part); const a = light(style.color), b = \
         light(style.backgroundColor); \
         return (Math.max(a, b) + .05) / (Math.min(a, b) + .05); })); })()",
    );
    least.as_f64().unwrap()
}

fn is_named(opened: &Opened) {
    let mut page = opened.page();
    page.call("Accessibility.enable", json!({}));
    let tree = page.call("Accessibility.getFullAXTree", json!({}));
    let nodes = tree["nodes"].as_array().unwrap();
    let named = |role: &str, name: &str| {
        nodes.iter().any(|node| {
            node["role"]["value"] == role
                && node["name"]["value"].as_str().is_some_and(|own| own.contains(name))
        })
    };
    for (role, name) in [
        ("heading", "Proven levels of each backend"),
        ("navigation", "Sections"),
        ("searchbox", "Show only clauses that contain"),
        ("button", "KV-009 on redis: failed"),
        ("columnheader", "s3-garage"),
        ("rowheader", "HIST-001"),
        ("radio", "Waived"),
        ("status", ""),
    ] {
        assert!(named(role, name), "no {role} named {name:?}");
    }
    let nameless = nodes.iter().filter(|node| {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        let ignored = node["ignored"] == true;
        !ignored
            && ["button", "link", "searchbox", "radio"].contains(&role)
            && node["name"]["value"].as_str().unwrap_or_default().is_empty()
    });
    assert_eq!(nameless.count(), 0);
    assert_eq!(page.value("document.documentElement.lang"), "en");
}
