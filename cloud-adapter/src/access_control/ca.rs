//! Keeps the CA of the adapter's certificates in a Secret, so that clients trust the adapter after a restart, and all replicas have the
//! same CA.
//!
//! The adapter may read and fill this Secret, but may not create Secrets. A client that may create a Secret of the type
//! `kubernetes.io/service-account-token` gets the token of any ServiceAccount of the namespace. The type of an existing Secret cannot
//! change.

use std::{
    collections::BTreeMap,
    fs,
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use anyhow::{Context as _, bail};
use k8s_openapi::ByteString;
use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, KeyPair, KeyUsagePurpose};

use crate::auth::{ApiServer, SecretName};

/// The keys of the Secret.
const CERTIFICATE: &str = "ca.crt";
const KEY: &str = "ca.key";
/// Lifetime of the CA: 20 years. The chart's README describes how to replace the CA without an outage. If the Secret is emptied, the
/// adapter creates a new CA, which clients trust only after their CA files are updated.
const LIFE: Duration = Duration::from_hours(20 * 365 * 24);
/// The CA is valid from this long before its creation, because clients' clocks may be slow.
const EARLIER: Duration = Duration::from_hours(1);
/// Interval between reads of the Secret.
const EVERY: Duration = Duration::from_secs(10);

/// A CA certificate and its key, both PEM.
#[derive(Clone, PartialEq, Eq)]
struct Ca {
    certificate: Vec<u8>,
    key: Vec<u8>,
}

/// Where the CA that is written to the files comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Secret,
    /// The Secret was empty, as after the installation.
    Created,
    /// The Secret has lost the CA that the files contain. Clients do not trust the new CA yet.
    Replaced,
}

/// The Secret with the CA, and the files to which the certificate and the key of the CA are written.
#[derive(Debug)]
pub(super) struct CaSecret {
    api: ApiServer,
    secret: SecretName,
    certificate: PathBuf,
    key: PathBuf,
}

impl CaSecret {
    pub(super) fn new(api: ApiServer, secret: SecretName, certificate: PathBuf, key: PathBuf) -> Self {
        Self { api, secret, certificate, key }
    }

    /// Creates the CA if the Secret has no data, and writes the certificate and the key to their files.
    pub(super) async fn prepare(&self, now: SystemTime) -> anyhow::Result<Origin> {
        let (ca, origin) = match self.read().await? {
            Content::Ca(ca) => (ca, Origin::Secret),
            Content::Empty { version } => {
                let ca = create(now).context("cannot create a CA")?;
                let data = BTreeMap::from([
                    (CERTIFICATE, ByteString(ca.certificate.clone())),
                    (KEY, ByteString(ca.key.clone())),
                ]);
                // The version makes this request fail if another replica filled the Secret in the meantime.
                self.api.fill_secret(&self.secret, data, &version).await?;
                (ca, if self.certificate.exists() { Origin::Replaced } else { Origin::Created })
            }
        };
        match origin {
            Origin::Secret => (),
            Origin::Created => {
                tracing::info!(secret = %self.secret, "Created the CA of the adapter's certificates");
            }
            Origin::Replaced => tracing::warn!(
                secret = %self.secret,
                "The Secret has lost the CA of the adapter's certificates; created another CA. Controllers trust \
                 it as soon as the kubelets have updated their volumes"
            ),
        }
        self.write(&ca)?;
        Ok(origin)
    }

    /// Writes the certificate and the key again when the Secret changes. Never returns. Invalid contents are reported by the code that
    /// reads the two files.
    pub(super) async fn keep(self) {
        loop {
            tokio::time::sleep(EVERY).await;
            if let Err(error) = self.prepare(crate::clock::wall()).await {
                tracing::warn!(secret = %self.secret, error = format!("{error:#}"), "Cannot refresh the CA from its Secret; continuing with the known CA");
            }
        }
    }

    async fn read(&self) -> anyhow::Result<Content> {
        let secret = self.api.secret(&self.secret).await?;
        let version = secret.metadata.resource_version;
        let version = version.context("the API server returned the Secret without a version")?;
        let mut data = secret.data.unwrap_or_default();
        match (data.remove(CERTIFICATE), data.remove(KEY)) {
            (Some(certificate), Some(key)) => Ok(Content::Ca(Ca { certificate: certificate.0, key: key.0 })),
            (None, None) => Ok(Content::Empty { version }),
            (certificate, _) => {
                let missing = if certificate.is_some() { KEY } else { CERTIFICATE };
                bail!(
                    "Secret {} has no {missing}: add it, or remove both {CERTIFICATE} and {KEY}, so that the adapter creates a CA",
                    self.secret
                )
            }
        }
    }

    /// A file that already has this content is left alone.
    fn write(&self, ca: &Ca) -> anyhow::Result<()> {
        for (path, content) in [(&self.key, &ca.key), (&self.certificate, &ca.certificate)] {
            if fs::read(path).is_ok_and(|old| old == *content) {
                continue;
            }
            replace(path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}

enum Content {
    Ca(Ca),
    Empty { version: String },
}

/// Replaces a file as a whole, so that no reader sees a part of it.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    // The file is created again, because an old file could be a link, or other users could read it.
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => (),
    }
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new)?;
    file.write_all(content)?;
    fs::rename(new, path)
}

fn create(now: SystemTime) -> Result<Ca, rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "cloud-adapter-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.not_before = (now - EARLIER).into();
    params.not_after = (now + LIFE).into();
    let certificate = params.self_signed(&key)?;
    Ok(Ca { certificate: certificate.pem().into_bytes(), key: key.serialize_pem().into_bytes() })
}

#[cfg(test)]
mod tests;
