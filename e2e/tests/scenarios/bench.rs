//! A small run of the benchmark: it runs, and its counts hold at any size. Times are not checked here.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use serde_json::Value;

/// Each scenario by its name on the command line, with those of its targets that hold on any host and under any load.
const SCENARIOS: [(&str, &[&str]); 12] = [
    ("join", &["vendor calls for instances", "vendor writes except routes"]),
    ("growth", &[]),
    ("routes", &["calls that list routes, one listing per period"]),
    ("steady", &["vendor writes", "API-server writes", "vendor calls for instances and load balancers"]),
    ("not-ready", &["vendor writes", "vendor calls for instances and load balancers"]),
    ("one-more", &["member writes per load balancer"]),
    ("leave", &["member writes per load balancer", "members removed before the first Node object"]),
    ("crowd", &["vendor writes except routes (minimum: 3 per Service)"]),
    ("restart", &["vendor calls", "API-server writes"]),
    ("adapter-restart", &["vendor calls other than listings", "vendor writes", "API-server writes"]),
    ("throttled", &[]),
    (
        "replicas",
        &[
            "vendor writes (minimum: 3 per Service)",
            "kill -9 of one: load balancers created",
            "kill -9 of one: load balancers without a Service",
        ],
    ),
];

#[test]
fn a_small_benchmark_meets_its_counts_in_every_scenario() {
    let dir = tempfile::tempdir().unwrap();
    let json = dir.path().join("bench.json");
    let output = Command::new(env!("CARGO_BIN_EXE_bench-scale"))
        .args(["--nodes=50", "--services=10", "--members=20", "--seconds=10", "--json"])
        .arg(&json)
        .output()
        .unwrap();

    // Times and memory depend on the build and on the host.
    let (printed, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(matches!(output.status.code(), Some(0 | 1)), "{}: {printed}\n{errors}", output.status);
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
    assert!(printed.contains("## Targets") && printed.contains("| steady: 50 nodes"), "{printed}");
}

#[test]
fn invalid_result_files_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("wrong.json");
    fs::write(&wrong, "{}").unwrap();
    for (file, said) in [(wrong, "is not a result of"), (dir.path().join("none.json"), "cannot read")] {
        let output =
            Command::new(env!("CARGO_BIN_EXE_bench-scale")).arg("--write-docs").arg(&file).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(errors.contains(said) && errors.contains(&*file.to_string_lossy()), "{errors}");
    }
}
