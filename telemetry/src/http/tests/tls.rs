//! Tests of pages over TLS, with a real client.

use std::{fs, net::IpAddr, path::Path};

use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, ServerName, pem::PemObject as _},
    version::{TLS12, TLS13},
};
use tempfile::TempDir;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::*;

const NAME: &str = "pages.example";

fn made() -> (String, String) {
    let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

/// Writes the pair to a directory, like a mounted Secret.
fn folder((certificate, key): &(String, String)) -> (TempDir, Certificate) {
    let folder = tempfile::tempdir().expect("a folder");
    let [crt, pem] = ["tls.crt", "tls.key"].map(|name| folder.path().join(name));
    fs::write(&crt, certificate).expect("a written file");
    fs::write(&pem, key).expect("a written file");
    (folder, Certificate::Files { certificate: crt, key: pem })
}

struct SecurePort {
    address: SocketAddr,
    _serving: JoinSet<io::Result<()>>,
}

impl SecurePort {
    async fn open(certificate: Certificate, minimum: Version) -> Self {
        let tls = Tls::start(certificate, minimum, &["127.0.0.1".to_owned()]).expect("a valid certificate");
        let listener = Listener::bind(([127, 0, 0, 1], 0).into()).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let open = Router::new().route("/healthz", get(async || "ok\n"));
        let endpoints = Endpoints::new(open, status(), Readers::Local);
        let mut serving = JoinSet::new();
        serving.spawn(serve_tls(listener, Arc::new(tls), endpoints, CancellationToken::new()));
        Self { address, _serving: serving }
    }

    /// Connects with a client that trusts only this certificate, and uses this TLS version.
    async fn shake_hands(
        &self,
        trusted: &str,
        name: ServerName<'static>,
        version: &'static SupportedProtocolVersion,
    ) -> io::Result<TlsStream<TcpStream>> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(trusted.as_bytes()).expect("PEM")).expect("a certificate");
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(&[version])
            .expect("known")
            .with_root_certificates(roots)
            .with_no_client_auth();
        let stream = TcpStream::connect(self.address).await.expect("taken");
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn healthz(&self, trusted: &str) -> Result<String, String> {
        let name = ServerName::try_from(NAME).expect("a name");
        let mut stream = self.shake_hands(trusted, name, &TLS13).await.map_err(|error| error.to_string())?;
        stream.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
        let mut said = String::new();
        let read = timeout(TIMEOUT, stream.read_to_string(&mut said)).await.expect("closes");
        read.map_err(|error| error.to_string())?;
        Ok(said)
    }
}

// Behaviour: P18
#[tokio::test]
async fn clients_that_trust_the_certificate_read_the_pages() {
    let pair = made();
    let (_folder, certificate) = folder(&pair);
    let port = SecurePort::open(certificate, Version::Tls12).await;
    let answer = port.healthz(&pair.0).await.expect("trusted");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.ends_with("\r\n\r\nok\n"), "{answer}");
    port.healthz(&made().0).await.expect_err("another certificate");
    // The port does not accept plain HTTP.
    let mut plain = TcpStream::connect(port.address).await.expect("taken");
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: a\r\n\r\n").await.expect("sent");
    assert!(!said(&mut plain).await.contains("200 OK"));
}

// Behaviour: P18
#[tokio::test]
async fn a_replaced_certificate_is_used_and_a_bad_one_ignored() {
    let (old, new) = (made(), made());
    let (folder, certificate) = folder(&old);
    let port = SecurePort::open(certificate, Version::Tls13).await;
    port.healthz(&old.0).await.expect("the old certificate");
    let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).expect("a written file");
    // Only half of the replacement has happened, so the certificate and the key belong to different pairs.
    write("tls.crt", &new.0);
    port.healthz(&old.0).await.expect("still the old certificate");
    write("tls.key", &new.1);
    port.healthz(&new.0).await.expect("the new certificate");
    write("tls.crt", "nothing");
    fs::remove_file(folder.path().join("tls.key")).expect("there");
    port.healthz(&new.0).await.expect("still the new certificate");
}

// Behaviour: P18
#[tokio::test]
async fn versions_older_than_wanted_are_refused() {
    let pair = made();
    let (_folder, certificate) = folder(&pair);
    for (minimum, speaks_12) in [(Version::Tls12, true), (Version::Tls13, false)] {
        let port = SecurePort::open(certificate.clone(), minimum).await;
        for (version, speaks) in [(&TLS12, speaks_12), (&TLS13, true)] {
            let name = ServerName::try_from(NAME).expect("a name");
            let shaken = port.shake_hands(&pair.0, name, version).await;
            assert_eq!(shaken.is_ok(), speaks, "{minimum:?} and {version:?}");
        }
    }
}

// Behaviour: P18
#[tokio::test]
async fn a_directory_gets_a_pair_that_is_used_again() {
    let parent = tempfile::tempdir().expect("a folder");
    let directory = parent.path().join("certificates");
    let pair = || ["crt", "key"].map(|end| fs::read_to_string(path(&directory, end)).expect("written"));
    let address = ServerName::from("127.0.0.1".parse::<IpAddr>().expect("an address"));
    let port = SecurePort::open(Certificate::Directory(directory.clone()), Version::Tls12).await;
    let first = pair();
    port.shake_hands(&first[0], address.clone(), &TLS13)
        .await
        .expect("the certificate is valid for the address");
    let port = SecurePort::open(Certificate::Directory(directory.clone()), Version::Tls12).await;
    assert_eq!(pair(), first);
    port.shake_hands(&first[0], address, &TLS13).await.expect("the same certificate");
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(path(&directory, "key")).expect("there").permissions(),
    );
    assert_eq!(mode & 0o777, 0o600, "only this user may read the key");
}

fn path(directory: &Path, end: &str) -> std::path::PathBuf {
    directory.join(format!("cloud-controller-manager.{end}"))
}

#[tokio::test]
async fn a_self_signed_certificate_is_created_without_files() {
    let port = SecurePort::open(Certificate::Own, Version::Tls12).await;
    let address = ServerName::from("127.0.0.1".parse::<IpAddr>().expect("an address"));
    let refused = port.shake_hands(&made().0, address, &TLS13).await.expect_err("self-signed");
    assert!(refused.to_string().contains("invalid peer certificate"), "{refused}");
}

#[test]
fn unusable_tls_files_are_named() {
    let (one, other) = (made(), made());
    let start = |pair: &(String, String)| {
        let (_folder, certificate) = folder(pair);
        Tls::start(certificate, Version::Tls12, &[]).expect_err("a file with invalid content").to_string()
    };
    let swapped = (one.1.clone(), one.0.clone());
    let names_itself = |text: &str, file: &str, why: &str| {
        assert!(text.contains(file) && text.contains(why), "{text}");
        assert!(!text.contains("BEGIN"), "{text}");
    };
    names_itself(&start(&swapped), "tls.crt", "no certificate");
    names_itself(&start(&(one.0.clone(), String::new())), "tls.key", "");
    names_itself(&start(&(one.0.clone(), other.1)), "", "cannot use the certificate");
    let nowhere = Certificate::Files { certificate: "/nowhere/a".into(), key: "/nowhere/b".into() };
    let missing = Tls::start(nowhere, Version::Tls12, &[]).expect_err("missing").to_string();
    names_itself(&missing, "/nowhere/a", "No such file");
    // A user's incomplete pair is a mistake of the user, and must not be overwritten.
    let half = tempfile::tempdir().expect("a folder");
    fs::write(path(half.path(), "crt"), &one.0).expect("a written file");
    let error = Tls::start(Certificate::Directory(half.path().to_owned()), Version::Tls12, &[]);
    names_itself(&error.expect_err("half").to_string(), "cloud-controller-manager.key", "No such file");
}
