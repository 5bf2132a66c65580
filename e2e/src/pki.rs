//! Keys and certificates. Each control plane has its own.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose,
};
use serde_json::json;

#[derive(Clone, Debug)]
pub(crate) struct Pki {
    pub(crate) ca: PathBuf,
    pub(crate) server: CertificateFiles,
    pub(crate) admin: CertificateFiles,
    /// The key pair that signs the tokens of ServiceAccounts.
    pub(crate) service_accounts: KeyFiles,
}

/// A certificate and its key, as PEM.
#[derive(Clone, Debug)]
pub(crate) struct CertificateFiles {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

/// A key pair, as PEM.
#[derive(Clone, Debug)]
pub(crate) struct KeyFiles {
    pub(crate) public: PathBuf,
    pub(crate) private: PathBuf,
}

impl Pki {
    pub(crate) fn make(dir: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let ca = authority().context("cannot create a certificate authority")?;
        let service_accounts =
            KeyFiles { public: dir.join("service-accounts.pub"), private: dir.join("service-accounts.key") };
        let pair = KeyPair::generate()?;
        write(&service_accounts.public, &pair.public_key_pem())?;
        write(&service_accounts.private, &pair.serialize_pem())?;
        let ca_file = dir.join("ca.crt");
        write(&ca_file, &ca.pem())?;
        Ok(Self {
            ca: ca_file,
            server: issue(&ca, server()?, &dir.join("apiserver"))?,
            admin: issue(&ca, admin()?, &dir.join("admin"))?,
            service_accounts,
        })
    }
}

/// Creates a certificate authority: its certificate and its key, as PEM.
pub fn new_authority() -> anyhow::Result<(String, String)> {
    let ca = authority().context("cannot create a certificate authority")?;
    Ok((ca.pem(), ca.key().serialize_pem()))
}

/// Puts a certificate authority into the Secret of the adapter, if the Secret has none.
pub(crate) async fn fill_ca(client: &Client, namespace: &str) -> anyhow::Result<()> {
    const SECRET: &str = "cloud-adapter-ca";
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let Some(secret) = secrets.get_opt(SECRET).await? else { return Ok(()) };
    if secret.data.is_some_and(|data| data.contains_key("ca.crt")) {
        return Ok(());
    }
    let (certificate, key) = new_authority()?;
    let patch = Patch::Merge(json!({ "stringData": { "ca.crt": certificate, "ca.key": key } }));
    secrets.patch(SECRET, &PatchParams::default(), &patch).await.context("cannot write the CA").map(drop)
}

fn authority() -> Result<CertifiedIssuer<'static, KeyPair>, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name = name(&[(DnType::CommonName, "e2e")]);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
    CertifiedIssuer::self_signed(params, KeyPair::generate()?)
}

fn server() -> Result<CertificateParams, rcgen::Error> {
    let names = ["127.0.0.1", "localhost", "kubernetes.default.svc"].map(str::to_owned);
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = name(&[(DnType::CommonName, "kube-apiserver")]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

/// A user in the administrators' group.
fn admin() -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.distinguished_name =
        name(&[(DnType::OrganizationName, "system:masters"), (DnType::CommonName, "admin")]);
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    Ok(params)
}

fn name(parts: &[(DnType, &str)]) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    for (kind, value) in parts {
        name.push(kind.clone(), *value);
    }
    name
}

fn issue(
    ca: &CertifiedIssuer<'static, KeyPair>,
    mut params: CertificateParams,
    stem: &Path,
) -> anyhow::Result<CertificateFiles> {
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, ca).context("cannot sign a certificate")?;
    let files = CertificateFiles { certificate: stem.with_extension("crt"), key: stem.with_extension("key") };
    write(&files.certificate, &certificate.pem())?;
    write(&files.key, &key.serialize_pem())?;
    Ok(files)
}

fn write(path: &Path, pem: &str) -> anyhow::Result<()> {
    fs::write(path, pem).with_context(|| format!("cannot write {}", path.display()))
}
