//! The provenance of a release: an in-toto statement that names the commit, the parameters and the tools of the build. It contains no
//! times, so the same commit gives the same statement.
//!
//! Source: <https://slsa.dev/spec/v1.0/provenance>

use std::collections::BTreeMap;

use anyhow::Context;
use serde_json::{Value, json};

pub(super) const FILE: &str = "provenance.json";
pub(super) const PREDICATE: &str = "https://slsa.dev/provenance/v1";

/// What the statement says in addition to the checksums.
#[derive(Debug)]
pub(super) struct Build<'a> {
    pub(super) home: &'a str,
    pub(super) version: &'a str,
    pub(super) commit: &'a str,
    pub(super) registry: &'a str,
    pub(super) arch: &'a [&'a str],
    /// Cargo's profile of the programs.
    pub(super) profile: &'a str,
    /// Whether the release is for publication. Drafts and rehearsals must not be published.
    pub(super) published: bool,
    /// The digest of Cargo.lock.
    pub(super) lock: &'a str,
    /// The output of `rustc --version`.
    pub(super) rustc: &'a str,
}

/// Returns the statement. `subjects` contains the digests (`sha256:...`) of files and of artifacts for registries, by name.
pub(super) fn statement(build: &Build<'_>, subjects: &BTreeMap<String, String>) -> Value {
    let subjects: Vec<_> =
        subjects.iter().map(|(name, digest)| json!({ "name": name, "digest": sha256(digest) })).collect();
    let home = build.home;
    json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subjects,
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": format!("{home}/release/v1"),
                "externalParameters": {
                    "version": build.version,
                    "registry": build.registry,
                    "architectures": build.arch,
                    "forPublication": build.published,
                },
                "internalParameters": { "profile": build.profile },
                "resolvedDependencies": [
                    { "uri": format!("git+{home}"), "digest": { "gitCommit": build.commit } },
                    { "name": "Cargo.lock", "digest": sha256(build.lock) },
                    { "name": build.rustc },
                ],
            },
            // The build is level 1 of SLSA, because the command runs on the computer of a maintainer and not on a separate build platform.
            "runDetails": { "builder": { "id": format!("{home}/release/by-a-maintainer") } },
        },
    })
}

fn sha256(digest: &str) -> Value {
    json!({ "sha256": digest.trim_start_matches("sha256:") })
}

/// Returns the digests (`sha256:...`) of the subjects of a statement, by name.
pub(super) fn subjects(statement: &Value) -> anyhow::Result<BTreeMap<String, String>> {
    let list = statement.get("subject").and_then(Value::as_array).context("the statement has no subjects")?;
    let one = |subject: &Value| {
        let name = subject.get("name")?.as_str()?;
        let digest = subject.pointer("/digest/sha256")?.as_str()?;
        Some((name.to_owned(), format!("sha256:{digest}")))
    };
    let subjects = list.iter().map(|it| one(it).context("a subject lacks its name or its digest"));
    subjects.collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::{Build, PREDICATE, statement, subjects};

    #[test]
    fn statement_names_commit_tools_and_checksums() {
        let build = Build {
            home: "https://a.example",
            version: "0.2.0",
            commit: "4b1f3c3",
            registry: "registry.example",
            arch: &["amd64"],
            profile: "release",
            published: true,
            lock: "sha256:10c4",
            rustc: "rustc 1.95.0",
        };
        let files = BTreeMap::from([("NOTES.md".to_owned(), "sha256:5b".to_owned())]);
        let statement = statement(&build, &files);
        assert_eq!(statement["_type"], "https://in-toto.io/Statement/v1");
        assert_eq!(statement["predicateType"], PREDICATE);
        assert_eq!(statement["subject"][0]["digest"]["sha256"], "5b");
        let made = &statement["predicate"]["buildDefinition"];
        assert_eq!(made["resolvedDependencies"][0]["digest"]["gitCommit"], "4b1f3c3");
        assert_eq!(made["resolvedDependencies"][1]["digest"]["sha256"], "10c4");
        assert_eq!(made["externalParameters"]["architectures"], serde_json::json!(["amd64"]));
        assert_eq!(subjects(&statement).unwrap(), files);
        assert!(subjects(&serde_json::json!({ "subject": [{ "name": "a" }] })).is_err());
    }
}
