//! Runs the program against broken or missing adapters: it must reach a clear verdict in time, regardless of what the adapter does.

#![expect(clippy::expect_used, reason = "a test should panic on an unexpected result")]

mod fake;

use std::{
    fs,
    path::Path,
    process::{ExitStatus, Stdio},
    sync::Arc,
    time::Duration,
};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{PrivateKeyDer, pem::PemObject as _};
use test_support::ports::loopback;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
    sync::watch,
    task::JoinSet,
    time::Instant,
};
use tokio_rustls::TlsAcceptor;

use self::fake::{Behaviour, Fake};

/// Time limit, longer than any run here takes even on a busy host.
const LIMIT: Duration = Duration::from_secs(60);
/// A check of invalid requests, and a check that creates objects which must be deleted.
const CHECKS: [&str; 4] = ["--include", "ERR-02,ERR-03", "--check-timeout", "2s"];

struct Ended {
    status: ExitStatus,
    out: String,
    err: String,
    took: Duration,
}

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adapter-conformance"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
    command.spawn().expect("is built")
}

async fn end(child: Child) -> Ended {
    let begun = Instant::now();
    let output = tokio::time::timeout(LIMIT, child.wait_with_output()).await;
    let output = output.expect("the program hangs").expect("the program ran");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    let ended = Ended {
        status: output.status,
        out: text(output.stdout),
        err: text(output.stderr),
        took: begun.elapsed(),
    };
    assert!(!ended.err.contains("panicked"), "{}", ended.err);
    ended
}

/// Runs the program to its end, and asserts its exit code.
async fn suite(args: &[&str], code: i32) -> Ended {
    let ended = end(start(args)).await;
    assert_eq!(ended.status.code(), Some(code), "{args:?}\n{}\n{}", ended.out, ended.err);
    ended
}

/// A parameter file with short time limits.
fn impatient(folder: &Path, endpoint: &str) -> String {
    let path = folder.join("params.yaml");
    let text =
        format!("lanes: [{{endpoint: '{endpoint}'}}]\ntimings: {{converge: 1s, ready: 1s, heal: 1s}}\n");
    fs::write(&path, text).expect("a file");
    path.display().to_string()
}

/// Runs a few checks against an adapter that answers only `GetInfo` correctly.
async fn checks(fake: &Fake) -> Ended {
    let folder = tempfile::tempdir().expect("a folder");
    let params = impatient(folder.path(), &fake.endpoint());
    let flags = [&["--params", &params], &CHECKS[..]].concat();
    let ended = suite(&flags, 1).await;
    assert!(ended.err.contains("FAILED   ERR-02"), "{}", ended.err);
    assert!(ended.out.contains("T1       0       2        0  FAILED"), "{}", ended.out);
    ended
}

#[tokio::test]
async fn refused_connection_is_reported() {
    let endpoint = format!("http://{}", loopback().expect("a port"));
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report.xml");
    let ended = suite(&["--endpoint", &endpoint, "--junit", &report.display().to_string()], 1).await;
    assert!(!report.exists(), "no report file is left behind");
    let refused = format!("cannot connect to {endpoint}: Connection refused");
    for reported in [&refused, "does not answer GetInfo", "is the adapter running?"] {
        assert!(ended.err.contains(reported), "{reported}: {}", ended.err);
    }
    // The suite reached no adapter, so it can report no vendor error.
    assert!(!ended.err.contains("VENDOR"), "{}", ended.err);
}

#[tokio::test]
async fn refused_connections_of_all_replicas_are_reported() {
    let address = loopback().expect("a port");
    for endpoint in [format!("dns:///{address}"), format!("static:///{address}")] {
        let ended = suite(&["--endpoint", &endpoint], 1).await;
        let refused = format!(
            "no replica of the cloud adapter serves: {address} is not reachable: the connection was refused"
        );
        for reported in [endpoint.as_str(), &refused] {
            assert!(ended.err.contains(reported), "{reported}: {}", ended.err);
        }
    }
}

#[tokio::test]
async fn invalid_flags_and_files_exit_with_2() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let (garbage, nowhere) =
        (file("ca.pem", "no certificate"), folder.path().join("none").display().to_string());
    let lost = folder.path().join("none/report.xml").display().to_string();
    let unknown = file("unknown.yaml", "lanes: [{endpont: 'http://127.0.0.1:1'}]");
    let https = ["--endpoint", "https://127.0.0.1:1"];
    for (args, reported) in [
        (vec!["--endpoint", "127.0.0.1"], "127.0.0.1"),
        (https.to_vec(), "set --tls-ca-cert (tls.caFile) to its file"),
        ([&https[..], &["--tls-ca-cert", &garbage]].concat(), "ca.pem"),
        ([&https[..], &["--tls-ca-cert", &nowhere]].concat(), "none"),
        (vec!["--endpoint", "http://127.0.0.1:1", "--token-file", &nowhere], "--token-file"),
        (vec!["--params", &nowhere], "--params"),
        (vec!["--params", &unknown], "did you mean 'endpoint'?"),
        (
            vec!["--endpoint", "http://127.0.0.1:1", "--include", "LB-2"],
            "--include: unknown check or family 'LB-2', did you mean 'LB-02'?",
        ),
        (vec!["--endpoint", "http://127.0.0.1:1", "--include", "LB-02", "--skip", "LB"], "select no check"),
        (vec!["--list", "--include", "LB-02", "--skip", "LB"], "select no check"),
        (vec!["--endpoint", "http://127.0.0.1:1", "--junit", &lost], "--junit"),
        (vec![], "--endpoint"),
    ] {
        let ended = suite(&args, 2).await;
        assert!(ended.err.contains(reported), "{args:?}: {}", ended.err);
    }
}

#[tokio::test]
async fn certificate_of_another_ca_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let [ours, theirs] = ["ours", "theirs"].map(authority);
    let ca = folder.path().join("ca.pem");
    fs::write(&ca, ours.pem()).expect("a file");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let endpoint = format!("https://{}", listener.local_addr().expect("an address"));
    let mut serving = JoinSet::new();
    let acceptor = acceptor(&theirs);
    serving.spawn(async move {
        while let Ok((stream, _from)) = listener.accept().await {
            if let Ok(stream) = acceptor.accept(stream).await {
                fake::connection(stream, Behaviour::Hangs, Arc::new(watch::Sender::new(0))).await;
            }
        }
    });
    let flags = ["--endpoint", &endpoint, "--tls-ca-cert", &ca.display().to_string()];
    let ended = suite(&[&flags[..], &["--tls-server-name", "cloud-adapter"]].concat(), 1).await;
    for reported in ["UnknownIssuer", "--tls-ca-cert"] {
        assert!(ended.err.contains(reported), "{reported}: {}", ended.err);
    }
}

fn authority(name: &str) -> CertifiedIssuer<'static, KeyPair> {
    let mut params = CertificateParams::new(vec![]).expect("no names");
    params.distinguished_name.push(rcgen::DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key")).expect("signs itself")
}

fn acceptor(ca: &CertifiedIssuer<'static, KeyPair>) -> TlsAcceptor {
    let key = KeyPair::generate().expect("a key");
    let params = CertificateParams::new(vec!["cloud-adapter".to_owned()]).expect("a name");
    let leaf = params.signed_by(&key, ca).expect("signs");
    let key = PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .expect("a pair");
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn adapter_that_refuses_all_callers() {
    let fake = Fake::start(Behaviour::Closed).await;
    let ended = suite(&["--endpoint", &fake.endpoint()], 1).await;
    for reported in ["Unauthenticated", "--token-file"] {
        assert!(ended.err.contains(reported), "{reported}: {}", ended.err);
    }
}

#[tokio::test]
async fn server_that_is_not_an_adapter() {
    for mood in [Behaviour::Mute, Behaviour::Prose] {
        let fake = Fake::start(mood).await;
        let ended = suite(&["--endpoint", &fake.endpoint()], 1).await;
        assert!(ended.err.contains("does not answer GetInfo"), "{mood:?}: {}", ended.err);
    }
}

#[tokio::test]
async fn an_adapter_that_hangs() {
    let fake = Fake::start(Behaviour::Hangs).await;
    let ended = checks(&fake).await;
    assert!(ended.err.contains("the check ends within 2 s"), "{}", ended.err);
    assert!(ended.out.contains("not deleted:"), "{}", ended.out);
    assert!(ended.took < Duration::from_secs(30), "{:?}", ended.took);
}

#[tokio::test]
async fn an_adapter_that_answers_garbage() {
    let fake = Fake::start(Behaviour::Garbage).await;
    let ended = checks(&fake).await;
    assert!(ended.err.contains("decode"), "{}", ended.err);
    assert!(ended.out.contains("not deleted:"), "{}", ended.out);
}

#[tokio::test]
async fn an_adapter_that_streams_for_ever() {
    let fake = Fake::start(Behaviour::Endless).await;
    let ended = checks(&fake).await;
    assert!(ended.out.contains("not deleted:"), "{}", ended.out);
    assert!(ended.took < Duration::from_secs(30), "{:?}", ended.took);
}

#[tokio::test]
async fn an_adapter_that_dies_in_the_middle() {
    let fake = Fake::start(Behaviour::Dies).await;
    let ended = checks(&fake).await;
    assert!(ended.out.contains("not deleted:"), "{}", ended.out);
}

#[tokio::test]
async fn connection_ages_out_without_losing_calls() {
    for (mood, code, reported) in
        [(Behaviour::Ages, 0, "ok       LIF-02"), (Behaviour::Cuts, 1, "a watch continues after")]
    {
        let fake = Fake::start(mood).await;
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("params.yaml");
        let text = format!("secured: {{endpoint: '{}'}}\ntimings: {{connectionAge: 2s}}\n", fake.endpoint());
        fs::write(&path, text).expect("a file");
        let ended = suite(&["--params", &path.display().to_string(), "--include", "LIF-02"], code).await;
        assert!(ended.err.contains(reported), "{mood:?}: {}", ended.err);
    }
}

fn interrupt(child: &Child) {
    let id = child.id().expect("it runs").to_string();
    let status = std::process::Command::new("kill").args(["-s", "INT", &id]).status().expect("kill");
    assert!(status.success());
}

#[tokio::test]
async fn ctrl_c_ends_a_run_with_its_report() {
    let mut fake = Fake::start(Behaviour::Hangs).await;
    let folder = tempfile::tempdir().expect("a folder");
    let params = impatient(folder.path(), &fake.endpoint());
    let child = start(&["--params", &params, "--include", "ERR-02"]);
    fake.called().await;
    interrupt(&child);
    let ended = end(child).await;
    assert_eq!(ended.status.code(), Some(130), "{}", ended.err);
    assert!(ended.err.contains("ending early"), "{}", ended.err);
    assert!(ended.err.contains("(otherwise skipped: the run was ended early)"), "{}", ended.err);
    for reported in ["not deleted:", "ended early\n"] {
        assert!(ended.out.contains(reported), "{reported}: {}", ended.out);
    }
}

#[tokio::test]
async fn ctrl_c_again_ends_at_once() {
    let mut fake = Fake::start(Behaviour::Hangs).await;
    // This run has no short time limits, so the clean-up takes its full time.
    let mut child = start(&["--endpoint", &fake.endpoint(), "--include", "ERR-02"]);
    fake.called().await;
    interrupt(&child);
    let mut lines = BufReader::new(child.stderr.take().expect("is piped")).lines();
    while let Some(line) = lines.next_line().await.expect("text") {
        if line.contains("ending early") {
            break;
        }
    }
    interrupt(&child);
    let status = tokio::time::timeout(Duration::from_secs(10), child.wait()).await;
    assert_eq!(status.expect("at once").expect("it ran").code(), Some(130));
    let mut rest = String::new();
    lines.into_inner().read_to_string(&mut rest).await.expect("text");
    assert!(!rest.contains("panicked"), "{rest}");
}

#[tokio::test]
async fn run_ends_after_its_timeout() {
    let fake = Fake::start(Behaviour::Hangs).await;
    let folder = tempfile::tempdir().expect("a folder");
    let params = impatient(folder.path(), &fake.endpoint());
    let ended = suite(&["--params", &params, "--include", "ERR-02", "--timeout", "1s"], 130).await;
    assert!(ended.out.contains("ended early\n"), "{}", ended.out);
}
