//! The benchmark, small: that it runs, and that its counts are what they must be at any size. Its times are not judged here.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

/// Its name on the command line, and those of its targets that hold on any machine, whatever else it does.
const SCENARIOS: [(&str, &[&str]); 12] = [
    ("join", &["vendor calls about machines", "vendor writes beside routes"]),
    ("growth", &[]),
    ("routes", &["calls that list them, one listing a period"]),
    ("steady", &["vendor writes", "API-server writes", "vendor calls about machines and load balancers"]),
    ("not-ready", &["vendor writes", "vendor calls about machines and load balancers"]),
    ("one-more", &["member writes a load balancer"]),
    ("leave", &["member writes a load balancer", "members are gone, before the first Node object is"]),
    ("crowd", &["vendor writes beside routes, three each being the least"]),
    ("restart", &["vendor calls", "API-server writes"]),
    ("adapter-restart", &["vendor calls that are no listing", "vendor writes", "API-server writes"]),
    ("throttled", &[]),
    (
        "replicas",
        &[
            "vendor writes, three a Service being the least",
            "kill -9 of one: load balancers made",
            "kill -9 of one: load balancers of no Service",
        ],
    ),
];

#[test]
fn a_small_benchmark_measures_every_scenario_and_its_counts_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("bench.json");
    let output = Command::new(env!("CARGO_BIN_EXE_bench-scale"))
        .args(["--nodes=50", "--services=10", "--members=20", "--seconds=10", "--json"])
        .arg(&json)
        .output()
        .unwrap();

    // Whether times and memory are as promised depends on the build and on the machine.
    let (told, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {told}\n{errors}", output.status);
    let report: Value = serde_json::from_str(&fs::read_to_string(&json).expect(&errors)).unwrap();
    let rows = report["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| row["scenario"].as_str().unwrap()).collect();
    assert_eq!(names, SCENARIOS.map(|(name, _)| name), "{errors}");
    for (row, (name, kept)) in rows.iter().zip(SCENARIOS) {
        assert_eq!(row["failed"], Value::Null, "{name}");
        let targets: BTreeMap<_, _> =
            row["targets"].as_array().unwrap().iter().map(|it| (it["what"].as_str().unwrap(), it)).collect();
        for what in kept {
            assert_eq!(targets[what]["met"], true, "{name}: {}", targets[what]);
        }
    }
    let steady = rows.iter().find(|row| row["scenario"] == "steady").unwrap();
    let processes = steady["spent"]["processes"].as_object().unwrap();
    assert_eq!(processes.len(), 4);
    assert!(processes.values().all(|usage| usage["peak_mib"].as_f64().unwrap() > 1.0), "{processes:?}");
    assert!(told.contains("vendor calls in"), "{told}");
}

#[test]
fn wrong_files_of_results_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("wrong.json");
    fs::write(&wrong, "{}").unwrap();
    for (file, said) in [(wrong, "is no result of"), (dir.path().join("none.json"), "cannot read")] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_bench-scale")).arg("--write-docs").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said) && errors.contains(&*file.to_string_lossy()), "{errors}");
    }
}
