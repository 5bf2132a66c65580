//! Calls cosign, which signs files and artifacts of a registry with a key and verifies them. cosign gets neither certificates of persons
//! nor a public log, so it needs no service on the Internet.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

use crate::tool::Tool;

/// The name that cosign uses for the predicate type of the provenance.
const PROVENANCE: &str = "slsaprovenance1";
const KEY: &str = "name a private key that cosign can read (`cosign generate-key-pair` makes one), with its password in COSIGN_PASSWORD";
/// The configuration of services for cosign. It names no service, so cosign uses none.
const NO_SERVICES: &str = r#"{"mediaType":"application/vnd.dev.sigstore.signingconfig.v0.2+json","rekorTlogConfig":{},"tsaConfig":{}}"#;

#[derive(Debug)]
pub(super) struct Signer {
    program: PathBuf,
    key: String,
    services: tempfile::NamedTempFile,
    /// The public key, as PEM.
    pub(super) public: Vec<u8>,
}

impl Signer {
    /// Reads the key, so that a wrong password is reported before a build. `key` is a file, or any other reference that cosign accepts.
    pub(super) fn new(key: &str) -> anyhow::Result<Self> {
        let program = Tool::Cosign.get()?;
        let public = output(Command::new(&program).args(["public-key", "--key", key]))
            .with_context(|| format!("--key {key}: {KEY}"))?;
        let services = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
        std::fs::write(services.path(), NO_SERVICES).context("cannot write a temporary file")?;
        Ok(Self { program, key: key.to_owned(), services, public })
    }

    pub(super) fn blob(&self, file: &Path, bundle: &Path) -> anyhow::Result<()> {
        output(self.command("sign-blob").arg("--bundle").arg(bundle).arg(file)).map(drop)
    }

    pub(super) fn statement(&self, statement: &Path, bundle: &Path) -> anyhow::Result<()> {
        let mut command = self.command("attest-blob");
        command.arg("--statement").arg(statement).arg("--bundle").arg(bundle);
        output(&mut command).map(drop)
    }

    /// Signs an artifact of a registry, named by its digest, and attaches the signature.
    pub(super) fn artifact(&self, name: &str, http: bool) -> anyhow::Result<()> {
        output(over(self.command("sign"), http).arg(name)).map(drop)
    }

    /// Attaches a signed predicate to an artifact of a registry.
    pub(super) fn provenance(&self, name: &str, predicate: &Path, http: bool) -> anyhow::Result<()> {
        let mut command = over(self.command("attest"), http);
        command.args(["--type", PROVENANCE, "--predicate"]).arg(predicate).arg(name);
        output(&mut command).map(drop)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.args([verb, "--yes", "--key", &self.key, "--signing-config"]).arg(self.services.path());
        command
    }
}

#[derive(Debug)]
pub(super) struct Verifier {
    program: PathBuf,
    key: PathBuf,
}

impl Verifier {
    pub(super) fn new(key: &Path) -> anyhow::Result<Self> {
        if !key.is_file() {
            bail!(
                "--key {}: no such file; name the public key of the maintainers, cosign.pub",
                key.display()
            );
        }
        Ok(Self { program: Tool::Cosign.get()?, key: key.to_path_buf() })
    }

    /// Fails unless the bundle has a signature of the file by this key.
    pub(super) fn blob(&self, file: &Path, bundle: &Path) -> anyhow::Result<()> {
        output(self.command("verify-blob").arg("--bundle").arg(bundle).arg(file)).map(drop)
    }

    /// Fails unless the bundle contains a statement that is signed by this key and names the digest of the file.
    pub(super) fn statement(&self, file: &Path, bundle: &Path) -> anyhow::Result<()> {
        let mut command = self.command("verify-blob-attestation");
        command.args(["--type", PROVENANCE]).arg("--bundle").arg(bundle).arg(file);
        output(&mut command).map(drop)
    }

    pub(super) fn artifact(&self, name: &str, http: bool) -> anyhow::Result<()> {
        output(over(self.command("verify"), http).arg(name)).map(drop)
    }

    /// Fails unless this key has signed the provenance of the artifact.
    pub(super) fn provenance(&self, name: &str, http: bool) -> anyhow::Result<()> {
        let mut command = over(self.command("verify-attestation"), http);
        output(command.args(["--type", PROVENANCE]).arg(name)).map(drop)
    }

    fn command(&self, verb: &str) -> Command {
        let mut command = Command::new(&self.program);
        // Signatures are not in a public log; the key alone decides.
        command.args([verb, "--insecure-ignore-tlog", "--key"]).arg(&self.key);
        command
    }
}

fn over(mut command: Command, http: bool) -> Command {
    if http {
        command.arg("--allow-http-registry");
    }
    command
}

/// Returns the standard output. If the program fails, the error contains the program's own error.
pub(super) fn output(command: &mut Command) -> anyhow::Result<Vec<u8>> {
    let name =
        Path::new(command.get_program()).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let verb = command.get_args().next().unwrap_or_default().to_string_lossy().into_owned();
    let ended = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {name}"))?;
    if ended.status.success() {
        return Ok(ended.stdout);
    }
    bail!("{name} {verb}: {}", error(&String::from_utf8_lossy(&ended.stderr)))
}

/// Returns the first line with an error, or the last line if no line has an error. cosign prints warnings before errors, and repeats
/// errors.
fn error(said: &str) -> &str {
    let lines = || said.lines().map(str::trim).filter(|line| !line.is_empty());
    let marked = lines().find_map(|line| line.strip_prefix("Error: "));
    marked.or_else(|| lines().next_back()).unwrap_or("it failed without a message")
}

#[cfg(test)]
mod tests {
    use super::error;

    #[test]
    fn errors_are_shown_without_warnings() {
        let said = "WARNING: a\nError: no match\nerror during command execution: no match\n";
        assert_eq!(error(said), "no match");
        assert_eq!(error("a\nb\n\n"), "b");
    }
}
