use std::{
    cell::{Cell, OnceCell},
    fs,
    path::Path,
    time::UNIX_EPOCH,
};

use rustls::{
    ClientConfig, ProtocolVersion,
    pki_types::{ServerName, UnixTime},
    version::TLS12,
};
use tempfile::TempDir;
use tokio::time::Instant;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use x509_parser::parse_x509_certificate;

use super::*;
use crate::{
    reload::EVERY,
    testing::{Ca, Pair},
};

thread_local! {
    /// The time by which the wall clock was set forward, or by which it advanced while the host was suspended.
    static AHEAD: Cell<Duration> = const { Cell::new(Duration::ZERO) };
    static START: OnceCell<Instant> = const { OnceCell::new() };
}

/// Returns the time of the wall clock of these tests. It starts on a fixed day and follows tokio's paused clock.
fn wall() -> SystemTime {
    let passed = START.with(|start| start.get_or_init(Instant::now).elapsed());
    UNIX_EPOCH + DAY_ZERO + passed + AHEAD.get()
}

/// The time 2026-11-21 00:00 UTC.
const DAY_ZERO: Duration = Duration::from_secs(1_795_219_200);
const DAY: Duration = Duration::from_hours(24);

fn pair_of(certificate: &str, key: &str) -> Pair {
    Pair { certificate: certificate.to_owned(), key: key.to_owned() }
}

fn put(dir: &Path, pair: &Pair) {
    fs::write(dir.join("tls.crt"), &pair.certificate).expect("a written file");
    fs::write(dir.join("tls.key"), &pair.key).expect("a written file");
}

fn files(dir: &TempDir, names: Option<&[&str]>) -> TlsFiles {
    let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    let identity = match names {
        Some(names) => {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            ServerIdentity::Authority { certificate, key, names }
        }
        None => ServerIdentity::Pair { certificate, key },
    };
    TlsFiles { identity, client_ca: None }
}

fn start(pair: &Pair, names: Option<&[&str]>) -> Result<Tls, String> {
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), pair);
    Tls::start(files(&dir, names), wall).map_err(|error| error.to_string())
}

/// Returns what a client that trusts this CA receives: the server's leaf certificate, or the reason why the handshake failed.
async fn seen(config: &Arc<ServerConfig>, ca: &Ca, name: &'static str) -> Result<Vec<u8>, String> {
    let mut roots = RootCertStore::empty();
    let pem = ca.pair().certificate;
    roots.add(CertificateDer::from_pem_slice(pem.as_bytes()).expect("PEM")).expect("an authority");
    let client = ClientConfig::builder_with_details(
        Arc::new(aws_lc_rs::default_provider()),
        Arc::new(Fixed(UnixTime::since_unix_epoch(wall().duration_since(UNIX_EPOCH).expect("after 1970")))),
    );
    let client = client.with_safe_default_protocol_versions().expect("both").with_root_certificates(roots);
    connect(config, client.with_no_client_auth(), name).await
}

#[derive(Debug)]
struct Fixed(UnixTime);

impl rustls::time_provider::TimeProvider for Fixed {
    fn current_time(&self) -> Option<UnixTime> {
        Some(self.0)
    }
}

async fn connect(
    server: &Arc<ServerConfig>,
    client: ClientConfig,
    name: &'static str,
) -> Result<Vec<u8>, String> {
    let (near, far) = tokio::io::duplex(65536);
    let name = ServerName::try_from(name).expect("a name");
    let (server, client) = tokio::join!(
        TlsAcceptor::from(Arc::clone(server)).accept(far),
        TlsConnector::from(Arc::new(client)).connect(name, near),
    );
    let client = client.map_err(|error| error.to_string())?;
    server.map_err(|error| error.to_string())?;
    let (_, session) = client.get_ref();
    assert_eq!(session.protocol_version(), Some(ProtocolVersion::TLSv1_3));
    Ok(session.peer_certificates().expect("a server's")[0].to_vec())
}

#[tokio::test]
async fn a_ca_issues_certificates_of_a_day_for_the_given_names() {
    let ca = Ca::new("cloud-adapter");
    let tls = start(&ca.pair(), Some(&["cloud-adapter", "127.0.0.1"])).expect("good");
    let config = Arc::clone(&tls.current().borrow());
    let leaf = seen(&config, &ca, "cloud-adapter").await.expect("trusted");
    assert!(seen(&config, &ca, "127.0.0.1").await.is_ok());
    assert!(seen(&config, &ca, "elsewhere").await.is_err());
    assert!(
        seen(&config, &Ca::new("cloud-adapter"), "cloud-adapter").await.is_err(),
        "another CA with the same name"
    );
    let (_, leaf) = parse_x509_certificate(&leaf).expect("a certificate");
    let day_zero = i64::try_from(DAY_ZERO.as_secs()).expect("soon");
    assert_eq!(leaf.validity().not_before.timestamp(), day_zero - 600);
    assert_eq!(leaf.validity().not_after.timestamp(), day_zero + 24 * 3600);
    assert!(!leaf.is_ca());
    assert_ne!(leaf.subject(), leaf.issuer(), "clients would treat the certificate as self-signed");
}

#[tokio::test]
async fn an_old_version_of_tls_is_refused() {
    let ca = Ca::new("ours");
    let tls = start(&ca.pair(), Some(&["cloud-adapter"])).expect("good");
    let config = Arc::clone(&tls.current().borrow());
    let client = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_protocol_versions(&[&TLS12])
        .expect("there");
    let client = client.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
    let refused = connect(&config, client, "cloud-adapter").await.expect_err("refused");
    assert!(refused.contains("ProtocolVersion"), "{refused}");
}

#[tokio::test]
async fn files_that_cannot_be_used_are_refused_with_the_reason() {
    let (ca, other) = (Ca::new("ours"), Ca::new("other"));
    let (pair, leaf) = (ca.pair(), ca.server("cloud-adapter", wall() + DAY));
    let late = ca.server("cloud-adapter", wall() - DAY);
    let names = Some(&["cloud-adapter"][..]);
    for (name, pair, names, wanted) in [
        ("a CA with another's key", pair_of(&pair.certificate, &other.pair().key), names, "does not belong"),
        ("a leaf instead of a CA", leaf.clone(), names, "not a CA certificate"),
        ("an empty certificate", pair_of("", &pair.key), names, "no certificate"),
        ("no PEM", pair_of(&pair.certificate, "key"), names, "cannot read the key"),
        ("a leaf with another's key", pair_of(&leaf.certificate, &pair.key), None, "does not belong"),
        ("an expired leaf", late, None, "expired on"),
        (
            "half a certificate",
            pair_of(leaf.certificate.get(..200).expect("longer"), &leaf.key),
            None,
            "cannot read",
        ),
        ("an invalid key", pair_of(&leaf.certificate, ""), None, "cannot read the key"),
    ] {
        let refused = start(&pair, names).expect_err(name);
        assert!(refused.contains(wanted) && refused.contains("tls.crt"), "{name}: {refused}");
        assert!(!refused.contains("PRIVATE"), "{name}: {refused}");
    }
    assert!(start(&leaf, None).is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_new_pair_is_used_and_a_bad_one_ignored() {
    let ca = Ca::new("ours");
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), &ca.server("first", wall() + DAY));
    let tls = Tls::start(files(&dir, None), wall).expect("good");
    let current = tls.current();
    let reported = std::sync::Mutex::new(Vec::new());
    let serves = async |name| seen(&Arc::clone(&current.borrow()), &ca, name).await.is_ok();
    let script = async {
        assert!(serves("first").await);
        put(dir.path(), &ca.server("second", wall() + DAY));
        tokio::time::sleep(EVERY * 2).await;
        assert!(serves("second").await && !serves("first").await);
        let third = ca.server("third", wall() + DAY);
        fs::write(dir.path().join("tls.crt"), &third.certificate).expect("a written file");
        tokio::time::sleep(EVERY * 3).await;
        assert!(serves("second").await, "a certificate without its key is not used");
        fs::write(dir.path().join("tls.key"), &third.key).expect("a written file");
        tokio::time::sleep(EVERY * 2).await;
        assert!(serves("third").await);
    };
    tokio::select! {
        () = tls.run(EVERY, |why, result| reported.lock().expect("whole").push((why, result.is_ok()))) => (),
        () = script => (),
    }
    assert_eq!(*reported.lock().expect("whole"), [true, false, true].map(|taken| (Occasion::Changed, taken)));
}

#[tokio::test(start_paused = true)]
async fn issued_certificates_are_renewed_at_half_their_lifetime() {
    let ca = Ca::new("ours");
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), &ca.pair());
    let tls = Tls::start(files(&dir, Some(&["cloud-adapter"])), wall).expect("good");
    let mut current = tls.current();
    let script = async {
        let leaf =
            async |config: &Arc<ServerConfig>| seen(config, &ca, "cloud-adapter").await.expect("trusted");
        let first = leaf(&Arc::clone(&current.borrow_and_update())).await;
        tokio::time::sleep(DAY / 2 - Duration::from_mins(1)).await;
        assert!(!current.has_changed().expect("runs"), "too early to renew");
        tokio::time::sleep(Duration::from_mins(2)).await;
        assert!(current.has_changed().expect("runs"), "too late to renew");
        assert_ne!(leaf(&Arc::clone(&current.borrow_and_update())).await, first);
    };
    tokio::select! {
        () = tls.run(EVERY, |why, result| assert_eq!((why, result), (Occasion::Due, Ok(())))) => (),
        () = script => (),
    }
}

#[tokio::test(start_paused = true)]
async fn certificates_are_renewed_after_a_suspend() {
    let ca = Ca::new("ours");
    let dir = tempfile::tempdir().expect("a folder");
    put(dir.path(), &ca.pair());
    let tls = Tls::start(files(&dir, Some(&["cloud-adapter"])), wall).expect("good");
    let mut current = tls.current();
    let script = async {
        tokio::time::sleep(CHECK_EVERY * 3).await;
        assert!(!current.has_changed().expect("runs"), "no renewal is due");
        // The monotonic clock does not show the two days that passed on the wall clock.
        AHEAD.set(DAY * 2);
        tokio::time::sleep(CHECK_EVERY + Duration::from_secs(1)).await;
        assert!(current.has_changed().expect("runs"));
        let fresh = Arc::clone(&current.borrow_and_update());
        seen(&fresh, &ca, "cloud-adapter").await.expect("trusted");
        tokio::time::sleep(CHECK_EVERY * 3).await;
        assert!(!current.has_changed().expect("runs"), "the certificate is renewed only once");
    };
    tokio::select! {
        () = tls.run(EVERY, |why, result| assert_eq!((why, result), (Occasion::Due, Ok(())))) => (),
        () = script => (),
    }
}
