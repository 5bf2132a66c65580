//! Kubeconfig files: one for the administrator, and one for each ServiceAccount that a process runs as.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::pki::CertificateFiles;

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Server {
    pub(crate) url: String,
    pub(crate) ca: PathBuf,
}

#[derive(Debug)]
pub(crate) enum Credential<'a> {
    Certificate(&'a CertificateFiles),
    Token(&'a str),
}

/// Writes a kubeconfig with this default namespace, as JSON, which is also YAML.
pub(crate) fn write(
    path: &Path,
    server: &Server,
    namespace: &str,
    credential: &Credential<'_>,
) -> anyhow::Result<()> {
    let text = serde_json::to_string_pretty(&render(server, namespace, credential))?;
    fs::write(path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// Writes a copy of a kubeconfig with another token.
pub fn kubeconfig_with_token(like: &Path, token: &str, to: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(like).with_context(|| format!("cannot read {}", like.display()))?;
    let mut config: Value = serde_json::from_str(&text)?;
    let user =
        config.pointer_mut("/users/0/user").with_context(|| format!("{} has no user", like.display()))?;
    *user = json!({ "token": token.trim() });
    fs::write(to, config.to_string()).with_context(|| format!("cannot write {}", to.display()))
}

fn render(server: &Server, namespace: &str, credential: &Credential<'_>) -> Value {
    let user = match credential {
        Credential::Certificate(files) => {
            json!({ "client-certificate": files.certificate, "client-key": files.key })
        }
        Credential::Token(token) => json!({ "token": token }),
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "e2e", "cluster": { "server": server.url, "certificate-authority": server.ca } }],
        "users": [{ "name": "user", "user": user }],
        "contexts": [{ "name": "e2e", "context": { "cluster": "e2e", "user": "user", "namespace": namespace } }],
        "current-context": "e2e",
    })
}
