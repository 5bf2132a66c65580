//! The API server's audit log: who wrote what. It proves that something was *not* written.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};

/// Tells the API server to record each write once, when it is answered, and no reads.
pub(crate) fn policy() -> Value {
    json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [
            { "level": "None", "verbs": ["get", "list", "watch"] },
            { "level": "Metadata" },
        ],
    })
}

/// One write request, successful or not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditWrite {
    /// Such as `system:serviceaccount:kube-system:node-controller`.
    pub user: String,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// Such as `nodes` or `nodes/status`.
    pub resource: String,
    /// Empty for what has none.
    pub namespace: String,
    /// Empty where the server was to choose it.
    pub name: String,
    /// The HTTP status that was answered.
    pub code: u16,
}

impl AuditWrite {
    /// Whether it only says that a process still works: one each two seconds, whatever else there is to do.
    pub fn keeps_a_lease(&self) -> bool {
        self.resource == "leases"
    }
}

/// A place in the log, in bytes: what comes after it is new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Reads the audit log of one control plane. The server writes a line before it answers, so the log is complete for
/// every request whose answer somebody has seen.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
    start: Mark,
}

impl AuditLog {
    /// What is written from now on.
    pub(crate) fn from_now(path: &Path) -> anyhow::Result<Self> {
        let mut this = Self { path: path.to_path_buf(), start: Mark::default() };
        this.start = this.mark()?;
        Ok(this)
    }

    /// All writes by users whose name begins with `user`.
    ///
    /// # Errors
    /// When the log cannot be read or is not what the policy orders.
    pub fn writes(&self, user: &str) -> anyhow::Result<Vec<AuditWrite>> {
        self.writes_since(self.start, user)
    }

    /// The same, of what came after the mark.
    ///
    /// # Errors
    /// When the log cannot be read or is not what the policy orders.
    pub fn writes_since(&self, mark: Mark, user: &str) -> anyhow::Result<Vec<AuditWrite>> {
        // Before our start they were another's.
        let text = self.text(mark.max(self.start))?;
        let writes = text.lines().map(parse).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(writes.into_iter().filter(|write| write.user.starts_with(user)).collect())
    }

    /// The end of the log as of now.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn mark(&self) -> anyhow::Result<Mark> {
        let length = u64::try_from(self.text(self.start)?.len()).context("the audit log is too long")?;
        Ok(Mark(self.start.0 + length))
    }

    /// The complete lines behind the mark.
    fn text(&self, mark: Mark) -> anyhow::Result<String> {
        let mut text = String::new();
        let read = File::open(&self.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(mark.0))?;
            file.read_to_string(&mut text)
        });
        read.with_context(|| format!("cannot read the audit log {}", self.path.display()))?;
        text.truncate(text.rfind('\n').map_or(0, |end| end + 1));
        Ok(text)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    #[serde(default)]
    object_ref: Object,
    #[serde(default)]
    response_status: Status,
}

#[derive(Deserialize)]
struct User {
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Status {
    code: u16,
}

fn parse(line: &str) -> anyhow::Result<AuditWrite> {
    let line: Line = serde_json::from_str(line).with_context(|| format!("not an audit line: {line}"))?;
    let Object { resource, subresource, namespace, name } = line.object_ref;
    Ok(AuditWrite {
        user: line.user.username,
        verb: line.verb,
        resource: if subresource.is_empty() { resource } else { format!("{resource}/{subresource}") },
        namespace,
        name,
        code: line.response_status.code,
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{AuditLog, parse};

    const LINE: &str = r#"{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete",
        "verb":"patch","user":{"username":"system:serviceaccount:kube-system:node-controller","groups":[]},
        "objectRef":{"resource":"nodes","name":"a","apiVersion":"v1","subresource":"status"},
        "responseStatus":{"metadata":{},"code":200}}"#;

    #[test]
    fn a_line_tells_who_wrote_what() {
        let write = parse(LINE).unwrap();
        assert_eq!(write.user, "system:serviceaccount:kube-system:node-controller");
        assert_eq!((write.verb.as_str(), write.resource.as_str()), ("patch", "nodes/status"));
        assert_eq!((write.name.as_str(), write.code), ("a", 200));
    }

    #[test]
    fn a_line_that_is_still_being_written_is_left_for_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let line = LINE.replace('\n', "");
        fs::write(&path, format!("{line}\n")).unwrap();
        let log = AuditLog::from_now(&path).unwrap();
        fs::write(&path, format!("{line}\n{line}\n{{\"kind\":")).unwrap();

        assert_eq!(log.writes("system:serviceaccount:").unwrap().len(), 1, "the first was there before");
        let mark = log.mark().unwrap();
        fs::write(&path, format!("{line}\n{line}\n{line}\n")).unwrap();
        assert_eq!(log.writes_since(mark, "").unwrap().len(), 1);
        assert!(log.writes("admin").unwrap().is_empty());
    }
}
