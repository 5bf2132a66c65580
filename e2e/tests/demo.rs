//! The demo, as a program sees it.

use std::process::Command;

use serde_json::{Value, from_str};

/// Each step passes, each line is an object, and the nodes cost what is promised.
#[test]
fn the_demo_passes_and_tells_it_line_by_line() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_demo")).args(["--once", "--json", "--nodes=20"]).output().unwrap();

    let (told, errors) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}: {told}\n{errors}", output.status);
    let lines: Vec<Value> = told.lines().map(|line| from_str(line).expect(line)).collect();
    let steps = |event| lines.iter().filter(move |line| line["event"] == event).map(|line| &line["step"]);
    let begun: Vec<_> = steps("step_begins").collect();
    assert!(begun.len() >= 8, "{begun:?}");
    assert_eq!(steps("step_passed").collect::<Vec<_>>(), begun);
    assert_eq!(steps("step_failed").count(), 0);
    let summary = lines.iter().find(|line| line["event"] == "summary").expect("a summary");
    assert_eq!(summary["passed"], true);
    assert_eq!(summary["steps"].as_array().map(Vec::len), Some(begun.len()));

    let cost = |step| {
        let passed = lines.iter().find(|line| line["event"] == "step_passed" && line["step"] == step);
        let cost = &passed.expect(step)["vendor_calls"];
        (cost["reads"].as_u64().unwrap(), cost["writes"].as_u64().unwrap())
    };
    let (reads, writes) = cost("nodes");
    assert!(reads <= 5 && writes == 0, "{reads} reads, {writes} writes");
    assert_eq!(cost("restart").1, 0);
}
