//! What a setting starts ends with it.

use std::{fs, path::Path};

use conformance_sim::{Plan, Setting};

/// The IDs in the files of processes that others end.
fn processes(folder: &Path) -> Vec<String> {
    let mut ids = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            ids.extend(processes(&path));
        } else if path.extension().is_some_and(|extension| extension == "pid") {
            ids.push(fs::read_to_string(path).expect("an ID"));
        }
    }
    ids
}

#[test]
fn no_process_outlives_its_setting() {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let setting = Setting::start(&Plan { lanes: 1, ..Plan::default() }, parent).expect("starts");
    let folder = setting.params().parent().expect("a folder").to_owned();
    let ids = processes(&folder);
    // One of the lane, one secured, two replicas and what they elect their leader by.
    assert_eq!(ids.len(), 5, "{ids:?}");
    drop(setting);
    for id in ids {
        // A child that nobody waited for is a zombie: it has ended.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
    assert!(!folder.exists());
}
