//! The workflow that the guide for authors of backends shows is one that GitHub can read. The rest of the guide is run by
//! `.ci/guide`.
#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::Path;

use yaml_rust2::YamlLoader;

#[test]
fn the_workflow_of_the_guide_is_whole() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/writing-a-backend.md");
    let page = fs::read_to_string(page).unwrap();
    let text = page.split("```yaml\n").nth(1).unwrap().split("```").next().unwrap();
    let documents = YamlLoader::load_from_str(text).unwrap();
    let workflow = &documents[0];
    assert!(workflow["on"]["push"].is_null(), "it runs on every push");
    assert_eq!(workflow["permissions"]["contents"].as_str(), Some("read"));

    let steps = workflow["jobs"]["suite"]["steps"].as_vec().unwrap();
    let all = |name: &'static str| steps.iter().filter_map(move |step| step[name].as_str());
    assert_eq!(all("uses").count() + all("run").count(), steps.len(), "each step does one thing");
    for action in all("uses") {
        let (_, version) = action.split_once('@').unwrap();
        let major = version.strip_prefix('v').is_some_and(|number| number.parse::<u32>().is_ok());
        assert!(major || version == "stable", "{action} is not pinned to a major version");
    }
    for command in all("run") {
        let shown = command.replace(" --release", "");
        assert!(page.contains(&format!("$ {shown}\n")), "the page does not run {shown:?}");
    }
}
