//! The API server's audit log, which shows what each user wrote. With this log, tests prove that something was *not* written.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::Deserialize;
use serde_json::{Value, json};

/// The audit policy. The API server records each write once, when it is answered, and records no reads.
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
    /// The user, such as `system:serviceaccount:kube-system:node-controller`.
    pub user: String,
    /// The verb: `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// The resource, such as `nodes` or `nodes/status`.
    pub resource: String,
    /// The namespace; empty for resources without one.
    pub namespace: String,
    /// The object's name; empty if the server generates it.
    pub name: String,
    /// The HTTP status of the answer.
    pub code: u16,
}

impl AuditWrite {
    /// Whether the write renews a Lease, which each process does every two seconds.
    pub fn keeps_a_lease(&self) -> bool {
        self.resource == "leases"
    }
}

/// A position in the log, in bytes; lines after it are new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mark(u64);

/// Reads the audit log of one control plane. The server writes a line before it answers a request. So the log contains every request whose
/// answer a client has received.
#[derive(Clone, Debug)]
pub struct AuditLog {
    path: PathBuf,
    start: Mark,
}

impl AuditLog {
    /// The log from its current end onwards.
    pub(crate) fn from_now(path: &Path) -> anyhow::Result<Self> {
        let mut this = Self { path: path.to_path_buf(), start: Mark::default() };
        this.start = this.mark()?;
        Ok(this)
    }

    /// All writes by users whose name begins with `user`.
    pub fn writes(&self, user: &str) -> anyhow::Result<Vec<AuditWrite>> {
        self.writes_since(self.start, user)
    }

    /// All writes after the mark by users whose name begins with `user`.
    pub fn writes_since(&self, mark: Mark, user: &str) -> anyhow::Result<Vec<AuditWrite>> {
        // Lines before the start of this log come from an earlier scenario on this control plane.
        let text = self.text(mark.max(self.start))?;
        let writes = text.lines().map(parse).collect::<anyhow::Result<Vec<_>>>()?;
        Ok(writes.into_iter().filter(|write| write.user.starts_with(user)).collect())
    }

    /// The current end of the log.
    pub fn mark(&self) -> anyhow::Result<Mark> {
        let length = u64::try_from(self.text(self.start)?.len()).context("the audit log is too long")?;
        Ok(Mark(self.start.0 + length))
    }

    /// The complete lines after the mark.
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
    let line: Line = serde_json::from_str(line).with_context(|| format!("invalid audit line: {line}"))?;
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
    fn audit_line_has_user_and_object() {
        let write = parse(LINE).unwrap();
        assert_eq!(write.user, "system:serviceaccount:kube-system:node-controller");
        assert_eq!((write.verb.as_str(), write.resource.as_str()), ("patch", "nodes/status"));
        assert_eq!((write.name.as_str(), write.code), ("a", 200));
    }

    #[test]
    fn incomplete_audit_line_is_read_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("audit.log");
        let line = LINE.replace('\n', "");
        fs::write(&path, format!("{line}\n")).unwrap();
        let log = AuditLog::from_now(&path).unwrap();
        fs::write(&path, format!("{line}\n{line}\n{{\"kind\":")).unwrap();

        assert_eq!(
            log.writes("system:serviceaccount:").unwrap().len(),
            1,
            "the first line was \
             written before the mark"
        );
        let mark = log.mark().unwrap();
        fs::write(&path, format!("{line}\n{line}\n{line}\n")).unwrap();
        assert_eq!(log.writes_since(mark, "").unwrap().len(), 1);
        assert!(log.writes("admin").unwrap().is_empty());
    }
}
