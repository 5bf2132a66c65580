//! All processes that a setting started end with the setting, no matter how it ends.

#![expect(clippy::expect_used, reason = "a test should panic on an unexpected result")]

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use adapter_conformance::sim::{Plan, Setting};

/// Time limit, longer than the clean-up takes even on a busy host.
const LIMIT: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(20);

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

fn have_ended(ids: Vec<String>) {
    for id in ids {
        // A zombie counts as ended.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    }
}

#[test]
fn no_process_outlives_its_setting() {
    let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let setting = Setting::start(&Plan { lanes: 1, ..Plan::default() }, parent).expect("starts");
    let folder = setting.params().parent().expect("a folder").to_owned();
    let ids = processes(&folder);
    // The processes: one adapter on the lane, one secured, two replicas, and the lease server.
    assert_eq!(ids.len(), 5, "{ids:?}");
    drop(setting);
    have_ended(ids);
    assert!(!folder.exists());
}

#[test]
fn ctrl_c_deletes_objects_and_ends_processes() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a folder");
    let mut run = Command::new(env!("CARGO_BIN_EXE_conformance-sim"))
        .args(["run", "--lanes", "1", "--folder"])
        .arg(folder.path())
        .args(["--", "--include", "LB-01", "--repeat", "1000", "--parallel", "2"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("is built");
    let mut lines = BufReader::new(run.stderr.take().expect("is piped")).lines();
    // Checks are running at this time.
    let passed = lines.by_ref().map(|line| line.expect("text")).find(|line| line.starts_with("ok "));
    assert!(passed.is_some_and(|line| line.contains("LB-01")));
    let ids = processes(folder.path());
    assert_eq!(ids.len(), 5, "{ids:?}");
    let reported = Command::new("kill").args(["-s", "INT", &run.id().to_string()]).status();
    assert!(reported.expect("kill").success());

    let code = ended(&mut run);
    let stderr: Vec<String> = lines.map(|line| line.expect("text")).collect();
    let mut out = String::new();
    run.stdout.take().expect("is piped").read_to_string(&mut out).expect("text");
    assert_eq!(code, Some(130), "{stderr:#?}\n{out}");
    assert!(out.contains("ended early\n"), "{out}");
    assert!(!out.contains("not deleted"), "{out}");
    assert!(!stderr.iter().any(|line| line.contains("panicked")), "{stderr:#?}");
    have_ended(ids);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 0, "files are left");
}

/// Waits for the exit code. The pipes keep the remaining output.
fn ended(child: &mut Child) -> Option<i32> {
    let mut waited = Duration::ZERO;
    loop {
        if let Some(status) = child.try_wait().expect("waits") {
            return status.code();
        }
        assert!(waited < LIMIT, "the process hangs");
        thread::sleep(TICK);
        waited += TICK;
    }
}
