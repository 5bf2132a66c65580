//! The pages on which a process reports its state. They are served over TLS, and also while the Lease of the process cannot be renewed.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use e2e::{Bed, ControlPlane, WITHIN, eventually, is_uninitialised, node, seconds};
use reqwest::tls::Version;
use reqwest::{Certificate, Client};
use serde_json::json;
use tokio::time::{Instant, sleep};

const SHORT: [&str; 3] = [
    "--leader-elect-lease-duration=4s",
    "--leader-elect-renew-deadline=3s",
    "--leader-elect-retry-period=1s",
];
/// Longer than the Lease plus 20 s. Within this time, a check that takes a Lease that cannot be renewed for a hanging election would fail.
const LONG: Duration = seconds(27);
/// The line about the election on each liveness page.
const WELL: &str = "[+]leaderElection ok\n";

// Behaviour: P11, P18
#[tokio::test]
async fn pages_over_tls_and_a_lost_lease_without_a_restart() {
    let control_plane = ControlPlane::start(&e2e::tools().unwrap()).await.unwrap();
    let dir = control_plane.dir().to_path_buf();
    let (given, made) = (test_support::ports::take().unwrap(), test_support::ports::take().unwrap());
    let old = replace_pair(&dir);
    let of_node = [
        format!("--secure-port={given}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--tls-cert-file={}", dir.join("pages.crt").display()),
        format!("--tls-private-key-file={}", dir.join("pages.key").display()),
        "--tls-min-version=VersionTLS13".to_owned(),
    ];
    let of_service = [
        format!("--secure-port={made}"),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--cert-dir={}", dir.display()),
    ];
    let with = |flags: &[String]| {
        let short = SHORT.iter().map(|flag| (*flag).to_owned());
        json!({ "extraArgs": short.chain(flags.iter().cloned()).collect::<Vec<_>>() })
    };
    let values = json!({
        "nodeController": with(&of_node),
        "serviceController": with(&of_service),
        "routeController": { "enabled": false },
    });
    let mut bed = Bed::install_on(control_plane, &values).await.unwrap();
    bed.start_pods().await.unwrap();

    for version in [Version::TLS_1_2, Version::TLS_1_3] {
        let read = read(given, &old, version).await;
        assert_eq!(read.is_ok(), version == Version::TLS_1_3, "{version:?}: {read:?}");
    }
    let own = fs::read_to_string(dir.join("cloud-controller-manager.crt")).unwrap();
    read(made, &own, Version::TLS_1_2).await.unwrap();
    read(made, &old, Version::TLS_1_2).await.expect_err("another certificate is served");
    let process = bed.cluster.pods.get("node-controller").unwrap().id();
    let new = replace_pair(&dir);
    read(given, &new, Version::TLS_1_3).await.unwrap();
    read(given, &old, Version::TLS_1_3).await.expect_err("the former certificate is not served any more");

    a_lease_that_cannot_be_renewed(&mut bed, given, &new).await;
    assert_eq!(bed.cluster.pods.get("node-controller").unwrap().id(), process);
}

/// A long outage of the API server. A process that cannot renew its Lease writes nothing, but it is alive.
async fn a_lease_that_cannot_be_renewed(bed: &mut Bed, port: u16, trusted: &str) {
    bed.cluster.cloud.create_instance("a").await.unwrap();
    bed.cluster.control_plane.stop_apiserver().await.unwrap();
    let pod = &*bed.cluster.pods.get("node-controller").unwrap();
    let lost = eventually("the Lease has expired", WITHIN, || async {
        let page = pod.page("/metrics").await?;
        let lost = page.contains("leader_election_master_status{name=\"cloud-node-controller\"} 0");
        ensure!(lost, "it still leads");
        Ok(())
    });
    lost.await.unwrap();
    let since = Instant::now();
    while since.elapsed() < LONG {
        let plain = pod.page("/healthz?verbose").await.unwrap();
        let secure = read(port, trusted, Version::TLS_1_3).await.unwrap();
        assert!(plain.contains(WELL) && secure.contains(WELL), "{plain} {secure}");
        sleep(seconds(1)).await;
    }
    let unready = format!("{:#}", pod.look_ready().await.unwrap_err());
    assert!(unready.contains("leaderElection: the Lease could not be renewed in time"), "{unready}");
    assert!(bed.cluster.pods.get("node-controller").unwrap().is_running());

    bed.cluster.control_plane.start_apiserver().await.unwrap();
    bed.ready().await.unwrap();
    node("a").register(&bed.client()).await.unwrap();
    assert!(!is_uninitialised(&bed.initialised("a").await.unwrap()));
}

/// Writes a self-signed certificate and its key. Returns the certificate.
fn replace_pair(dir: &Path) -> String {
    let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
    fs::write(dir.join("pages.crt"), pair.cert.pem()).unwrap();
    fs::write(dir.join("pages.key"), pair.signing_key.serialize_pem()).unwrap();
    pair.cert.pem()
}

/// Reads the liveness page with a client that trusts only this certificate and supports TLS up to this version.
async fn read(port: u16, trusted: &str, newest: Version) -> anyhow::Result<String> {
    let trusted = Certificate::from_pem(trusted.as_bytes())?;
    #[expect(clippy::disallowed_methods, reason = "no call of a vendor")]
    let client = Client::builder().no_proxy().tls_certs_only([trusted]).tls_version_max(newest);
    let client = client.timeout(seconds(5)).build().context("cannot make a client")?;
    let answer = client.get(format!("https://127.0.0.1:{port}/healthz?verbose")).send().await?;
    let text = answer.error_for_status()?.text().await?;
    ensure!(text.contains("check passed"), "{text}");
    Ok(text)
}
